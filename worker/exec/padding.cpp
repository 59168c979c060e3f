#include "worker/exec/padding.hpp"

#include <algorithm>
#include <map>
#include <span>
#include <string_view>

#include "shm/base/errors.hpp"
#include "worker/graph/operators.hpp"

namespace shoal::worker {
namespace {

/// Runs a larger program on smaller tensors, which fill a corner of the program's tensors.
class PaddedProgram final : public Program {
 public:
  PaddedProgram(std::shared_ptr<const PlannedProgram> padded, std::vector<TensorSpec> inputs, std::vector<TensorSpec> outputs)
      : padded_(std::move(padded)) {
    inputs_ = std::move(inputs);
    outputs_ = std::move(outputs);
    arena_bytes_ = padded_->arena_bytes() + room_bytes(inputs_, padded_->inputs()) + room_bytes(outputs_, padded_->outputs());
    step_count_ = padded_->step_count();
  }
  std::size_t resident_bytes() const override { return padded_->resident_bytes(); }

  Status run(Context& context, std::span<const TensorView> src, std::span<TensorView> dst) const override {
    SHOAL_RETURN_IF_ERROR(check("input", inputs_, src));
    SHOAL_RETURN_IF_ERROR(check("output", outputs_, dst));
    return padded_->run_within(context, src, dst);
  }

 private:
  // Memory that a Context needs beside its arena.
  static std::size_t room_bytes(const std::vector<TensorSpec>& given, const std::vector<TensorSpec>& padded) {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < given.size(); ++i) bytes += given[i].shape == padded[i].shape ? 0 : size_bytes_of(padded[i]);
    return bytes;
  }

  std::shared_ptr<const PlannedProgram> padded_;
};

std::int64_t from_front(std::int64_t axis, int rank) { return axis < 0 ? axis + rank : axis; }

// Operators that compute row i of dimension 0 from row i of their first input, and whose other inputs are weights.
constexpr std::string_view kRowWise[] = {
    "Convolution",        "FullyConnected", "BatchNorm", "LeakyReLU", "Activation", "Pooling", "LRN",     "L2Normalization",
    "AdaptiveAvgPooling", "HardSigmoid",    "Unary",     "Scalar",    "Identity",   "Clip",    "Flatten", "Cast"};
// Operators that compute it from row i of all their inputs. A Reshape keeps the order of elements, so rows stay in place if
// their number stays the same; that is checked for every operator.
constexpr std::string_view kElementWise[] = {"AddN", "AmpMulticast", "Reshape"};

bool is_one_of(std::span<const std::string_view> names, const Node& node) {
  return std::ranges::find(names, node.op->name) != names.end();
}

/// How a node treats the rows of a batch. Shapes are inferred for a batch of kPrimeBatch.
class RowRule {
 public:
  RowRule(const Graph& graph, const Node& node, const std::vector<bool>& has_rows)
      : graph_(graph), node_(node), has_rows_(has_rows), rank_(graph.value(node.inputs[0]).shape.rank()) {}

  /// Does it compute each row of its outputs from the same row of its inputs only?
  bool keeps_rows_apart() const {
    if (node_.op->name == "DivSqrtDim") return only_first_has_rows() && rank_ > 1;  // it divides by the length of the last axis
    if (is_one_of(kRowWise, node_) || node_.op->is_row_wise)
      return only_first_has_rows() && !(is_about_axis<BatchNormAttributes>(0));
    if (is_one_of(kElementWise, node_)) return true;
    if (std::holds_alternative<BinaryAttributes>(node_.attributes)) return rows_align();
    if (std::holds_alternative<ConcatAttributes>(node_.attributes)) return !is_about_axis<ConcatAttributes>(0);
    if (std::holds_alternative<SplitAttributes>(node_.attributes)) return !is_about_axis<SplitAttributes>(0);
    if (const auto* softmax = std::get_if<SoftmaxAttributes>(&node_.attributes))
      return !softmax->use_length && (softmax->flatten_rest || !is_about_axis<SoftmaxAttributes>(0));
    if (const auto* transpose = std::get_if<TransposeAttributes>(&node_.attributes))
      return !transpose->axes.empty() && from_front(transpose->axes[0], rank_) == 0;
    if (const auto* swap = std::get_if<SwapAxesAttributes>(&node_.attributes))
      return from_front(swap->first, rank_) != 0 && from_front(swap->second, rank_) != 0;
    if (const auto* slice = std::get_if<SliceAttributes>(&node_.attributes))
      return std::ranges::none_of(slice->ranges, [&](const SliceRange& range) { return from_front(range.axis, rank_) == 0; });
    if (const auto* pad = std::get_if<PadAttributes>(&node_.attributes))
      return pad->widths.size() >= 2 && pad->widths[0] == 0 && pad->widths[1] == 0;
    if (const auto* reduce = std::get_if<ReduceAttributes>(&node_.attributes)) {
      const bool lists_rows = std::ranges::any_of(reduce->axes, [&](std::int64_t axis) { return from_front(axis, rank_) == 0; });
      return !reduce->axes.empty() && lists_rows == reduce->exclude;
    }
    return false;  // an operator that is not known to keep rows apart
  }

 private:
  bool has_rows(ValueId id) const { return has_rows_[static_cast<std::size_t>(id)]; }
  bool only_first_has_rows() const {
    return has_rows(node_.inputs[0]) &&
           std::none_of(node_.inputs.begin() + 1, node_.inputs.end(), [this](ValueId id) { return has_rows(id); });
  }
  // Broadcasting aligns the last dimensions. If an input has fewer dimensions than the result, its batch would be another axis.
  bool rows_align() const {
    const int rank = graph_.value(node_.outputs[0]).shape.rank();
    return std::ranges::all_of(node_.inputs, [&](ValueId id) { return !has_rows(id) || graph_.value(id).shape.rank() == rank; });
  }
  template <typename WithAxis>
  bool is_about_axis(std::int64_t axis) const {
    const auto* attributes = std::get_if<WithAxis>(&node_.attributes);
    return attributes != nullptr && from_front(attributes->axis, rank_) == axis;
  }

  const Graph& graph_;
  const Node& node_;
  const std::vector<bool>& has_rows_;
  int rank_;
};

// A large prime: no product of a model's own sizes is a multiple of it by chance.
constexpr std::int64_t kPrimeBatch = 10007;

// `inputs` have sizes that the model accepts; only their batch is changed.
Status check_rows_stay_apart(const char* key, Graph graph, std::vector<TensorSpec> inputs,
                             const std::vector<std::size_t>& batched_inputs) {
  std::vector<bool> has_rows(graph.values.size());
  for (const std::size_t i : batched_inputs) {
    inputs[i].shape[0] = kPrimeBatch;
    has_rows[static_cast<std::size_t>(graph.inputs[i])] = true;
  }
  if (const Status inferred = infer(graph, inputs); !inferred.ok())
    return inferred.with_context(format("'{}': checked with a batch of {}", key, kPrimeBatch));
  has_rows.resize(graph.values.size());  // infer() may have converted constants
  for (const Node& node : graph.nodes) {
    const auto is_batched = [&](ValueId id) { return static_cast<bool>(has_rows[static_cast<std::size_t>(id)]); };
    if (std::ranges::none_of(node.inputs, is_batched)) continue;
    bool keeps_rows = RowRule(graph, node, has_rows).keeps_rows_apart();
    for (const ValueId id : node.outputs) {
      const Shape& shape = graph.value(id).shape;
      const bool follows = shape.rank() > 0 && shape[0] % kPrimeBatch == 0;
      has_rows[static_cast<std::size_t>(id)] = follows;
      // BatchNorm's hidden outputs are its moving statistics, which do not depend on the data.
      if (!follows && node.op->name != "BatchNorm") keeps_rows = false;
    }
    if (!keeps_rows)
      return unimplemented("'{}': {} may mix the rows of a batch, so an answer could depend on the rows beside it", key,
                           describe(node));
  }
  for (const GraphOutput& output : graph.outputs) {
    if (!has_rows[static_cast<std::size_t>(output.value)])
      return unimplemented("'{}': output '{}' does not follow the batch", key, output.name);
  }
  return {};
}

/// By how much an output grows with each element of the padded dimension.
Result<std::int64_t> length_per_element(const std::string& output, const Shape& shape, int dim, std::int64_t padded_size) {
  if (dim < shape.rank() && shape[dim] % padded_size == 0) return shape[dim] / padded_size;
  return invalid_argument("'buckets': dimension {} of output '{}' of shape {} does not follow the padded size {}", dim, output,
                          shape.to_string(), padded_size);
}

// Reports the error when the model is loaded, and not at the first request of another size.
Status check_crop(const Buckets& buckets, const Graph& graph, std::vector<TensorSpec> inputs,
                  const std::vector<std::size_t>& padded_inputs) {
  std::map<std::string, std::int64_t> lengths;
  for (const std::int64_t size : buckets.sizes) {
    for (const std::size_t i : padded_inputs) inputs[i].shape[buckets.dim] = size;
    Graph padded = graph;
    if (const Status inferred = infer(padded, inputs); !inferred.ok())
      return inferred.with_context(
          format("'buckets': dimension {} of input '{}' padded to {}", buckets.dim, buckets.input, size));
    for (const GraphOutput& output : graph.outputs) {
      const auto crop = buckets.crop.find(output.name);
      if (crop == buckets.crop.end()) continue;
      const Shape& shape = padded.value(output.value).shape;
      SHOAL_ASSIGN_OR_RETURN(const std::int64_t length, length_per_element(output.name, shape, crop->second, size));
      if (lengths.emplace(output.name, length).first->second == length) continue;
      return invalid_argument("'buckets': dimension {} of output '{}' does not grow with dimension {} of input '{}'",
                              crop->second, output.name, buckets.dim, buckets.input);
    }
  }
  return {};
}

}  // namespace

std::vector<std::int64_t> joined_sizes(int max_batch, const std::vector<Buckets>& buckets) {
  std::vector<std::int64_t> offered, sizes;
  for (const Buckets& each : buckets) {
    if (each.input.empty()) offered = each.sizes;
  }
  if (offered.empty()) {
    for (std::int64_t size = 2; size < max_batch; size *= 2) offered.push_back(size);
  }
  offered.push_back(max_batch);
  for (const std::int64_t size : offered) {
    if (size > 1 && (sizes.empty() || (size > sizes.back() && sizes.back() < max_batch))) sizes.push_back(size);
  }
  return max_batch > 1 ? sizes : std::vector<std::int64_t>();
}

Status check_joinable(const Graph& graph, const std::vector<TensorSpec>& declared, const std::vector<TensorSpec>& concrete) {
  std::vector<std::size_t> all;
  for (const TensorSpec& input : declared) {
    if (input.shape.rank() == 0 || input.shape[0] >= 0)
      return invalid_argument("'max_batch': input '{}' is {}: requests are joined along a first dimension of -1", input.name,
                              input.shape.to_string());
    all.push_back(all.size());
  }
  return check_rows_stay_apart("max_batch", graph, concrete, all);
}

Result<Padding> Padding::make(std::vector<Buckets> buckets, const Graph& graph, const std::vector<TensorSpec>& inputs,
                              const std::vector<TensorSpec>& some_sizes) {
  Padding padding;
  for (Buckets& each : buckets) {
    Rule rule;
    const bool is_batch = each.input.empty();
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const bool is_meant = is_batch || inputs[i].name == each.input;
      const bool is_open = each.dim < inputs[i].shape.rank() && inputs[i].shape[each.dim] < 0;
      if (is_meant && is_open) rule.inputs.push_back(i);
    }
    if (rule.inputs.empty()) {
      return invalid_argument("'buckets': {} with an open dimension {}",
                              is_batch ? std::string("the model has no input") : "there is no input '" + each.input + "'",
                              each.dim);
    }
    for (const GraphOutput& output : graph.outputs) {
      if (is_batch) each.crop[output.name] = 0;
    }
    for (const auto& [name, dim] : each.crop) {
      const auto has_name = [&name = name](const GraphOutput& output) { return output.name == name; };
      if (std::ranges::none_of(graph.outputs, has_name))
        return invalid_argument("'buckets': 'crop' names an output '{}' that the model does not have", name);
    }
    if (is_batch) SHOAL_RETURN_IF_ERROR(check_rows_stay_apart("buckets", graph, some_sizes, rule.inputs));
    if (!is_batch) SHOAL_RETURN_IF_ERROR(check_crop(each, graph, some_sizes, rule.inputs));
    rule.buckets = std::move(each);
    padding.rules_.push_back(std::move(rule));
  }
  return padding;
}

std::vector<TensorSpec> Padding::pad(std::vector<TensorSpec> inputs) const {
  for (const auto& [buckets, affected] : rules_) {
    const auto size_of = [&, dim = buckets.dim](std::size_t i) {
      return dim < inputs[i].shape.rank() ? inputs[i].shape[dim] : std::int64_t{0};
    };
    const std::int64_t size = size_of(affected.front());
    const auto bucket = std::ranges::lower_bound(buckets.sizes, size);
    // Inputs that do not agree are not padded. An empty input gives an empty output.
    const bool agree = std::ranges::all_of(affected, [&](std::size_t i) { return size_of(i) == size; });
    if (size <= 0 || !agree || bucket == buckets.sizes.end()) continue;
    for (const std::size_t i : affected) inputs[i].shape[buckets.dim] = *bucket;
  }
  return inputs;
}

Result<std::shared_ptr<const Program>> Padding::fit(std::shared_ptr<const PlannedProgram> program,
                                                    const std::vector<TensorSpec>& inputs) const {
  std::vector<TensorSpec> outputs = program->outputs();
  bool is_padded = false;
  for (const auto& [buckets, affected] : rules_) {
    const std::int64_t size = inputs[affected.front()].shape[buckets.dim];
    const std::int64_t bucket = program->inputs()[affected.front()].shape[buckets.dim];
    if (size == bucket) continue;
    is_padded = true;
    for (TensorSpec& output : outputs) {
      const auto crop = buckets.crop.find(output.name);
      if (crop == buckets.crop.end()) continue;
      SHOAL_ASSIGN_OR_RETURN(const std::int64_t length, length_per_element(output.name, output.shape, crop->second, bucket));
      output.shape[crop->second] = length * size;
    }
  }
  if (!is_padded) return std::shared_ptr<const Program>(std::move(program));
  return std::shared_ptr<const Program>(std::make_shared<PaddedProgram>(std::move(program), inputs, std::move(outputs)));
}

}  // namespace shoal::worker

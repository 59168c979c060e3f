#include "worker/exec/padding.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>

#include "shm/base/errors.hpp"
#include "worker/exec/context.hpp"
#include "worker/graph/operators.hpp"

namespace shoal::worker {
namespace {

// Copies the corner that both have in common.
void copy_corner(const TensorView& src, TensorView& dst) {
  int last = src.shape.rank() - 1;  // the last dimension in which they differ: what lies within is copied at once
  while (last > 0 && src.shape[last] == dst.shape[last]) --last;
  std::size_t inner_bytes = dtype_size_bytes(src.dtype);
  for (int axis = last + 1; axis < src.shape.rank(); ++axis) inner_bytes *= static_cast<std::size_t>(src.shape[axis]);
  const auto common = [&](int axis) { return std::min(src.shape[axis], dst.shape[axis]); };
  const std::size_t chunk_bytes = static_cast<std::size_t>(common(last)) * inner_bytes;
  std::vector<std::int64_t> index(static_cast<std::size_t>(last), 0);
  const auto offset = [&](const Shape& shape) {
    std::int64_t row = 0;
    for (int axis = 0; axis < last; ++axis) row = row * shape[axis] + index[static_cast<std::size_t>(axis)];
    return static_cast<std::size_t>(row * shape[last]) * inner_bytes;
  };
  while (true) {
    std::memcpy(dst.data + offset(dst.shape), src.data + offset(src.shape), chunk_bytes);
    int axis = last - 1;
    while (axis >= 0 && ++index[static_cast<std::size_t>(axis)] == common(axis)) index[static_cast<std::size_t>(axis--)] = 0;
    if (axis < 0) return;
  }
}

/// Runs another Program on copies of its tensors, larger by zeros.
class PaddedProgram final : public Program {
 public:
  PaddedProgram(std::shared_ptr<const Program> padded, std::vector<TensorSpec> inputs, std::vector<TensorSpec> outputs)
      : padded_(std::move(padded)) {
    inputs_ = std::move(inputs);
    outputs_ = std::move(outputs);
    arena_bytes_ = padded_->arena_bytes();
    step_count_ = padded_->step_count();
  }
  std::size_t resident_bytes() const override { return padded_->resident_bytes(); }

  Status run(Context& context, std::span<const TensorView> src, std::span<TensorView> dst) const override {
    SHOAL_RETURN_IF_ERROR(check("input", inputs_, src));
    SHOAL_RETURN_IF_ERROR(check("output", outputs_, dst));
    std::vector<TensorView> larger_src = enlarge(padded_->inputs(), src, context.state->padded_inputs);
    std::vector<TensorView> larger_dst = enlarge(padded_->outputs(), dst, context.state->padded_outputs);
    for (std::size_t i = 0; i < src.size(); ++i) {
      if (larger_src[i].data == src[i].data) continue;
      std::memset(larger_src[i].data, 0, larger_src[i].size_bytes());
      if (src[i].element_count() > 0) copy_corner(src[i], larger_src[i]);
    }
    SHOAL_RETURN_IF_ERROR(padded_->run(context, larger_src, larger_dst));
    for (std::size_t i = 0; i < dst.size(); ++i) {
      if (larger_dst[i].data != dst[i].data && dst[i].element_count() > 0) copy_corner(larger_dst[i], dst[i]);
    }
    return {};
  }

 private:
  static Status check(const char* what, const std::vector<TensorSpec>& specs, std::span<const TensorView> views) {
    if (views.size() != specs.size())
      return invalid_argument("{} {}s were given, the program has {}", views.size(), what, specs.size());
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (views[i].dtype == specs[i].dtype && views[i].shape == specs[i].shape) continue;
      return invalid_argument("{} '{}' is {}, the program is for {}", what, specs[i].name, views[i].shape.to_string(),
                              specs[i].shape.to_string());
    }
    return {};
  }

  // The tensors themselves where they have the padded shape, else room of the Context's.
  static std::vector<TensorView> enlarge(const std::vector<TensorSpec>& specs, std::span<const TensorView> tensors,
                                         std::vector<AlignedBytes>& room) {
    room.resize(std::max(room.size(), specs.size()));
    std::vector<TensorView> larger;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      TensorView& view = larger.emplace_back(TensorView{specs[i].dtype, specs[i].shape, tensors[i].data});
      if (specs[i].shape == tensors[i].shape) continue;
      if (room[i].size_bytes < view.size_bytes()) room[i] = AlignedBytes::allocate(view.size_bytes());
      view.data = room[i].data.get();
    }
    return larger;
  }

  std::shared_ptr<const Program> padded_;
};

std::int64_t from_front(std::int64_t axis, int rank) { return axis < 0 ? axis + rank : axis; }

// Operators that compute row i of dimension 0 from row i of their first input, and whose other inputs are weights.
constexpr std::string_view kRowWise[] = {"Convolution",
                                         "FullyConnected",
                                         "BatchNorm",
                                         "LeakyReLU",
                                         "Activation",
                                         "Pooling",
                                         "LRN",
                                         "L2Normalization",
                                         "AdaptiveAvgPooling",
                                         "HardSigmoid",
                                         "Unary",
                                         "DivSqrtDim",
                                         "Scalar",
                                         "Identity",
                                         "Clip",
                                         "Flatten",
                                         "Cast"};
// Those that compute it from row i of all their inputs. A Reshape keeps the order of elements, so rows stay where they are if
// there are still as many; that is checked for every operator.
constexpr std::string_view kElementWise[] = {"AddN", "AmpMulticast", "Reshape"};

bool is_one_of(std::span<const std::string_view> names, const Node& node) {
  return std::ranges::find(names, node.op->name) != names.end();
}

/// What a batch is to a node. Shapes are inferred for a batch of kPrimeBatch.
class RowRule {
 public:
  RowRule(const Graph& graph, const Node& node, const std::vector<bool>& has_rows)
      : graph_(graph), node_(node), has_rows_(has_rows), rank_(graph.value(node.inputs[0]).shape.rank()) {}

  /// Are the rows of its outputs made of the same rows of its inputs?
  bool keeps_rows_apart() const {
    if (is_one_of(kRowWise, node_)) return only_first_has_rows() && !(is_about_axis<BatchNormAttributes>(0));
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
    return false;  // not looked at yet
  }

 private:
  bool has_rows(ValueId id) const { return has_rows_[static_cast<std::size_t>(id)]; }
  bool only_first_has_rows() const {
    return has_rows(node_.inputs[0]) &&
           std::none_of(node_.inputs.begin() + 1, node_.inputs.end(), [this](ValueId id) { return has_rows(id); });
  }
  // Broadcasting aligns the last dimensions: a batch of fewer dimensions than the result would be no batch any more.
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

// A batch that no product of a model's own sizes is a multiple of by chance.
constexpr std::int64_t kPrimeBatch = 10007;

Status check_rows_stay_apart(Graph graph, std::vector<TensorSpec> inputs, const std::vector<std::size_t>& batched_inputs) {
  std::vector<bool> has_rows(graph.values.size());
  for (TensorSpec& input : inputs) {
    for (int axis = 0; axis < input.shape.rank(); ++axis) input.shape[axis] = std::max<std::int64_t>(input.shape[axis], 1);
  }
  for (const std::size_t i : batched_inputs) {
    inputs[i].shape[0] = kPrimeBatch;
    has_rows[static_cast<std::size_t>(graph.inputs[i])] = true;
  }
  SHOAL_RETURN_IF_ERROR(infer(graph, inputs));
  has_rows.resize(graph.values.size());  // infer() may have converted constants
  for (const Node& node : graph.nodes) {
    const auto is_batched = [&](ValueId id) { return static_cast<bool>(has_rows[static_cast<std::size_t>(id)]); };
    if (std::ranges::none_of(node.inputs, is_batched)) continue;
    bool keeps_rows = RowRule(graph, node, has_rows).keeps_rows_apart();
    for (const ValueId id : node.outputs) {
      const Shape& shape = graph.value(id).shape;
      const bool follows = shape.rank() > 0 && shape[0] % kPrimeBatch == 0;
      has_rows[static_cast<std::size_t>(id)] = follows;
      // BatchNorm's hidden outputs are its moving statistics, whatever comes in.
      if (!follows && node.op->name != "BatchNorm") keeps_rows = false;
    }
    if (!keeps_rows)
      return unimplemented("'buckets': {} may mix the rows of a batch, so a padded one could change the answer", describe(node));
  }
  for (const GraphOutput& output : graph.outputs) {
    if (!has_rows[static_cast<std::size_t>(output.value)])
      return unimplemented("'buckets': output '{}' does not follow the batch", output.name);
  }
  return {};
}

}  // namespace

Result<Padding> Padding::make(std::vector<Buckets> buckets, const Graph& graph, const std::vector<TensorSpec>& inputs) {
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
    if (is_batch) SHOAL_RETURN_IF_ERROR(check_rows_stay_apart(graph, inputs, rule.inputs));
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
    // Inputs that do not agree are no batch, and of nothing nothing is made.
    const bool agree = std::ranges::all_of(affected, [&](std::size_t i) { return size_of(i) == size; });
    if (size <= 0 || !agree || bucket == buckets.sizes.end()) continue;
    for (const std::size_t i : affected) inputs[i].shape[buckets.dim] = *bucket;
  }
  return inputs;
}

Result<std::shared_ptr<const Program>> Padding::fit(std::shared_ptr<const Program> program,
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
      const bool follows = crop->second < output.shape.rank() && output.shape[crop->second] % bucket == 0;
      if (!follows) {
        return invalid_argument("'buckets': dimension {} of output '{}' of shape {} does not follow the padded size {}",
                                crop->second, output.name, output.shape.to_string(), bucket);
      }
      output.shape[crop->second] = output.shape[crop->second] / bucket * size;
    }
  }
  if (!is_padded) return program;
  return std::shared_ptr<const Program>(std::make_shared<PaddedProgram>(std::move(program), inputs, std::move(outputs)));
}

}  // namespace shoal::worker

#include "worker/exec/padding.hpp"

#include <algorithm>
#include <map>
#include <span>
#include <string_view>

#include "shm/base/errors.hpp"
#include "worker/graph/operators.hpp"
#include "worker/passes/infer.hpp"

namespace shoal::worker {
namespace {

/// Runs a larger program on smaller tensors, which fill a corner of the program's tensors.
class PaddedProgram final : public Program {
 public:
  PaddedProgram(std::shared_ptr<const PlannedProgram> padded, std::vector<TensorSpec> inputs, std::vector<TensorSpec> outputs,
                std::vector<std::size_t> places)
      : padded_(std::move(padded)), places_(std::move(places)) {
    inputs_ = std::move(inputs);
    outputs_ = std::move(outputs);
    arena_bytes_ = padded_->arena_bytes() + room_bytes(inputs_, padded_->inputs()) + room_bytes(outputs_, padded_->outputs());
    step_count_ = padded_->step_count();
    time_varies_ = padded_->time_varies();
  }
  std::size_t resident_bytes() const override { return padded_->resident_bytes(); }
  bool has_code() const override { return padded_->has_code(); }

  Status run(Context& context, std::span<const TensorView> src, std::span<TensorView> dst) const override {
    SHOAL_RETURN_IF_ERROR(check("input", inputs_, src));
    SHOAL_RETURN_IF_ERROR(check("output", outputs_, dst));
    return padded_->run_within(context, src, dst, places_);
  }

 private:
  // Memory that a Context needs beside its arena.
  static std::size_t room_bytes(const std::vector<TensorSpec>& given, const std::vector<TensorSpec>& padded) {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < given.size(); ++i) bytes += given[i].shape == padded[i].shape ? 0 : size_bytes_of(padded[i]);
    return bytes;
  }

  std::shared_ptr<const PlannedProgram> padded_;
  std::vector<std::size_t> places_;  ///< inputs that are padded with -1
};

/// A graph whose sizes are expressions of one size, that of dimension `dim` of some inputs.
struct OpenGraph {
  Graph graph;
  Dim size;

  /// `inputs` have sizes that the model accepts; only the open one is changed.
  static Result<OpenGraph> make(const Graph& graph, const std::vector<TensorSpec>& inputs,
                                const std::vector<std::size_t>& open_inputs, int dim) {
    const auto table = std::make_shared<DimTable>();
    OpenGraph open{graph, table->symbol("size", {1, kMaxElements})};
    std::vector<SizedInput> sized;
    for (const TensorSpec& input : inputs) sized.push_back({input.name, input.dtype, input.shape});
    for (const std::size_t i : open_inputs) sized[i].shape[dim] = open.size;
    SHOAL_RETURN_IF_ERROR(infer_sizes(open.graph, table, sized));
    return open;
  }
  /// How many elements dimension `dim` of the value has for each element of the open size; none: it does not grow in this way.
  std::optional<std::int64_t> length_per_element(ValueId id, int dim) const {
    const SymbolicShape sizes = graph.value(id).sizes();
    const auto length = dim < sizes.rank() ? exact_quotient(sizes[dim], size) : std::nullopt;
    return length && length->is_number() && length->number() > 0 ? std::optional(length->number()) : std::nullopt;
  }
};

Status check_rows_stay_apart(const char* key, const OpenGraph& batch, const std::vector<std::size_t>& batched_inputs) {
  const Graph& graph = batch.graph;
  std::vector<bool> has_rows(graph.values.size());
  for (const std::size_t i : batched_inputs) has_rows[static_cast<std::size_t>(graph.inputs[i])] = true;
  for (const Node& node : graph.nodes) {
    bool reads_rows = false;
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      reads_rows |= has_rows[static_cast<std::size_t>(node.inputs[i])] && node.op->facts.reads_elements_of(i);
    const auto has_known_size = [&](ValueId id) { return graph.value(id).expressions == nullptr; };
    if (!reads_rows && std::ranges::all_of(node.outputs, has_known_size)) continue;
    const RowRule rule = node.op->facts.rows;
    bool keeps_rows = rule != nullptr && rule({graph, node, has_rows});
    const auto constant = static_cast<std::size_t>(node.op->first_constant_output);  // kNone: beyond all outputs
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      const bool follows = batch.length_per_element(node.outputs[i], 0).has_value();
      has_rows[static_cast<std::size_t>(node.outputs[i])] = follows;
      if (!follows && i < constant) keeps_rows = false;
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

/// The graph for a batch of any size.
Result<OpenGraph> open_batch(const char* key, const Graph& graph, const std::vector<TensorSpec>& inputs,
                             const std::vector<std::size_t>& batched_inputs) {
  auto open = OpenGraph::make(graph, inputs, batched_inputs, 0);
  if (!open.ok()) return open.status().with_context(format("'{}': checked with a batch of any size", key));
  return open;
}

/// Reports the error when the model is loaded, and not at the first request of another size.
Status check_sizes(const Buckets& buckets, const Graph& graph, std::vector<TensorSpec> inputs,
                   const std::vector<std::size_t>& padded_inputs) {
  for (const std::int64_t size : buckets.sizes) {
    for (const std::size_t i : padded_inputs) inputs[i].shape[buckets.dim] = size;
    Graph padded = graph;
    if (const Status inferred = infer(padded, inputs); !inferred.ok())
      return inferred.with_context(
          format("'buckets': dimension {} of input '{}' padded to {}", buckets.dim, buckets.input, size));
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
    if (input.shape.rank() < 1 || input.shape[0] >= 0)
      return invalid_argument("'max_batch': input '{}' is {}: requests are joined along a first dimension of -1", input.name,
                              input.shape.to_string());
    all.push_back(all.size());
  }
  SHOAL_ASSIGN_OR_RETURN(const OpenGraph batch, open_batch("max_batch", graph, concrete, all));
  return check_rows_stay_apart("max_batch", batch, all);
}

Result<Padding> Padding::make(std::vector<Buckets> buckets, const Graph& graph, const std::vector<TensorSpec>& inputs,
                              const std::vector<TensorSpec>& some_sizes) {
  Padding padding;
  for (Buckets& each : buckets) {
    Rule rule;
    const bool is_batch = each.input.empty();
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const bool is_meant = is_batch || inputs[i].name == each.input || std::ranges::count(each.with, inputs[i].name) > 0;
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
    if (!is_batch) SHOAL_RETURN_IF_ERROR(check_sizes(each, graph, some_sizes, rule.inputs));
    SHOAL_ASSIGN_OR_RETURN(const OpenGraph open, is_batch ? open_batch("buckets", graph, some_sizes, rule.inputs)
                                                          : OpenGraph::make(graph, some_sizes, rule.inputs, each.dim));
    if (is_batch) SHOAL_RETURN_IF_ERROR(check_rows_stay_apart("buckets", open, rule.inputs));
    for (const GraphOutput& output : open.graph.outputs) {
      const auto crop = each.crop.find(output.name);
      if (crop == each.crop.end()) continue;
      const auto length = open.length_per_element(output.value, crop->second);
      if (!length) {
        return invalid_argument(
            "'buckets': dimension {} of output '{}' of shape {} does not grow with dimension {} of input '{}'", crop->second,
            output.name, open.graph.value(output.value).sizes().to_string(), each.dim, each.input);
      }
      rule.lengths[output.name] = *length;
    }
    rule.buckets = std::move(each);
    padding.rules_.push_back(std::move(rule));
  }
  return padding;
}

std::vector<TensorSpec> Padding::pad(std::vector<TensorSpec> inputs) const {
  for (const auto& [buckets, affected, lengths] : rules_) {
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

std::shared_ptr<const Program> Padding::fit(std::shared_ptr<const PlannedProgram> program,
                                            const std::vector<TensorSpec>& inputs) const {
  std::vector<TensorSpec> outputs = program->outputs();
  std::vector<std::size_t> places;
  bool is_padded = false;
  for (const auto& [buckets, affected, lengths] : rules_) {
    const std::int64_t size = inputs[affected.front()].shape[buckets.dim];
    if (size == program->inputs()[affected.front()].shape[buckets.dim]) continue;
    is_padded = true;
    const auto holds_places = [&, &with = buckets.with](std::size_t i) { return std::ranges::count(with, inputs[i].name) > 0; };
    std::ranges::copy_if(affected, std::back_inserter(places), holds_places);
    for (TensorSpec& output : outputs) {
      const auto length = lengths.find(output.name);
      if (length != lengths.end()) output.shape[buckets.crop.at(output.name)] = length->second * size;
    }
  }
  if (!is_padded) return program;
  return std::make_shared<PaddedProgram>(std::move(program), inputs, std::move(outputs), std::move(places));
}

}  // namespace shoal::worker

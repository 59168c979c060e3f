#include "worker/exec/cpu/batch_split.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string_view>
#include <vector>

#include "worker/exec/graph_plan.hpp"
#include "worker/graph/operators.hpp"
#include "worker/ops/activation.hpp"
#include "worker/ops/convolution.hpp"
#include "worker/ops/fully_connected.hpp"
#include "worker/ops/movement.hpp"
#include "worker/ops/normalization.hpp"
#include "worker/ops/pooling.hpp"
#include "worker/ops/reshape.hpp"

namespace shoal::worker::cpu {
namespace {

constexpr std::int64_t kMostImages = 16;  // every image has steps of its own
constexpr NodeId kFewestNodes = 4;        // fewer nodes are not worth the additional steps

/// One part for each image, one behind the other.
bool is_batch_of(std::int64_t images, const Value& value) {
  return value.dtype == DType::kFloat32 && value.shape.rank() >= 3 && value.shape[0] == images && value.shape.element_count() > 0;
}

bool is_first(std::int64_t axis, const Shape& shape) { return axis == 0 || axis == -shape.rank(); }

bool is_one_of(const Operator* op, std::initializer_list<const Operator*> operators) {
  return std::find(operators.begin(), operators.end(), op) != operators.end();
}

/// Its inputs behind the first are parameters and not data.
bool takes_parameters(const Operator* op) { return is_one_of(op, {&ops::kConvolution, &ops::kBatchNorm, &ops::kLeakyRelu}); }

class Search {
 public:
  Search(const Graph& graph, std::size_t cache_bytes) : graph_(graph), cache_bytes_(cache_bytes) {
    if (!graph.inputs.empty() && value(graph.inputs[0]).shape.rank() > 0) images_ = value(graph.inputs[0]).shape[0];
  }

  BatchSplit run() {
    const bool fits = images_ > 1 && images_ <= kMostImages &&
                      std::all_of(graph_.inputs.begin(), graph_.inputs.end(), [&](ValueId id) { return is_batch(id); });
    if (!fits) return {};
    find_last_reads();
    const std::vector<int> passing = count_passing();
    NodeId cut = 0;
    std::size_t largest_bytes = 0;
    bool pays = false;
    const auto count = static_cast<NodeId>(graph_.nodes.size());
    for (NodeId id = 0; id < count && is_worth_it(node(id)); ++id) {
      largest_bytes = std::max(largest_bytes, batch_bytes(node(id)));
      pays = pays || is_bound_by_memory(node(id));
      if (id + 1 < count && starts_a_step(node(id + 1)) && passing[static_cast<std::size_t>(id) + 1] == 1) cut = id + 1;
    }
    if (cut < kFewestNodes || largest_bytes <= cache_bytes_ || !pays) return {};
    return {cut, images_};
  }

 private:
  const Node& node(NodeId id) const { return graph_.nodes[static_cast<std::size_t>(id)]; }
  const Value& value(ValueId id) const { return graph_.value(id); }
  bool is_batch(ValueId id) const { return is_batch_of(images_, value(id)); }
  /// A later node reads it, or it is an output of the graph.
  bool is_read(ValueId id) const { return last_read_[static_cast<std::size_t>(id)] != kNoNode; }

  /// Each image of the results depends on that image of the inputs and on constants only. The statistics of a BatchNorm are a
  /// result without images.
  bool is_per_image(const Node& node) const {
    const bool makes_images = std::all_of(node.outputs.begin(), node.outputs.end(),
                                          [&](ValueId id) { return is_batch(id) || (id != node.outputs[0] && !is_read(id)); });
    if (!makes_images) return false;
    if (const auto* const concat = node.attributes.get_if<ConcatAttributes>()) {
      const Shape& whole = value(node.outputs[0]).shape;
      if (is_first(concat->axis_of(whole.rank()), whole)) return false;
    }
    if (const auto* const norm = node.attributes.get_if<BatchNormAttributes>()) {
      if (is_first(norm->axis, value(node.inputs[0]).shape)) return false;
    }
    const bool is_known = node.op->facts.is_elementwise == Fact::kYes ||
                          is_one_of(node.op, {&ops::kConvolution, &ops::kBatchNorm, &ops::kPooling, &ops::kAdaptiveAvgPooling,
                                              &ops::kConcat, &ops::kIdentity, &ops::kLrn});
    if (!is_known) return false;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (value(node.inputs[i]).constant ? !is_parameter(node, i) : !is_images(node, i)) return false;
    }
    return true;
  }

  /// The input is one part for each image. A broadcast operand of a lower rank than the result's has another axis where the batch
  /// would be. Weights that are computed or come with the request may have as many parts by chance.
  bool is_images(const Node& node, std::size_t input) const {
    const bool is_data = input == 0 || !takes_parameters(node.op);
    return is_data && is_batch(node.inputs[input]) &&
           value(node.inputs[input]).shape.rank() == value(node.outputs[0]).shape.rank();
  }

  /// The constant is the same for every image: it has no batch axis of its own.
  bool is_parameter(const Node& node, std::size_t input) const {
    if (input == 0 || !takes_parameters(node.op)) return false;
    if (node.op != &ops::kLeakyRelu) return true;
    const auto slopes = slopes_along(value(node.inputs[input]).shape, value(node.inputs[0]).shape);
    return slopes && (*slopes)[0] == 1;
  }

  std::size_t batch_bytes(const Node& node) const {
    return size_bytes_of(value(node.inputs[0])) + size_bytes_of(value(node.outputs[0]));
  }

  bool is_worth_it(const Node& node) const {
    if (!is_per_image(node)) return false;
    if (node.op != &ops::kConvolution) return true;
    return size_bytes_of(value(node.inputs[1])) * static_cast<std::size_t>(images_) < batch_bytes(node);
  }

  /// It computes little from what it reads. In other nodes the arithmetic takes longer than the memory, so splitting gains
  /// nothing.
  static bool is_bound_by_memory(const Node& node) {
    const auto* const convolution = node.attributes.get_if<ConvolutionAttributes>();
    return node.op == &ops::kConcat || (convolution != nullptr && convolution->num_group == convolution->num_filter);
  }

  /// No earlier node absorbs this node.
  static bool starts_a_step(const Node& node) {
    return is_one_of(node.op, {&ops::kConvolution, &ops::kPooling, &ops::kFullyConnected, &ops::kFlatten});
  }

  void find_last_reads() {
    last_read_.assign(graph_.values.size(), kNoNode);
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      for (const ValueId input : graph_.nodes[id].inputs) last_read_[static_cast<std::size_t>(input)] = static_cast<NodeId>(id);
    }
    for (const GraphOutput& output : graph_.outputs)
      last_read_[static_cast<std::size_t>(output.value)] = std::numeric_limits<NodeId>::max();
  }

  /// For each node: how many values of earlier nodes it and later nodes read.
  std::vector<int> count_passing() const {
    const std::size_t count = graph_.nodes.size();
    std::vector<int> passing(count + 1);
    for (std::size_t id = 0; id < count; ++id) {
      for (const ValueId output : graph_.nodes[id].outputs) {
        const NodeId last = last_read_[static_cast<std::size_t>(output)];
        if (last <= static_cast<NodeId>(id)) continue;
        ++passing[id + 1];
        if (static_cast<std::size_t>(last) < count) --passing[static_cast<std::size_t>(last) + 1];
      }
    }
    std::partial_sum(passing.begin(), passing.end(), passing.begin());
    return passing;
  }

  const Graph& graph_;
  const std::size_t cache_bytes_;
  std::int64_t images_ = 1;
  std::vector<NodeId> last_read_;
};

}  // namespace

BatchSplit find_batch_split(const Graph& graph, std::size_t cache_bytes) { return Search(graph, cache_bytes).run(); }

Graph one_image(const Graph& graph, const BatchSplit& split) {
  Graph one = graph;
  one.nodes.resize(static_cast<std::size_t>(split.cut));
  one.outputs.clear();
  std::vector<bool> made(graph.values.size()), passes(graph.values.size());
  for (const Node& node : one.nodes) {
    for (const ValueId id : node.outputs) made[static_cast<std::size_t>(id)] = true;
  }
  const auto pass = [&](ValueId id) {
    if (made[static_cast<std::size_t>(id)]) passes[static_cast<std::size_t>(id)] = true;
  };
  for (std::size_t id = one.nodes.size(); id < graph.nodes.size(); ++id) {
    for (const ValueId input : graph.nodes[id].inputs) pass(input);
  }
  for (const GraphOutput& output : graph.outputs) pass(output.value);
  for (std::size_t id = 0; id < graph.values.size(); ++id) {
    if (passes[id]) one.outputs.push_back({graph.values[id].name, static_cast<ValueId>(id)});
    if (!one.values[id].constant && is_batch_of(split.images, one.values[id])) one.values[id].shape[0] = 1;
  }
  return one;
}

}  // namespace shoal::worker::cpu

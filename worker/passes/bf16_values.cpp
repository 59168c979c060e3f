#include "worker/passes/bf16_values.hpp"

#include <algorithm>
#include <cstddef>

#include "worker/graph/operators.hpp"
#include "worker/ops/convolution.hpp"
#include "worker/ops/fully_connected.hpp"

namespace shoal::worker {
namespace {

/// Sums of products: they are fast in bf16, and sum in float32.
bool multiplies(const Node& node) { return node.op == &ops::kConvolution || node.op == &ops::kFullyConnected; }

bool keeps_accuracy(const Node& node) { return node.op->facts.accuracy == Accuracy::kKept; }

}  // namespace

std::vector<bool> find_bf16_values(const Graph& graph) {
  const std::size_t count = graph.values.size();
  std::vector<bool> may(count), is_behind(count), is_before(count), is_read(count), is_output(count);
  const auto at = [](ValueId id) { return static_cast<std::size_t>(id); };
  for (const Node& node : graph.nodes) {
    const bool behind = multiplies(node) || std::ranges::any_of(node.inputs, [&](ValueId id) { return is_behind[at(id)]; });
    for (const ValueId id : node.outputs) {
      is_behind[at(id)] = behind;
      may[at(id)] = keeps_accuracy(node) && graph.value(id).dtype == DType::kFloat32;
    }
  }
  for (const GraphOutput& output : graph.outputs) is_output[at(output.value)] = true;
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    const auto holds = [](const std::vector<bool>& flags) {
      return [&flags](ValueId id) { return flags[static_cast<std::size_t>(id)]; };
    };
    const bool before = multiplies(*node) || std::ranges::any_of(node->outputs, holds(is_before));
    const bool is_view = node->op->facts.is_view == Fact::kYes;
    const bool reads = is_view ? std::ranges::any_of(node->outputs, holds(is_read)) : keeps_accuracy(*node);
    for (const ValueId id : node->inputs) {
      is_before[at(id)] = is_before[at(id)] || before;
      is_read[at(id)] = is_read[at(id)] || reads;
    }
    if (is_view && std::ranges::any_of(node->outputs, holds(is_output))) is_output[at(node->inputs[0])] = true;
  }
  std::vector<bool> found(count);
  for (std::size_t id = 0; id < count; ++id)
    found[id] = may[id] && is_behind[id] && is_before[id] && is_read[id] && !is_output[id];
  return found;
}

}  // namespace shoal::worker

#include "worker/passes/constant_folding.hpp"

#include <algorithm>

#include "shm/base/errors.hpp"
#include "worker/graph/aligned_bytes.hpp"
#include "worker/graph/operators.hpp"

namespace shoal::worker {
namespace {

constexpr std::uint64_t kAlwaysFolded = std::uint64_t{16} << 20;  // total bytes of results that are folded in any case
constexpr std::uint64_t kMostGrowth = 4;                          // beyond that, times the bytes of the graph's constants
// A few seconds of the oracle's kernels, and as long again for each 128 MiB of the graph's constants.
constexpr double kMostWork = 0x1p31, kMostWorkPerByte = 16;

/// What folding may still make and do, in all graphs together.
struct Left {
  std::uint64_t bytes;  ///< of results
  double work;          ///< as Work::operations
};

AlignedBytes copy_aligned(const Constant& constant) {
  AlignedBytes copy = AlignedBytes::allocate(constant.bytes.size());
  std::copy(constant.bytes.begin(), constant.bytes.end(), copy.bytes().begin());
  return copy;
}

std::vector<TensorView> views_of(const Graph& graph, const std::vector<ValueId>& ids) {
  std::vector<TensorView> views;
  for (const ValueId id : ids) views.push_back({graph.value(id).dtype, graph.value(id).shape, nullptr});
  return views;
}

/// Returns false, and changes nothing in the graph, if the results are too large or take too long, or if the node refuses its
/// values: it may be in a branch that is never taken, and is an error of the run that gets there.
Result<bool> fold_node(Graph& graph, const Node& node, Left& left) {
  std::uint64_t bytes = 0;
  for (const ValueId id : node.outputs) bytes += size_bytes_of(graph.value(id));
  std::vector<TensorView> src = views_of(graph, node.inputs), dst = views_of(graph, node.outputs);
  const double work = node.op->facts.work(node, src, dst).operations;
  if (bytes > left.bytes || work > left.work) return false;
  left.work -= work;
  std::vector<AlignedBytes> inputs;
  std::vector<std::shared_ptr<AlignedBytes>> outputs;
  for (std::size_t i = 0; i < src.size(); ++i) {
    inputs.push_back(copy_aligned(*graph.value(node.inputs[i]).constant));
    src[i].data = inputs.back().data.get();
  }
  for (std::size_t i = 0; i < dst.size(); ++i) {
    outputs.push_back(std::make_shared<AlignedBytes>(AlignedBytes::allocate(size_bytes_of(graph.value(node.outputs[i])))));
    dst[i].data = outputs.back()->data.get();
  }
  const Status status = run_oracle(node, src, dst);
  if (status.code() == StatusCode::kInvalidArgument) return false;
  SHOAL_RETURN_IF_ERROR(status);
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    Value& value = graph.value(node.outputs[i]);
    value.constant = Constant{value.dtype, value.shape, outputs[i]->bytes(), outputs[i]};
    value.producer = kNoNode;
  }
  left.bytes -= bytes;
  return true;
}

Status fold_one(Graph& graph, Left& left) {
  const auto is_constant = [&](ValueId id) { return graph.value(id).constant.has_value(); };
  std::vector<Node> kept;
  for (Node& node : graph.nodes) {
    const bool reads_constants = node.bodies.empty() && std::ranges::all_of(node.inputs, is_constant) && !leaves_sizes_open(node);
    const bool is_dynamic = std::ranges::any_of(node.outputs, [&](ValueId id) { return graph.value(id).expressions != nullptr; });
    if (reads_constants && !is_dynamic) {
      SHOAL_ASSIGN_OR_RETURN(const bool is_folded, fold_node(graph, node, left));
      if (is_folded) continue;
    }
    for (const ValueId id : node.outputs) graph.value(id).producer = static_cast<NodeId>(kept.size());
    kept.push_back(std::move(node));
  }
  graph.nodes = std::move(kept);
  return {};
}

}  // namespace

Status fold_constants(Graph& whole) {
  Status status;
  const std::uint64_t bytes = whole.constant_bytes();
  Left left{std::max(kAlwaysFolded, kMostGrowth * bytes), kMostWork + kMostWorkPerByte * static_cast<double>(bytes)};
  for_each_graph(whole, [&](Graph& graph) {
    if (status.ok()) status = fold_one(graph, left);
    if (status.ok()) move_constants_into_bodies(graph);  // those that were found now
  });
  return status;
}

}  // namespace shoal::worker

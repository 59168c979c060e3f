// Attention as the operators of a graph write it.
#include <algorithm>
#include <optional>

#include "worker/graph/operators.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/attention.hpp"
#include "worker/ops/movement.hpp"
#include "worker/ops/products.hpp"
#include "worker/ops/reshape.hpp"
#include "worker/ops/softmax.hpp"
#include "worker/ops/unary.hpp"
#include "worker/passes/patterns.hpp"

namespace shoal::worker {
namespace {

bool is_plain_float(const Graph& graph, ValueId id) {
  const Value& value = graph.value(id);
  return value.dtype == DType::kFloat32 && !value.expressions && value.shape.element_count() > 0;
}

/// Are the axes before the last two the same, so that nothing is broadcast?
bool has_same_lead(const Shape& a, const Shape& b) {
  return a.rank() == b.rank() && a.rank() >= 2 && std::equal(a.begin(), a.end() - 2, b.begin());
}

bool is_softmax_of_rows(const Graph& graph, const Node& node) {
  const auto* const softmax = node.attributes.get_if<SoftmaxAttributes>();
  if (softmax == nullptr || softmax->kind != SoftmaxKind::kSoftmax || softmax->flatten_rest || softmax->temperature != 1)
    return false;
  const int rank = graph.value(node.inputs[0]).shape.rank();
  if (softmax->axis != -1 && softmax->axis != rank - 1) return false;
  return !softmax->use_length || !graph.value(node.inputs[1]).expressions;
}

/// Goes back from the softmax of an attention to its scores.
class AttentionFinder {
 public:
  AttentionFinder(const Graph& graph, const Readers& readers)
      : graph_(graph), readers_(readers), makers_(graph.values.size(), kNoNode) {
    for (std::size_t index = 0; index < graph.nodes.size(); ++index) {
      for (const ValueId id : graph.nodes[index].outputs) makers_[static_cast<std::size_t>(id)] = static_cast<NodeId>(index);
    }
  }

  /// The attention that ends in the node.
  std::optional<Attention> ending_in(const Node& last) {
    const bool is_interleaved = last.op == &ops::kAttentionValues;
    if (!is_interleaved && !is_product(last, /*of_scores=*/false)) return std::nullopt;
    found_ = {};
    const ValueId weights = last.inputs[is_interleaved ? 1 : 0];
    const Node* const softmax = inner(weights);
    if (softmax == nullptr || !is_softmax_of_rows(graph_, *softmax)) return std::nullopt;
    if (softmax->inputs.size() > 1) found_.lengths = softmax->inputs[1];
    const Node* scores = inner(softmax->inputs[0]);
    if (scores != nullptr && adds(*scores)) scores = masked_by(*scores);
    if (scores == nullptr) return std::nullopt;
    const bool fits_last = is_interleaved ? is_interleaved_pair(*scores, last) : is_product(*scores, /*of_scores=*/true);
    if (!fits_last) return std::nullopt;
    found_.scores = found_.inner.back();
    return found_;
  }

 private:
  /// The node that makes a value that only one node reads; nodes between them that change nothing are passed. Null: there is
  /// none.
  const Node* inner(ValueId id) {
    while (true) {
      const NodeId maker = makers_[static_cast<std::size_t>(id)];
      if (maker == kNoNode || readers_.sole(id) == kNoNode || !is_plain_float(graph_, id)) return nullptr;
      const Node& node = graph_.nodes[static_cast<std::size_t>(maker)];
      if (std::ranges::any_of(node.outputs, [&](ValueId other) { return other != id && readers_.is_read(other); }))
        return nullptr;
      found_.inner.push_back(maker);
      const bool passes = node.op->facts.keeps_order && graph_.value(node.inputs[0]).shape == graph_.value(id).shape;
      if (!passes) return &node;
      id = node.inputs[0];
    }
  }

  /// The scores that a mask is added to; null if none of the two operands is a mask, or the other one is no product.
  const Node* masked_by(const Node& sum) {
    const Shape& shape = graph_.value(sum.outputs[0]).shape;
    const std::size_t before = found_.inner.size();
    for (const std::size_t operand : {0U, 1U}) {
      const ValueId masked = sum.inputs[operand], mask = sum.inputs[1 - operand];
      if (masked == mask || graph_.value(masked).shape != shape || !fits(graph_.value(mask), shape)) continue;
      const Node* const scores = inner(masked);
      found_.mask = mask;
      if (scores != nullptr && (scores->op == &ops::kAttentionScores || scores->op == &ops::kMatMul)) return scores;
      found_.inner.resize(before);
    }
    return nullptr;
  }

  static bool adds(const Node& node) {
    const auto* const binary = node.attributes.get_if<BinaryAttributes>();
    return binary != nullptr && binary->kind == BinaryKind::kAdd;
  }

  /// Has the mask an element for each key, and does it broadcast to the scores?
  static bool fits(const Value& added, const Shape& scores) {
    if (added.expressions) return false;  // its size is known when the program runs
    const Shape& mask = added.shape;
    const int lead = scores.rank() - mask.rank();
    if (mask.rank() < 1 || lead < 0 || mask[mask.rank() - 1] != scores[scores.rank() - 1]) return false;
    for (int axis = 0; axis < mask.rank(); ++axis) {
      if (mask[axis] != 1 && mask[axis] != scores[lead + axis]) return false;
    }
    return true;
  }

  /// A product of equally many matrices: that of queries and keys, whose rows are vectors, or that of weights and values.
  bool is_product(const Node& node, bool of_scores) const {
    const auto* const product = node.attributes.get_if<MatMulAttributes>();
    if (product == nullptr || product->transpose_a || product->transpose_b != of_scores || (!of_scores && product->scale != 1))
      return false;
    return std::ranges::all_of(node.inputs, [&](ValueId id) { return is_plain_float(graph_, id); }) &&
           is_plain_float(graph_, node.outputs[0]) &&
           has_same_lead(graph_.value(node.inputs[0]).shape, graph_.value(node.inputs[1]).shape);
  }

  bool is_interleaved_pair(const Node& scores, const Node& last) const {
    return scores.op == &ops::kAttentionScores && scores.attributes == last.attributes &&
           scores.inputs.back() == last.inputs[0] && is_plain_float(graph_, scores.inputs.front()) &&
           is_plain_float(graph_, scores.inputs.back()) && is_plain_float(graph_, last.outputs[0]);
  }

  const Graph& graph_;
  const Readers& readers_;
  std::vector<NodeId> makers_;  ///< per value
  Attention found_;
};

}  // namespace

std::map<NodeId, Attention> find_attentions(const Graph& graph, const Readers& readers) {
  std::map<NodeId, Attention> found;
  AttentionFinder finder(graph, readers);
  for (std::size_t index = 0; index < graph.nodes.size(); ++index) {
    if (auto attention = finder.ending_in(graph.nodes[index])) found.emplace(static_cast<NodeId>(index), *std::move(attention));
  }
  return found;
}

}  // namespace shoal::worker

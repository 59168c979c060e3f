// Patterns: nodes that together compute what a backend can do in one step. Nothing in the graph is changed.
#pragma once

#include <map>
#include <vector>

#include "worker/graph/graph.hpp"
#include "worker/passes/element_functions.hpp"

namespace shoal::worker {

/// Who reads each value of a graph.
///   Threads  immutable
class Readers {
 public:
  explicit Readers(const Graph& graph);
  /// A node that reads the value twice is there twice.
  const std::vector<NodeId>& of(ValueId id) const { return readers_[static_cast<std::size_t>(id)]; }
  bool is_output(ValueId id) const { return is_output_[static_cast<std::size_t>(id)]; }  ///< of the graph
  bool is_read(ValueId id) const { return is_output(id) || !of(id).empty(); }
  /// The only one; none if the value is read more than once or is an output of the graph.
  NodeId sole(ValueId id) const { return of(id).size() == 1 && !is_output(id) ? of(id).front() : kNoNode; }

 private:
  std::vector<std::vector<NodeId>> readers_;
  std::vector<bool> is_output_;
};

/// Of a node with two inputs: the one that is not `one`.
inline ValueId other_input(const Node& node, ValueId one) { return node.inputs[node.inputs[0] == one ? 1 : 0]; }

/// x * gate(x): swish or hard swish.
struct Gate {
  std::vector<NodeId> nodes;  ///< those of the gate, in order, and the product
  Functions functions;        ///< what they compute of x
};
/// The gates of float32 values, in the forms that exporters write (x * clip(x + 3, 0, 6) / 6 in any order), by the number of x.
/// Only the gate's nodes read x and what is between.
std::map<ValueId, Gate> find_gates(const Graph& graph, const Readers& readers);

/// Per node: the BatchNorm that may be folded into the weights and bias of this Convolution, Deconvolution or FullyConnected
/// (constant_chain.hpp), or kNoNode. Weights, bias and statistics are constants, and nobody else reads what is between.
std::vector<NodeId> find_foldable_norms(const Graph& graph, const Readers& readers);

/// softmax(scale * queries . keys + mask) * values, in the nodes of a transformer: a product, an addition if there is a mask, a
/// softmax, a second product.
struct Attention {
  std::vector<NodeId> inner;  ///< all nodes but the last: only they read what is between
  NodeId scores = kNoNode;    ///< AttentionScores or MatMul
  ValueId mask = -1;          ///< is added to the scores; -1: none
  ValueId lengths = -1;       ///< how many keys take part, for each row of the scores; -1: all
};
/// The attentions of float32 whose scores nobody else reads, by their last node (AttentionValues or MatMul). A mask has an
/// element for each key.
std::map<NodeId, Attention> find_attentions(const Graph& graph, const Readers& readers);

}  // namespace shoal::worker

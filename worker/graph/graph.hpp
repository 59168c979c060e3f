// Graph: a model between import and compilation. Shoal's own operators over values that are written once.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shoal/result.hpp"
#include "shoal/tensor.hpp"
#include "worker/graph/attributes.hpp"
#include "worker/graph/symbolic_shape.hpp"

namespace shoal::worker {

class Operator;
struct Graph;
using ValueId = std::int32_t;
using NodeId = std::int32_t;
inline constexpr NodeId kNoNode = -1;
/// The most elements that a tensor, or all tensors of a graph together, may have. No machine holds more, and no sum or product of
/// sizes within it overflows when it is counted in bytes.
inline constexpr std::int64_t kMaxElements = std::int64_t{1} << 44;

/// A parameter or folded value. The bytes may be unaligned (a mapped file); copy them before typed use.
struct Constant {
  DType dtype = DType::kInvalid;
  Shape shape;
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;  ///< keeps `bytes` alive: the mapped file, or heap memory
  /// constant_key() in the graph that it was moved from, or converted_key(); empty: it is the graph's own.
  std::string key = {};
};

/// One tensor of the graph: an input, a constant, or an output of one node.
struct Value {
  std::string name;
  DType dtype = DType::kInvalid;  ///< kInvalid until inferred
  Shape shape = Shape::any();     ///< any() until known; the largest sizes where `expressions` has others
  std::optional<Constant> constant;
  NodeId producer = kNoNode;    ///< kNoNode for inputs and constants
  ValueId converted_from = -1;  ///< the value that infer() converted to this one; -1: none
  /// The sizes, if some are not known when the graph is inferred: they depend on data, or infer_sizes() left them open. Null: all
  /// are in `shape`.
  std::shared_ptr<const SymbolicShape> expressions;

  SymbolicShape sizes() const { return expressions ? *expressions : SymbolicShape(shape); }
};

/// Of its elements; of the largest shape, if the sizes are not known.
std::size_t size_bytes_of(const Value& value);

/// One use of an operator.
struct Node {
  const Operator* op = nullptr;  ///< from the registry (operators.hpp); lives as long as the process
  std::string name;              ///< the name in the model's file, for messages
  std::string source_op;         ///< the operator's name in the model's file, for messages; empty: op->name
  Attributes attributes;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;  ///< all, including hidden ones
  /// Graphs within the node: what a loop repeats, the branches of an If. A body reads its own inputs and nothing of the graph
  /// around it. Its first inputs are what the operator gives it (OperatorDef::bodies). The rest are the node's captures: the last
  /// inputs of the node, after those of the operator itself.
  std::vector<Graph> bodies;
};

/// A node that cannot be run.
struct RefusedNode {
  std::string op, node, reason;  ///< op as in the model's file
};

struct GraphOutput {
  std::string name;  ///< as MXNet's list_outputs gives it
  ValueId value = 0;
};

/// A model's operators in topological order. Everything that no output needs (labels, training branches) has been removed.
///   Threads  thread-compatible: passes change it; compiled programs do not refer to it
struct Graph {
  std::vector<Value> values;
  std::vector<Node> nodes;      ///< topological order
  std::vector<ValueId> inputs;  ///< in the model's order
  std::vector<GraphOutput> outputs;
  std::vector<std::string> ignored_inputs;  ///< label arguments: accepted and ignored
  std::shared_ptr<DimTable> table;          ///< of Value::expressions; each infer() makes a new one. Null: not inferred yet
  std::string scope;  ///< of a body: "n5.0/" for body 0 of the node whose first output is value 5, after the outer graph's scope

  ValueId add_value(Value value);
  const Value& value(ValueId id) const { return values[static_cast<std::size_t>(id)]; }
  Value& value(ValueId id) { return values[static_cast<std::size_t>(id)]; }
  /// The inputs as far as the file describes them (`__shape__`, `__dtype__`). Otherwise the shape is any() and the type float32.
  std::vector<TensorSpec> input_specs() const;
  /// Total bytes of the constants.
  std::uint64_t constant_bytes() const;
  /// Removes the nodes of which no output is needed: one operator of a file may become several nodes here. Importers call it
  /// last.
  void remove_unneeded_nodes();
};

/// Bodies may lie in bodies so deep: what walks them, and runs them, calls itself.
inline constexpr int kMostNesting = 16;
/// Errors: kInvalidArgument: bodies lie deeper.
Status check_nesting(const Graph& graph);

/// Calls f(graph) with the graph and with every body in it, each after the graph around it.
template <typename G, typename F>
void for_each_graph(G& graph, F&& f) {
  f(graph);
  for (auto& node : graph.nodes) {
    for (auto& body : node.bodies) for_each_graph(body, f);
  }
}
/// Gives the bodies their scopes. They stay right when passes add and remove nodes.
void name_scopes(Graph& graph);
/// What names a constant among those of all graphs of a model, once scopes have been named: "v3", "n5.0/v2".
std::string constant_key(const Graph& graph, ValueId id);
/// Likewise of the constant converted to another type: "v3 as float32".
std::string converted_key(const Graph& graph, ValueId id, DType dtype);
/// Moves captures that are constants into the bodies, so that devices pack them as weights. The captures are then gone. A
/// constant keeps its key, so it is stored once for all the bodies that read it.
void move_constants_into_bodies(Graph& graph);

/// "Convolution 'conv1'": the name of a node in messages, with the operator's name in the model's file.
std::string describe(const Node& node);

}  // namespace shoal::worker

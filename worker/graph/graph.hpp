// Graph: a model between import and compilation; Shoal's own operators over single-assignment values.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shoal/result.hpp"
#include "shoal/tensor.hpp"
#include "worker/graph/attributes.hpp"

namespace shoal::worker {

struct Operator;
using ValueId = std::int32_t;
using NodeId = std::int32_t;
inline constexpr NodeId kNoNode = -1;

/// A parameter or folded value. The bytes may lie at any address (a mapped file): copy before typed use unless aligned.
struct Constant {
  DType dtype = DType::kInvalid;
  Shape shape;
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;  ///< keeps `bytes` alive: the mapped file, or heap memory of a pass
};

/// One tensor of the graph: an input, a constant, or an output of one node.
struct Value {
  std::string name;
  DType dtype = DType::kInvalid;  ///< kInvalid until inferred
  Shape shape;                    ///< meaningless until inferred
  std::optional<Constant> constant;
  NodeId producer = kNoNode;  ///< kNoNode for inputs and constants
  ValueId converted_from =
      -1;  ///< the stored constant that this one is a conversion of (infer() makes those); -1: it is the stored one
};

/// One use of an operator.
struct Node {
  const Operator* op = nullptr;  ///< from the registry (operators.hpp); lives as long as the process
  std::string name;              ///< the name in the model's file: what errors name
  std::string source_op;         ///< the operator's name in the model's file, for messages; empty: op->name
  Attributes attributes;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;  ///< all of them, hidden ones included
};

struct GraphOutput {
  std::string name;  ///< as MXNet's list_outputs gives it
  ValueId value = 0;
};

/// A model's operators in topological order, with everything that no output needs already removed (labels, training branches).
///   Threads  thread-compatible: passes change it, compiled programs do not refer to it
struct Graph {
  std::vector<Value> values;
  std::vector<Node> nodes;      ///< topological order
  std::vector<ValueId> inputs;  ///< in the model's order
  std::vector<GraphOutput> outputs;
  std::vector<std::string> ignored_inputs;  ///< label arguments: accepted and ignored when given

  ValueId add_value(Value value);
  const Value& value(ValueId id) const { return values[static_cast<std::size_t>(id)]; }
  Value& value(ValueId id) { return values[static_cast<std::size_t>(id)]; }
  /// Input TensorSpecs as far as known (names, `__shape__`, `__dtype__`; rank 0 and float32 where the file says nothing).
  std::vector<TensorSpec> input_specs() const;
  /// Total bytes of the constants.
  std::uint64_t constant_bytes() const;
};

/// Sets dtype and shape of every value from those of the inputs (by name, any order). ignored_inputs may be among them; an input
/// that is not given keeps what the model says of it. Floating-point constants follow the type of the data they meet, as MXNet
/// copies parameters into arrays of the inferred type: the node then reads a converted constant, and the next infer() may choose
/// anew.
///   Errors  kInvalidArgument naming operator, node, tensor and both shapes; kUnimplemented
Status infer(Graph& graph, std::span<const TensorSpec> inputs);

/// As infer(), for a graph imported without parameters: an input nobody gave takes dtype and shape from the operators that read
/// it. The graph is changed only in its values.
Status infer_parameters(Graph& graph, std::span<const TensorSpec> inputs);

/// "Convolution 'conv1'": how messages name a node, with the operator's name in the model's file.
std::string describe(const Node& node);

}  // namespace shoal::worker

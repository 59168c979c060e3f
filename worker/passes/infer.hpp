// infer(): dtypes and shapes of all values.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "worker/graph/graph.hpp"

namespace shoal::worker {

/// Sets dtype and shape of every value from those of the inputs (by name, any order). ignored_inputs may be among them. An input
/// that is not given keeps its dtype and shape in the model's file. Floating-point constants, and values computed from
/// constants alone, take the type of the data that a node combines them with, as in MXNet. The node then reads a converted
/// constant, or the output of a Cast that infer() inserts. So it does where an operator promotes the types of its inputs. The
/// next infer() may choose another type.
///   Errors  kInvalidArgument naming operator, node, tensor and both shapes; kUnimplemented
Status infer(Graph& graph, std::span<const TensorSpec> inputs);
/// The same, with errors that begin with the shapes of the inputs: the node that refuses a size may be far behind them.
Status infer_naming_shapes(Graph& graph, std::span<const TensorSpec> inputs);

/// An input whose sizes may be expressions.
struct SizedInput {
  std::string name;
  DType dtype = DType::kInvalid;
  SymbolicShape shape = SymbolicShape::any();
};
/// Like infer(), for sizes that are not known yet. `table` made the expressions. The sizes of values are in Value::sizes(); no
/// program can be made of the graph. What may be wrong for some sizes is accepted, unless it is wrong for all.
Status infer_sizes(Graph& graph, std::shared_ptr<DimTable> table, std::span<const SizedInput> inputs);

/// Like infer(), for a graph that may be wrong: adds what is refused of each node, of bodies too ("foreach0/dot1"), except nodes
/// behind refused ones. Values that do not follow have no dtype.
///   Errors  what is wrong with the inputs
Status infer_what_follows(Graph& graph, std::span<const TensorSpec> inputs, std::vector<RefusedNode>& refused);

/// Like infer(), for a graph that was imported without parameters: an input that is not given takes dtype and shape from the
/// operators that read it. Like infer(), it may insert Casts.
Status infer_parameters(Graph& graph, std::span<const TensorSpec> inputs);

}  // namespace shoal::worker

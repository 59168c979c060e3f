// infer(): dtypes and shapes of all values.
#pragma once

#include <span>

#include "worker/graph/graph.hpp"

namespace shoal::worker {

/// Sets dtype and shape of every value from those of the inputs (by name, any order). ignored_inputs may be among them. An input
/// that is not given keeps its dtype and shape in the model's file. Floating-point constants, and values computed from
/// constants alone, take the type of the data that a node combines them with, as in MXNet. The node then reads a converted
/// constant, or the output of a Cast that infer() inserts. The next infer() may choose another type.
///   Errors  kInvalidArgument naming operator, node, tensor and both shapes; kUnimplemented
Status infer(Graph& graph, std::span<const TensorSpec> inputs);

/// Like infer(), for a graph that was imported without parameters: an input that is not given takes dtype and shape from the
/// operators that read it. Like infer(), it may insert Casts.
Status infer_parameters(Graph& graph, std::span<const TensorSpec> inputs);

}  // namespace shoal::worker

// Operators that the device computes in float32 for elements of half types.
#pragma once

#include <functional>
#include <optional>

#include "worker/graph/graph.hpp"
#include "worker/graph/types.hpp"

namespace shoal::worker::cpu {

using HalfTypes = Types<Half, BFloat16>;

/// The graph with the nodes that `is_widened` names in float32, if they have elements of half types: a Cast before each of their
/// inputs, and one behind each output. Half types are stored only, so the numbers are those that the oracle kernels compute, but
/// for the order of sums. The maximum of a window without a number is raised to the lowest number of the half type. Constants are
/// converted, unless they have been released: then they exist in packed form.
///   graph  inferred
///   Returns  nothing if there is no such node
std::optional<Graph> widen_halves(const Graph& graph, const std::function<bool(const Node&)>& is_widened);

}  // namespace shoal::worker::cpu

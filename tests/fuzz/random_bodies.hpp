// Puts parts of a graph into bodies: nodes If, Loop and Scan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "worker/graph/graph.hpp"

namespace shoal::fuzz {

/// Moves runs of nodes into branches of Ifs and bodies of Loops, some of them within others. The outputs stay what they are, to
/// the bit if each node is computed by itself. New outputs are added behind them: the state that a loop carries and the rows that
/// it stacks, and what a Scan makes of each row of a value.
///   inputs   for which the graph can be inferred
///   Returns  the number of nodes with bodies
std::size_t add_bodies(worker::Graph& graph, std::span<const TensorSpec> inputs, std::uint32_t seed);

}  // namespace shoal::fuzz

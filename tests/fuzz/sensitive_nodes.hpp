// Nodes of random graphs whose results tell little about a device, because a rounding changes them by much.
#pragma once

#include <vector>

#include "worker/graph/graph.hpp"

namespace shoal::fuzz {

/// Its result may change by much when its input changes by little.
bool has_steps(const worker::Node& node);

/// It has no result for some numbers. One rounding may move a number across that border.
bool has_border(const worker::Node& node);

/// The slope of a root is infinite at 0, so a small difference there becomes a large one. One thousandth of 1e-10 becomes 1e-5.
bool has_infinite_slope(const worker::Node& node);

/// Of a large number it keeps only what rounding has left of the angle.
bool is_periodic(const worker::Node& node);

/// How many rows it has depends on which numbers are equal, and the devices round differently.
bool counts_equal_numbers(const worker::Node& node);

/// The nodes that output number `output` is computed from; all of them if the graph has fewer outputs.
std::vector<const worker::Node*> nodes_behind(const worker::Graph& graph, std::size_t output);

}  // namespace shoal::fuzz

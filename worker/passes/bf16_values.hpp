// The precision pass: which values of a graph may be stored in bf16.
#pragma once

#include <vector>

#include "worker/graph/graph.hpp"

namespace shoal::worker {

/// Per value: true if it may be stored in bf16 between two nodes. The graph keeps its types, because a device may keep a value
/// in float32. infer() must have run. These values stay in float32:
/// - constants, inputs, outputs, and views of an output
/// - values before the first convolution or product, so that inputs and their scaling keep their digits
/// - values behind the last convolution or product, so that outputs are only as inexact as the products that they are made of
/// - what no other node than one that needs float32 makes or reads (softmax, norms over the data, operators without a fast
/// kernel)
std::vector<bool> find_bf16_values(const Graph& graph);

}  // namespace shoal::worker

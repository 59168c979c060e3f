// The reference kernels: plain loops that are easy to verify. Tests compare with them, and every device falls back to them.
#pragma once

#include <span>
#include <string_view>

#include "shoal/result.hpp"
#include "shoal/tensor.hpp"
#include "worker/graph/graph.hpp"

namespace shoal::worker {

/// Computes one node. dst have the shapes and dtypes of infer() and never alias src. Hidden outputs that nobody reads have data
/// == nullptr.
///   Threads  thread-safe, no allocation of more than a few rows, single-threaded
using ReferenceKernel = Status (*)(const Node& node, std::span<const TensorView> src, std::span<TensorView> dst);

/// The kernel of that operator, or null.
ReferenceKernel find_reference_kernel(std::string_view operator_name);
/// Adds a kernel for a registered operator. Aborts if the name is taken.
void register_reference_kernel(std::string_view operator_name, ReferenceKernel kernel);

}  // namespace shoal::worker

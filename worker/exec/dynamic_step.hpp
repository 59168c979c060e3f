// The step of a node whose results, or whose inputs, have sizes that depend on data.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "worker/exec/oracle_step.hpp"
#include "worker/exec/plan.hpp"

namespace shoal::worker {

/// Is each size at most that of the bound?
bool lies_within(const Shape& shape, const Shape& bound);
/// Does a tensor of the step have a size that depends on data?
bool has_dynamic_tensor(const Plan& plan, const std::vector<PlacedTensor>& src, const std::vector<PlacedTensor>& dst);

/// Computes a node for the sizes that it was made for.
///   Threads  thread-bound
using NodeRun = std::function<Status(std::span<const TensorView> src, std::span<TensorView> dst)>;
/// What a backend has for a node with the sizes of one run: shapes and dtypes as infer() found them, `data` is not set. It may
/// keep references to `node`. Empty: nothing, so the oracle kernel runs.
///   Threads  thread-safe
using MakeNodeRun = std::function<NodeRun(const Node& node, std::span<const TensorView> src, std::span<const TensorView> dst)>;

struct NodeKernel {
  MakeNodeRun make;            ///< empty: there is none
  std::size_t kept_bytes = 0;  ///< an estimate of what a NodeRun keeps
};

/// Runs the node on the sizes that the tensors have in this run. It reads them from the slots of `src`, finds those of `dst` by
/// the operator's rule, or lets the oracle kernel set them, and stores them in the slots of `dst`.
///   kernel  asked again when sizes have changed
///   Errors of a run  kInvalidArgument: sizes that do not fit together; the node and both shapes are named
std::unique_ptr<Step> make_dynamic_step(const Plan& plan, const Node& node, const std::vector<PlacedTensor>& src,
                                        const std::vector<PlacedTensor>& dst, NodeKernel kernel = {});

}  // namespace shoal::worker

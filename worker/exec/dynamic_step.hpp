// The step of a node whose results, or whose inputs, have sizes that depend on data.
#pragma once

#include <memory>
#include <vector>

#include "worker/exec/oracle_step.hpp"
#include "worker/exec/plan.hpp"

namespace shoal::worker {

/// Is each size at most that of the bound?
bool lies_within(const Shape& shape, const Shape& bound);
/// Does a tensor of the step have a size that depends on data?
bool has_dynamic_tensor(const Plan& plan, const std::vector<PlacedTensor>& src, const std::vector<PlacedTensor>& dst);

/// Runs the node's oracle kernel on the sizes that the tensors have in this run. It reads them from the slots of `src`, finds
/// those of `dst` by the operator's rule, or lets the kernel set them, and stores them in the slots of `dst`.
///   Errors of a run  kInvalidArgument: sizes that do not fit together; the node and both shapes are named
std::unique_ptr<Step> make_dynamic_step(const Plan& plan, const Node& node, const std::vector<PlacedTensor>& src,
                                        const std::vector<PlacedTensor>& dst);

}  // namespace shoal::worker

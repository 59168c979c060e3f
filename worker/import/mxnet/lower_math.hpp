// What several files of the table share.
#pragma once

#include <optional>
#include <string_view>

#include "worker/import/mxnet/mxnet_lowering.hpp"
#include "worker/ops/reduce.hpp"
#include "worker/ops/unary.hpp"

namespace shoal::worker {

/// Adds the mean of `data` over the axes that `mean` names, and the mean squared distance from it. Returns these two; none when
/// they are over the budget.
std::vector<ValueId> add_moments(MxnetLowering& lowering, const ReduceAttributes& mean, ValueId data);

/// The function of one number that MXNet's operator of that name computes; none if it is no such operator.
std::optional<UnaryKind> find_unary(std::string_view name);

}  // namespace shoal::worker

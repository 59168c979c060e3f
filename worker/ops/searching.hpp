// Nonzero, Unique, CheckAll: questions whose answers depend on data.
#pragma once

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kNonzero, kUnique, kCheckAll;
}  // namespace ops

}  // namespace shoal::worker

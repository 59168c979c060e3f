// If, Loop and Scan: operators that run graphs.
#pragma once

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kIf, kLoop, kScan;
}  // namespace ops

struct LoopAttributes {
  std::int64_t states = 1;
  DType condition = DType::kBool;
};
template <>
inline constexpr auto fields_of<LoopAttributes> = std::tuple{
    field("states", &LoopAttributes::states, "tensors that each turn takes from the turn before"),
    field("condition", &LoopAttributes::condition, "type of the body's first output"),
};

struct ScanAttributes {
  std::int64_t scanned = 1, states = 0;
};
template <>
inline constexpr auto fields_of<ScanAttributes> = std::tuple{
    field("scanned", &ScanAttributes::scanned, "inputs of which each turn takes the next row of axis 0"),
    field("states", &ScanAttributes::states, "tensors that each turn takes from the turn before"),
};

}  // namespace shoal::worker

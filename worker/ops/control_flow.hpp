// If, Loop and Scan: operators that run graphs, which are the bodies of their nodes.
#pragma once

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kIf, kLoop, kScan;
}  // namespace ops

struct LoopAttributes {
  std::int64_t states = 1;
  std::int64_t most_turns = 0;
  bool pads = false;
};
template <>
inline constexpr auto fields_of<LoopAttributes> = std::tuple{
    field("states", &LoopAttributes::states, "tensors that each turn takes from the turn before"),
    field("most_turns", &LoopAttributes::most_turns, "it ends after so many; 0: there is no limit, and no result is stacked"),
    field("pads", &LoopAttributes::pads, "stacked results have most_turns rows in any case; those behind the last turn are 0"),
};

struct ScanAttributes {
  std::int64_t scanned = 1;
  std::int64_t states = 0;
  std::int64_t least_rank = 0;
};
template <>
inline constexpr auto fields_of<ScanAttributes> = std::tuple{
    field("scanned", &ScanAttributes::scanned, "inputs of which each turn takes the next row of axis 0"),
    field("states", &ScanAttributes::states, "tensors that each turn takes from the turn before"),
    field("least_rank", &ScanAttributes::least_rank, "0 or 1: with 1 a row of a vector has the shape (1), as MXNet has it"),
};

}  // namespace shoal::worker

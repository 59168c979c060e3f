// FullyConnected.
#pragma once

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kFullyConnected;
}  // namespace ops

struct FullyConnectedAttributes {
  std::int64_t num_hidden = 0;
  bool flatten = true;
};
template <>
inline constexpr auto fields_of<FullyConnectedAttributes> = std::tuple{
    field("num_hidden", &FullyConnectedAttributes::num_hidden, "length of the output's last axis"),
    field("flatten", &FullyConnectedAttributes::flatten,
          "the data is seen as (d0, rest); if false, its last axis is contracted and the others stay"),
};

}  // namespace shoal::worker

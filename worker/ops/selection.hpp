// Where: one of two elements.
#pragma once

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kWhere;
}  // namespace ops

struct WhereAttributes {
  bool selects_rows = false;
};
template <>
inline constexpr auto fields_of<WhereAttributes> = std::tuple{
    field("selects_rows", &WhereAttributes::selects_rows,
          "as MXNet's where: x and y have one shape, and the condition has it, too, or one element for each row of axis 0"),
};

/// The shape of a Where's condition, with the axes of x if it has one element for each row.
Shape condition_along(const Node& node, const Shape& condition, const Shape& x);

}  // namespace shoal::worker

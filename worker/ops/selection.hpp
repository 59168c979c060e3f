// Where: one of two elements.
#pragma once

#include "worker/graph/operators.hpp"
#include "worker/graph/promotion.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kWhere;
}  // namespace ops

struct WhereAttributes {
  bool selects_rows = false;
  Promotion promotion = Promotion::kNone;
};
template <>
inline constexpr auto fields_of<WhereAttributes> = std::tuple{
    field("selects_rows", &WhereAttributes::selects_rows,
          "as MXNet's where: x and y have one shape, and the condition has it, too, or one element for each row of axis 0"),
    field("promotion", &WhereAttributes::promotion, "what x and y become, as of Binary"),
};

/// The shape of a Where's condition, with the axes of x if it has one element for each row.
Shape condition_along(const Node& node, const Shape& condition, const Shape& x);

}  // namespace shoal::worker

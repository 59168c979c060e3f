// MXNet's reshape codes.
#include <gtest/gtest.h>

#include <array>
#include <ostream>

#include "worker/graph/graph.hpp"
#include "worker/graph/operators.hpp"
#include "worker/ops/reshape.hpp"

namespace shoal::worker {
namespace {

struct ReshapeCase {
  Shape data;
  ReshapeAttributes attributes;
  Shape want = Shape::any();  ///< any: refused
};
void PrintTo(const ReshapeCase& c, std::ostream* out) {
  *out << c.data.to_string() << " by (";
  for (const std::int64_t code : c.attributes.shape) *out << code << " ";
  *out << ")" << (c.attributes.reverse ? " reversed" : "");
}

class Reshape : public ::testing::TestWithParam<ReshapeCase> {};

TEST_P(Reshape, FollowsTheCodes) {
  const auto& [data, attributes, want] = GetParam();
  const std::array<TypedValue, 1> src{{{"x", DType::kFloat32, data}}};
  std::array<TypedValue, 1> dst;
  Node node;
  node.op = find_operator("Reshape");
  node.name = "r";
  node.attributes = attributes;
  const Status status = node.op->infer(node, src, dst);
  EXPECT_EQ(status.ok(), want.is_known()) << status.to_string();
  if (status.ok()) {
    EXPECT_EQ(dst[0].shape.bound(), want) << dst[0].shape.to_string();
  } else if (data.rank() > 1) {
    EXPECT_NE(status.message().find(data.to_string()), std::string::npos) << status.to_string();
  }
}

ReshapeAttributes codes(Dims shape, bool reverse = false) { return {std::move(shape), reverse, false, false}; }
ReshapeAttributes legacy(Dims target, bool keep_highest) { return {std::move(target), false, true, keep_highest}; }

INSTANTIATE_TEST_SUITE_P(
    , Reshape,
    ::testing::Values(
        ReshapeCase{{2, 3, 4}, codes({4, 6}), {4, 6}}, ReshapeCase{{2, 3, 4}, codes({0, -1}), {2, 12}},
        ReshapeCase{{2, 3, 4}, codes({-2, 1, 1}), {2, 3, 4, 1, 1}}, ReshapeCase{{2, 3, 4, 5}, codes({-3, -3}), {6, 20}},
        ReshapeCase{{2, 6, 3, 2}, codes({0, -4, 3, -1, -2}), {2, 3, 2, 3, 2}},
        ReshapeCase{{10, 5, 4}, codes({-1, 0}, true), {50, 4}},
        ReshapeCase{{2, 3, 8}, codes({0, 0, 2, 4, -4}, true), {2, 3, 2, 4}},  // reversed, a split is written operands first
        ReshapeCase{{2, 3, 4}, legacy({0, 4}, false), {6, 4}}, ReshapeCase{{2, 12}, legacy({9, 3, 4}, true), {2, 3, 4}},
        ReshapeCase{{2, 3}, codes({5, 2}), Shape::any()}, ReshapeCase{{2, 3}, codes({-1, -1}), Shape::any()},
        ReshapeCase{{2, 3}, codes({0, 0, 0}), Shape::any()}, ReshapeCase{{2, 3}, codes({4, -1}), Shape::any()},
        ReshapeCase{{2, 3}, codes({0, -3}), Shape::any()}, ReshapeCase{{2, 8}, codes({0, -4, 3, 2}), Shape::any()},
        ReshapeCase{{2, 8}, codes({0, -4, -1, -1}), Shape::any()}, ReshapeCase{{2, 8}, codes({0, -4, 3}), Shape::any()},
        ReshapeCase{{2, 8}, codes({-5, 16}), Shape::any()}, ReshapeCase{{2, 8}, codes({0, -4, 0, -1}), Shape::any()},
        ReshapeCase{{1, 1}, codes({}), Shape()}, ReshapeCase{Shape(), codes({1, -1}), {1, 1}},
        ReshapeCase{{0, 3, 4}, codes({0, -1}), {0, 12}}, ReshapeCase{{2, 0}, codes({0, -1}), {2, 0}},
        ReshapeCase{{0, 3}, codes({5, -1}), {5, 0}}, ReshapeCase{{0, 3}, codes({2, 3}), Shape::any()},
        ReshapeCase{{4}, codes({1, 1, 1, 1, 1, 1, 1, 1, 4}), Shape::any()},
        ReshapeCase{{4}, codes({INT64_MAX, INT64_MAX, -1}), Shape::any()}));

}  // namespace
}  // namespace shoal::worker

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
  Shape want;  ///< rank 0: refused
};
void PrintTo(const ReshapeCase& c, std::ostream* out) {
  *out << c.data.to_string() << " by (";
  for (const std::int64_t code : c.attributes.shape) *out << code << " ";
  *out << ")" << (c.attributes.reverse ? " reversed" : "");
}

class Reshape : public ::testing::TestWithParam<ReshapeCase> {};

TEST_P(Reshape, FollowsTheCodes) {
  const auto& [data, attributes, want] = GetParam();
  Value src, dst;
  src.name = "x";
  src.dtype = DType::kFloat32;
  src.shape = data;
  Node node;
  node.op = find_operator("Reshape");
  node.name = "r";
  node.attributes = attributes;
  const std::array<const Value*, 1> sources{&src};
  const std::array<Value*, 1> results{&dst};
  const Status status = node.op->infer(node, sources, results);
  EXPECT_EQ(status.ok(), want.rank() > 0) << status.to_string();
  if (status.ok()) {
    EXPECT_EQ(dst.shape, want) << dst.shape.to_string();
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
        ReshapeCase{{2, 3}, codes({5, 2}), {}}, ReshapeCase{{2, 3}, codes({-1, -1}), {}},
        ReshapeCase{{2, 3}, codes({0, 0, 0}), {}}, ReshapeCase{{2, 3}, codes({4, -1}), {}},
        ReshapeCase{{2, 3}, codes({0, -3}), {}}, ReshapeCase{{2, 8}, codes({0, -4, 3, 2}), {}},
        ReshapeCase{{2, 8}, codes({0, -4, -1, -1}), {}}, ReshapeCase{{2, 8}, codes({0, -4, 3}), {}},
        ReshapeCase{{2, 8}, codes({-5, 16}), {}}, ReshapeCase{{2, 8}, codes({0, -4, 0, -1}), {}},
        ReshapeCase{{4}, codes({1, 1, 1, 1, 1, 1, 1, 1, 4}), {}}, ReshapeCase{{4}, codes({INT64_MAX, INT64_MAX, -1}), {}}));

}  // namespace
}  // namespace shoal::worker

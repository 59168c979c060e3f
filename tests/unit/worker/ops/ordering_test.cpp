// Orders and extremes, with numbers that are worked out by hand.
#include "worker/ops/ordering.hpp"

#include <cmath>
#include <limits>

#include "tests/unit/worker/ops/by_hand.hpp"

namespace shoal::worker::by_hand {
namespace {

TEST(TopK, GivesValuesIndicesAndMask) {
  const Tensor data = tensor_of<float>({2, 3}, {1, 5, 3, 9, 7, 8});
  expect_result(run_node(ops::kTopK, TopKAttributes{.axis = -1, .count = 2}, {data}), {2, 2}, {1, 2, 0, 2});
  const auto both = run_node(ops::kTopK, TopKAttributes{.axis = 1, .count = 2, .result = TopKResult::kBoth}, {data}, 2);
  expect_result(both, {2, 2}, {5, 3, 9, 8}, 0);
  expect_result(both, {2, 2}, {1, 2, 0, 2}, 1);
  expect_result(run_node(ops::kTopK, TopKAttributes{.axis = 0, .count = 1, .result = TopKResult::kMask}, {data}), {2, 3},
                {0, 0, 0, 1, 1, 1});
  const TopKAttributes sorted{.ascending = true, .result = TopKResult::kValues};
  expect_result(run_node(ops::kTopK, sorted, {data}, 2), {6}, {1, 3, 5, 7, 8, 9});
  expect_result(run_node(ops::kTopK, TopKAttributes{.count = 2, .dtype = DType::kInt64}, {data}), {2}, {3, 5});
}

TEST(TopK, KeepsTheOrderOfEqualElementsAndPutsNanLast) {
  const Tensor data = tensor_of<float>({6}, {kNan, 2, -0.0F, 0, kInfinity, 2});
  expect_result(run_node(ops::kTopK, TopKAttributes{.axis = 0}, {data}), {6}, {4, 1, 5, 2, 3, 0});
  expect_result(run_node(ops::kTopK, TopKAttributes{.axis = 0, .ascending = true}, {data}), {6}, {2, 3, 1, 5, 4, 0});
}

TEST(TopK, RefusesWhatItCannotGive) {
  const Tensor data = counted({2, 3});
  expect_error(run_node(ops::kTopK, TopKAttributes{.axis = 1, .count = 4}, {data}), {"2x3", "3", "4"});
  expect_error(run_node(ops::kTopK, TopKAttributes{.axis = 2}, {data}), {"axis 2"});
  expect_error(run_node(ops::kTopK, TopKAttributes{.axis = 0, .dtype = DType::kUInt8}, {counted({256})}), {"uint8", "256"});
  expect_error(run_node(ops::kTopK, TopKAttributes{.axis = 0, .dtype = DType::kFloat16}, {counted({2049})}), {"float16", "2049"});
  EXPECT_TRUE(run_node(ops::kTopK, TopKAttributes{.axis = 0, .dtype = DType::kFloat16}, {counted({2048})}).ok());
  expect_error(run_node(ops::kTopK, TopKAttributes{.axis = 0}, {tensor_of<bool>({1}, {true})}), {"bool"});
}

TEST(TopK, TakesEmptyRowsAndScalars) {
  expect_result(run_node(ops::kTopK, TopKAttributes{.axis = 1}, {counted({2, 0})}), {2, 0}, {});
  expect_result(run_node(ops::kTopK, TopKAttributes{}, {counted({})}), {1}, {0});
}

TEST(ArgExtreme, TakesTheFirstOfSeveral) {
  const Tensor data = tensor_of<float>({2, 3}, {3, 7, 7, 2, 2, 9});
  expect_result(run_node(ops::kArgExtreme, ArgExtremeAttributes{.axis = 1}, {data}), {2}, {1, 2});
  expect_result(run_node(ops::kArgExtreme, ArgExtremeAttributes{.lowest = true, .axis = 1, .keepdims = true}, {data}), {2, 1},
                {0, 0});
  expect_result(run_node(ops::kArgExtreme, ArgExtremeAttributes{}, {data}), {1}, {5});
  expect_result(run_node(ops::kArgExtreme, ArgExtremeAttributes{.keepdims = true}, {data}), {1, 1}, {5});
  expect_result(run_node(ops::kArgExtreme, ArgExtremeAttributes{.axis = 0}, {counted<std::int32_t>({4})}), {1}, {3});
}

// The numbers are MXNet's.
TEST(ArgExtreme, TakesTheFirstNanAndBeginsWithTheWorstNumber) {
  const Tensor data = tensor_of<float>(
      {7, 4}, {3,         kNan,      5,          1,          kNan, -5,   3,          2,          kInfinity,  kNan,
               kNan,      1,         -kInfinity, -kInfinity, kNan, 0,    -kInfinity, -kInfinity, -kInfinity, -kInfinity,
               kInfinity, kInfinity, kInfinity,  kInfinity,  kNan, kNan, kNan,       kNan});
  for (const bool lowest : {false, true}) {
    expect_result(run_node(ops::kArgExtreme, ArgExtremeAttributes{.lowest = lowest, .axis = 1}, {data}), {7},
                  {1, 0, 1, 2, 0, 0, 0});
  }
  expect_result(run_node(ops::kArgExtreme, ArgExtremeAttributes{.axis = 0, .dtype = DType::kInt64},
                         {tensor_of<std::uint8_t>({3}, {0, 0, 0})}),
                {1}, {0});
}

TEST(ArgExtreme, NeedsAnElement) {
  expect_error(run_node(ops::kArgExtreme, ArgExtremeAttributes{.axis = 1}, {counted({2, 0})}), {"2x0"});
  expect_error(run_node(ops::kArgExtreme, ArgExtremeAttributes{.axis = -3}, {counted({2, 1})}), {"axis -3"});
}

}  // namespace
}  // namespace shoal::worker::by_hand

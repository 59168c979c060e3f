// Kernels that look elements up or order them, and those that make tensors of numbers.
#include <cstring>
#include <optional>

#include "tests/support/sanitizers.hpp"
#include "tests/unit/worker/exec/cpu/kernels/as_oracle.hpp"
#include "worker/ops/creation.hpp"
#include "worker/ops/indexing.hpp"
#include "worker/ops/ordering.hpp"

namespace shoal::worker {
namespace {

using testing::as_oracle;
using testing::odd_numbers;
using testing::types_of;

TEST(LookupKernels, TakeWithIndicesOfEveryType) {
  for (const DType dtype : types_of(Numbers())) {
    const Tensor indices = odd_numbers(dtype, {30, 41});
    for (const IndexMode mode : {IndexMode::kClip, IndexMode::kWrap}) {
      EXPECT_TRUE(as_oracle({&ops::kTake, TakeAttributes{0, mode}, {odd_numbers(DType::kFloat32, {7, 33}), indices}}));
      EXPECT_TRUE(as_oracle({&ops::kTake, TakeAttributes{1, mode}, {odd_numbers(DType::kInt8, {5, 9, 3}), indices}}));
    }
    EXPECT_TRUE(as_oracle({&ops::kPick, PickAttributes{1}, {odd_numbers(DType::kFloat64, {30, 9, 41}), indices}}));
    EXPECT_TRUE(as_oracle({&ops::kOneHot, OneHotAttributes{17, 2.5, -1, DType::kFloat16}, {indices}}));
    EXPECT_TRUE(as_oracle({&ops::kGatherNd, {}, {odd_numbers(DType::kInt16, {5, 6, 7, 3}), odd_numbers(dtype, {3, 700})}}));
  }
}

TEST(LookupKernels, CopyElementsOfEveryType) {
  for (const DType dtype : types_of(AnyTypes())) {
    const Tensor data = odd_numbers(dtype, {40, 50, 31}), indices = odd_numbers(DType::kInt32, {test::kSanitized ? 300 : 1200});
    for (const std::int64_t axis : {0, 1, -1}) EXPECT_TRUE(as_oracle({&ops::kTake, TakeAttributes{axis}, {data, indices}}));
    EXPECT_TRUE(
        as_oracle({&ops::kPick, PickAttributes{0, IndexMode::kWrap, true}, {data, odd_numbers(DType::kInt64, {50, 31})}}));
    EXPECT_TRUE(as_oracle({&ops::kGatherNd, {}, {data, odd_numbers(DType::kFloat32, {1, 900})}}));
    EXPECT_TRUE(as_oracle({&ops::kOneHot, OneHotAttributes{40, 3, 1, dtype}, {indices}}));
  }
}

TEST(LookupKernels, FindTheFirstOfRows) {
  const std::optional<std::int64_t> flat;
  for (const DType dtype : types_of(Numbers())) {
    for (const bool ascending : {false, true}) {
      for (const std::int64_t count : {0, 1, 7, 60}) {
        for (const std::optional<std::int64_t> axis : {flat, std::optional<std::int64_t>(0), std::optional<std::int64_t>(-1)}) {
          const Tensor data = odd_numbers(dtype, {61, 130});
          EXPECT_TRUE(
              as_oracle({&ops::kTopK, TopKAttributes{axis, count, ascending, TopKResult::kBoth, DType::kInt64}, {data}, 2}));
          EXPECT_TRUE(as_oracle({&ops::kTopK, TopKAttributes{axis, count, ascending, TopKResult::kMask}, {data}}));
        }
      }
      const Tensor data = odd_numbers(dtype, {20, 3, 60});
      EXPECT_TRUE(as_oracle({&ops::kTopK, TopKAttributes{1, 2, ascending, TopKResult::kValues}, {data}, 2}));
    }
  }
}

TEST(LookupKernels, FindExtremes) {
  for (const DType dtype : types_of(Numbers())) {
    for (const bool lowest : {false, true}) {
      for (const std::optional<std::int64_t> axis : {std::optional<std::int64_t>(), std::optional<std::int64_t>(0),
                                                     std::optional<std::int64_t>(1), std::optional<std::int64_t>(-1)})
        EXPECT_TRUE(as_oracle({&ops::kArgExtreme, ArgExtremeAttributes{lowest, axis, true}, {odd_numbers(dtype, {3, 21, 700})}}));
      EXPECT_TRUE(
          as_oracle({&ops::kArgExtreme, ArgExtremeAttributes{lowest, 1, false, DType::kInt64}, {odd_numbers(dtype, {900, 50})}}));
    }
  }
}

TEST(LookupKernels, MakeTensorsOfNumbers) {
  const Tensor like = odd_numbers(DType::kFloat32, {70, 300});
  for (const DType dtype : types_of(AnyTypes()))
    EXPECT_TRUE(as_oracle({&ops::kFill, FillAttributes{-2.5, {}, true, dtype}, {like}}));
  for (const DType dtype : types_of(Numbers())) {
    EXPECT_TRUE(as_oracle({&ops::kRange, RangeAttributes{.start = 3, .step = -0.75, .repeat = 2, .dtype = dtype}, {like}}));
    EXPECT_TRUE(as_oracle({&ops::kRange, RangeAttributes{.step = 0.3, .axis = 1, .in_float64 = true, .dtype = dtype}, {like}}));
  }
  EXPECT_TRUE(as_oracle({&ops::kPositions, PositionsAttributes{{1}}, {like}}));
  EXPECT_TRUE(as_oracle({&ops::kShapeOf, ShapeOfAttributes{}, {like}}));
}

}  // namespace
}  // namespace shoal::worker

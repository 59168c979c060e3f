// Kernels that move elements of every type.
#include "worker/ops/movement.hpp"

#include <optional>

#include "tests/unit/worker/exec/cpu/kernels/as_oracle.hpp"
#include "worker/ops/repetition.hpp"

namespace shoal::worker {
namespace {

using testing::as_oracle;
using testing::odd_numbers;
using testing::types_of;

TEST(MovementKernels, PermuteAxes) {
  struct Permutation {
    Shape shape;
    Dims axes;
  };
  for (const DType dtype : types_of(AnyTypes())) {
    for (const Permutation& p :
         {Permutation{{2, 33, 40}, {0, 2, 1}}, Permutation{{2, 33, 40}, {2, 1, 0}}, Permutation{{2, 33, 40}, {1, 0, 2}},
          Permutation{{2, 33, 40}, {}}, Permutation{{3, 70, 91}, {1, 2, 0}}, Permutation{{70, 91, 3}, {2, 0, 1}},
          Permutation{{4, 1, 5}, {2, 1, 0}}, Permutation{{2, 3, 4, 5, 6}, {3, 1, 4, 0, 2}}, Permutation{{7}, {0}},
          Permutation{{5, 200, 130}, {0, 2, 1}}})
      EXPECT_TRUE(as_oracle({&ops::kTranspose, TransposeAttributes{p.axes}, {odd_numbers(dtype, p.shape)}}));
    EXPECT_TRUE(as_oracle({&ops::kSwapAxes, SwapAxesAttributes{0, -1}, {odd_numbers(dtype, {31, 3, 45})}}));
  }
}

TEST(MovementKernels, SliceForwardsAndBackwards) {
  const std::vector<std::vector<SliceRange>> slices = {
      {{.axis = 0, .begin = 1}},
      {{.axis = 2, .begin = 3, .end = -2}},
      {{.axis = 2, .step = 3}, {.axis = 0, .step = -1}},
      {{.axis = -1, .step = -1}},
      {{.axis = 1, .begin = 2, .end = 3}, {.axis = 2, .begin = 700, .step = -7}}};
  for (const DType dtype : types_of(AnyTypes())) {
    for (const auto& ranges : slices)
      EXPECT_TRUE(as_oracle({&ops::kSlice, SliceAttributes{ranges}, {odd_numbers(dtype, {6, 5, 701})}}));
  }
}

TEST(MovementKernels, SplitAndJoin) {
  for (const DType dtype : types_of(AnyTypes())) {
    for (const std::int64_t axis : {0, 1, -1})
      EXPECT_TRUE(as_oracle({&ops::kSplit, SplitAttributes{axis, 3}, {odd_numbers(dtype, {6, 9, 333})}, 3}));
    EXPECT_TRUE(as_oracle({&ops::kSplit, SplitAttributes{1, 4, true}, {odd_numbers(dtype, {6, 4, 33})}, 4}));
    EXPECT_TRUE(
        as_oracle({&ops::kSplit, SplitAttributes{.axis = 1, .parts = 4, .uneven = true}, {odd_numbers(dtype, {6, 9, 333})}, 4}));
    EXPECT_TRUE(as_oracle(
        {&ops::kSplit, SplitAttributes{.axis = 2, .parts = 2, .starts = {0, 9}}, {odd_numbers(dtype, {6, 9, 333})}, 2}));
    const Tensor a = odd_numbers(dtype, {6, 9, 333}, 1), b = odd_numbers(dtype, {6, 2, 333}, 2),
                 c = odd_numbers(dtype, {1, 9, 333}, 3);
    EXPECT_TRUE(as_oracle({&ops::kConcat, ConcatAttributes{1}, {a, b, a}}));
    EXPECT_TRUE(as_oracle({&ops::kConcat, ConcatAttributes{0}, {a, c}}));
    EXPECT_TRUE(as_oracle({&ops::kConcat, ConcatAttributes{-1}, {a, a}}));
  }
}

// Pieces below and above the size that has a copy of its own, more rows than are filled together, and an empty part.
TEST(MovementKernels, JoinSmallPieces) {
  for (const DType dtype : types_of(AnyTypes())) {
    for (const std::int64_t width : {1, 2, 3, 4, 8, 15, 16, 17, 64, 65}) {
      const Tensor one = odd_numbers(dtype, {5, 157, 1}, 1), wide = odd_numbers(dtype, {5, 157, width}, 2),
                   none = odd_numbers(dtype, {5, 157, 0}, 3);
      EXPECT_TRUE(as_oracle({&ops::kConcat, ConcatAttributes{-1}, {one, none, wide, one}})) << width;
    }
  }
}

TEST(MovementKernels, RepeatInEveryWay) {
  for (const DType dtype : types_of(AnyTypes())) {
    const Tensor data = odd_numbers(dtype, {3, 1, 50, 70}), row = odd_numbers(dtype, {1, 300}),
                 column = odd_numbers(dtype, {300, 1});
    EXPECT_TRUE(as_oracle({&ops::kBroadcast, BroadcastAttributes{.axes = {1}, .sizes = {4}}, {data}}));
    EXPECT_TRUE(as_oracle({&ops::kBroadcast, BroadcastAttributes{.sizes = {200, 0}}, {row}}));
    EXPECT_TRUE(as_oracle({&ops::kBroadcast, BroadcastAttributes{.sizes = {2, 300, 70}}, {column}}));
    EXPECT_TRUE(as_oracle({&ops::kBroadcast, BroadcastAttributes{}, {column, odd_numbers(dtype, {300, 80})}}));
    for (const Dims& counts : {Dims{2}, Dims{2, 3}, Dims{2, 1, 1, 1}, Dims{1, 3, 1, 2}, Dims{2, 1, 1, 1, 1}, Dims{1, 1, 1, 1}})
      EXPECT_TRUE(as_oracle({&ops::kTile, TileAttributes{counts}, {data}}));
    for (const std::optional<std::int64_t> axis : {std::optional<std::int64_t>(), std::optional<std::int64_t>(0),
                                                   std::optional<std::int64_t>(-1), std::optional<std::int64_t>(2)})
      EXPECT_TRUE(as_oracle({&ops::kRepeat, RepeatAttributes{3, axis}, {data}}));
    EXPECT_TRUE(as_oracle({&ops::kSliceLike, SliceLikeAttributes{{2, 3}}, {data, odd_numbers(dtype, {1, 1, 49, 33})}}));
  }
}

TEST(MovementKernels, PadInEveryMode) {
  for (const DType dtype : types_of(Numbers())) {
    for (const PadMode mode : {PadMode::kConstant, PadMode::kEdge, PadMode::kReflect}) {
      for (const Dims& widths : {Dims{0, 0, 0, 0, 2, 3, 4, 1}, Dims{0, 0, 0, 0, 3, 0, 0, 0}, Dims{1, 0, 0, 1, 0, 0, 0, 2}})
        EXPECT_TRUE(as_oracle({&ops::kPad, PadAttributes{mode, widths, 2.5}, {odd_numbers(dtype, {2, 3, 40, 70})}}));
    }
  }
}

}  // namespace
}  // namespace shoal::worker

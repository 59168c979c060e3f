// Operators that change shapes, repeat elements and cut tensors.
#include "tests/unit/worker/ops/by_hand.hpp"
#include "worker/ops/movement.hpp"
#include "worker/ops/repetition.hpp"
#include "worker/ops/reshape.hpp"

namespace shoal::worker::by_hand {
namespace {

Shape shape_of(const Result<std::vector<Tensor>>& results) { return results.ok() ? results->front().shape() : Shape::any(); }

TEST(ExpandDims, AddsAxesAnywhere) {
  const Tensor data = counted({2, 3});
  EXPECT_EQ(shape_of(run_node(ops::kExpandDims, ExpandDimsAttributes{{0}}, {data})), (Shape{1, 2, 3}));
  EXPECT_EQ(shape_of(run_node(ops::kExpandDims, ExpandDimsAttributes{{-1}}, {data})), (Shape{2, 3, 1}));
  EXPECT_EQ(shape_of(run_node(ops::kExpandDims, ExpandDimsAttributes{{-3}}, {data})), (Shape{1, 2, 3}));
  EXPECT_EQ(shape_of(run_node(ops::kExpandDims, ExpandDimsAttributes{{3, 1}}, {data})), (Shape{2, 1, 3, 1}));
  expect_error(run_node(ops::kExpandDims, ExpandDimsAttributes{{3}}, {data}), {"axis 3", "2x3"});
  expect_error(run_node(ops::kExpandDims, ExpandDimsAttributes{{-4}}, {data}), {"axis -4"});
  expect_error(run_node(ops::kExpandDims, ExpandDimsAttributes{{0, -4}}, {data}), {"axis -4"});
  expect_error(run_node(ops::kExpandDims, ExpandDimsAttributes{{0}}, {counted({1, 1, 1, 1, 1, 1, 1, 1})}), {"9"});
}

TEST(Squeeze, TakesAwayAxesOfOneElement) {
  const Tensor data = counted({1, 3, 1});
  EXPECT_EQ(shape_of(run_node(ops::kSqueeze, SqueezeAttributes{}, {data})), Shape{3});
  EXPECT_EQ(shape_of(run_node(ops::kSqueeze, SqueezeAttributes{{-1}}, {data})), (Shape{1, 3}));
  EXPECT_EQ(shape_of(run_node(ops::kSqueeze, SqueezeAttributes{}, {counted({1, 1})})), Shape{1});
  EXPECT_EQ(shape_of(run_node(ops::kSqueeze, SqueezeAttributes{{}, true}, {counted({1, 1})})), Shape{});
  expect_error(run_node(ops::kSqueeze, SqueezeAttributes{{1}}, {data}), {"axis 1", "1x3x1"});
  expect_error(run_node(ops::kSqueeze, SqueezeAttributes{{0, 0}}, {data}), {"axis 0"});
}

TEST(ReshapeLike, ReplacesSomeAxes) {
  const Tensor data = counted({6, 2});
  EXPECT_EQ(shape_of(run_node(ops::kReshapeLike, ReshapeLikeAttributes{}, {data, counted({3, 4})})), (Shape{3, 4}));
  EXPECT_EQ(shape_of(run_node(ops::kReshapeLike, ReshapeLikeAttributes{.end = -1, .like_end = 2}, {data, counted({2, 3, 9})})),
            (Shape{2, 3, 2}));
  expect_error(run_node(ops::kReshapeLike, ReshapeLikeAttributes{}, {data, counted({3, 5})}), {"6x2", "3x5"});
  expect_error(run_node(ops::kReshapeLike, ReshapeLikeAttributes{.begin = 2, .end = 1}, {data, data}), {"6x2"});
  expect_error(run_node(ops::kReshapeLike, ReshapeLikeAttributes{.like_begin = 3}, {data, data}), {"6x2"});
}

TEST(Broadcast, MakesAxesLonger) {
  expect_result(run_node(ops::kBroadcast, BroadcastAttributes{.axes = {1}, .sizes = {2}}, {counted({2, 1})}), {2, 2},
                {0, 0, 1, 1});
  expect_result(run_node(ops::kBroadcast, BroadcastAttributes{.sizes = {2, 0}}, {counted({1, 2})}), {2, 2}, {0, 1, 0, 1});
  expect_result(run_node(ops::kBroadcast, BroadcastAttributes{.sizes = {2, 2}}, {counted({2})}), {2, 2}, {0, 1, 0, 1});
  expect_result(run_node(ops::kBroadcast, BroadcastAttributes{}, {counted({2, 1}), counted({2, 3})}), {2, 3}, {0, 0, 0, 1, 1, 1});
  expect_result(run_node(ops::kBroadcast, BroadcastAttributes{.axes = {-2}, .like_axes = {0}}, {counted({1, 2}), counted({3})}),
                {3, 2}, {0, 1, 0, 1, 0, 1});
  expect_error(run_node(ops::kBroadcast, BroadcastAttributes{.axes = {0}, .sizes = {3}}, {counted({2, 1})}),
               {"axis 0", "2x1", "3"});
  expect_error(run_node(ops::kBroadcast, BroadcastAttributes{.sizes = {2}}, {counted({2, 1})}), {"2x1"});
  expect_error(run_node(ops::kBroadcast, BroadcastAttributes{.sizes = {0, 2}}, {counted({2})}), {"(0, 2)"});
  expect_error(run_node(ops::kBroadcast, BroadcastAttributes{}, {counted({1}), counted({2, 3})}), {"2x3"});
  expect_error(run_node(ops::kBroadcast, BroadcastAttributes{.axes = {0, 1}, .like_axes = {0}}, {counted({1, 1}), counted({2})}));
}

TEST(Tile, RepeatsTheWhole) {
  expect_result(run_node(ops::kTile, TileAttributes{{2}}, {counted({2, 2})}), {2, 4}, {0, 1, 0, 1, 2, 3, 2, 3});
  expect_result(run_node(ops::kTile, TileAttributes{{2, 1}}, {counted({2})}), {2, 2}, {0, 1, 0, 1});
  expect_result(run_node(ops::kTile, TileAttributes{{2, 2}}, {counted<std::int64_t>({1, 2})}), {2, 4}, {0, 1, 0, 1, 0, 1, 0, 1});
  expect_result(run_node(ops::kTile, TileAttributes{}, {counted({})}), {}, {0});
  expect_error(run_node(ops::kTile, TileAttributes{{0}}, {counted({2})}), {"(0)"});
  expect_error(run_node(ops::kTile, TileAttributes{{1, 1, 1, 1, 1, 1, 1, 1, 1}}, {counted({2})}), {"9"});
}

TEST(Repeat, RepeatsEachElementOrSlice) {
  expect_result(run_node(ops::kRepeat, RepeatAttributes{2, {}}, {counted({1, 2})}), {4}, {0, 0, 1, 1});
  expect_result(run_node(ops::kRepeat, RepeatAttributes{2, 0}, {counted({2, 2})}), {4, 2}, {0, 1, 0, 1, 2, 3, 2, 3});
  expect_result(run_node(ops::kRepeat, RepeatAttributes{2, -1}, {counted({2, 1})}), {2, 2}, {0, 0, 1, 1});
  expect_error(run_node(ops::kRepeat, RepeatAttributes{0, 0}, {counted({2})}), {"repeats"});
  expect_error(run_node(ops::kRepeat, RepeatAttributes{2, 1}, {counted({2})}), {"axis 1"});
}

TEST(SliceLike, CutsToTheSizesOfTheOther) {
  const Tensor data = counted({2, 3});
  expect_result(run_node(ops::kSliceLike, SliceLikeAttributes{}, {data, counted({1, 2})}), {1, 2}, {0, 1});
  expect_result(run_node(ops::kSliceLike, SliceLikeAttributes{{-1}}, {data, counted({9, 2, 9})}), {2, 2}, {0, 1, 3, 4});
  expect_error(run_node(ops::kSliceLike, SliceLikeAttributes{}, {data, counted({2})}), {"2x3"});
  expect_error(run_node(ops::kSliceLike, SliceLikeAttributes{{1}}, {data, counted({2, 4})}), {"axis 1", "2x4"});
  expect_error(run_node(ops::kSliceLike, SliceLikeAttributes{{1}}, {data, counted({2})}), {"axis 1"});
}

TEST(Split, MakesUnequalParts) {
  const auto uneven = run_node(ops::kSplit, SplitAttributes{.axis = 0, .parts = 3, .uneven = true}, {counted({7})}, 3);
  expect_result(uneven, {3}, {0, 1, 2}, 0);
  expect_result(uneven, {2}, {3, 4}, 1);
  expect_result(uneven, {2}, {5, 6}, 2);
  const auto placed = run_node(ops::kSplit, SplitAttributes{.axis = 1, .parts = 2, .starts = {0, 1}}, {counted({2, 3})}, 2);
  expect_result(placed, {2, 1}, {0, 3}, 0);
  expect_result(placed, {2, 2}, {1, 2, 4, 5}, 1);
  const auto split = [](Dims starts, std::size_t outputs, bool squeeze = false) {
    const auto parts = static_cast<std::int64_t>(starts.size());
    return run_node(ops::kSplit, SplitAttributes{.axis = 0, .parts = parts, .squeeze = squeeze, .starts = std::move(starts)},
                    {counted({3, 2})}, outputs);
  };
  EXPECT_EQ(shape_of(split({0, 1, 2}, 3, true)), Shape{2});
  expect_error(split({0, 2}, 2, true), {"squeezed"});
  expect_error(split({0, 3}, 2), {"part 1", "3x2"});
  expect_error(split({0, 2, 1}, 3), {"part 1"});
  expect_error(split({1, 2}, 2), {"(1, 2)"});
  expect_error(run_node(ops::kSplit, SplitAttributes{.axis = 0, .parts = 4, .uneven = true}, {counted({3})}, 4), {"part 3"});
}

}  // namespace
}  // namespace shoal::worker::by_hand

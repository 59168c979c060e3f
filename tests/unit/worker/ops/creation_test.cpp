// Tensors that are made of numbers and shapes.
#include "worker/ops/creation.hpp"

#include "tests/unit/worker/ops/by_hand.hpp"
#include "worker/ops/diagonal.hpp"

namespace shoal::worker::by_hand {
namespace {

TEST(Fill, TakesShapeAndTypeFromWhereTheyAreSaid) {
  expect_result(run_node(ops::kFill, FillAttributes{.value = 2.9, .shape = {2, 2}, .dtype = DType::kInt32}, {}), {2, 2},
                {2, 2, 2, 2});
  const auto like = run_node(ops::kFill, FillAttributes{.value = 1, .shape_of_input = true}, {counted<std::int8_t>({3})});
  expect_result(like, {3}, {1, 1, 1});
  EXPECT_EQ(like->front().dtype(), DType::kInt8);
  const auto typed = run_node(ops::kFill, FillAttributes{.shape = {1, 2}}, {counted<double>({3})});
  expect_result(typed, {1, 2}, {0, 0});
  EXPECT_EQ(typed->front().dtype(), DType::kFloat64);
  expect_result(run_node(ops::kFill, FillAttributes{.value = 0.5, .dtype = DType::kBool}, {}), {}, {1});
  expect_error(run_node(ops::kFill, FillAttributes{.shape = {2}}, {}));
  expect_error(run_node(ops::kFill, FillAttributes{.shape = {2, kOpenSize}, .dtype = DType::kFloat32}, {}), {"axis 1", "'y'"});
}

TEST(Range, CountsInItsType) {
  expect_result(
      run_node(ops::kRange, RangeAttributes{.start = 1, .step = 2, .repeat = 2, .count = 5, .dtype = DType::kFloat32}, {}), {5},
      {1, 1, 3, 3, 5});
  // Start and step are cut before they are added: 0.5 is 0.
  expect_result(run_node(ops::kRange, RangeAttributes{.start = 3.7, .step = 0.5, .count = 3, .dtype = DType::kInt32}, {}), {3},
                {3, 3, 3});
  expect_result(run_node(ops::kRange,
                         RangeAttributes{.start = -1, .step = 0.5, .count = 4, .in_float64 = true, .dtype = DType::kInt32}, {}),
                {4}, {-1, 0, 0, 0});
  expect_result(run_node(ops::kRange, RangeAttributes{.start = 254, .step = 1, .count = 4, .dtype = DType::kUInt8}, {}), {4},
                {254, 255, 0, 1});
  expect_result(run_node(ops::kRange, RangeAttributes{.axis = -1}, {counted({2, 3})}), {3}, {0, 1, 2});
  const auto like = run_node(ops::kRange, RangeAttributes{.start = 5, .step = -1}, {counted<double>({2, 2})});
  expect_result(like, {2, 2}, {5, 4, 3, 2});
  EXPECT_EQ(like->front().dtype(), DType::kFloat64);
  expect_error(run_node(ops::kRange, RangeAttributes{.count = kOpenSize, .dtype = DType::kFloat32}, {}), {"'y'"});
  expect_error(run_node(ops::kRange, RangeAttributes{.repeat = 0, .dtype = DType::kFloat32}, {}));
  expect_error(run_node(ops::kRange, RangeAttributes{}, {tensor_of<bool>({1}, {true})}), {"bool"});
  expect_error(run_node(ops::kRange, RangeAttributes{.axis = 2}, {counted({2, 3})}), {"axis 2"});
}

TEST(Eye, HasItsDiagonalAnywhere) {
  expect_result(run_node(ops::kEye, EyeAttributes{2, 3, 1}, {}), {2, 3}, {0, 1, 0, 0, 0, 1});
  expect_result(run_node(ops::kEye, EyeAttributes{2, 2, -1, DType::kUInt8}, {}), {2, 2}, {0, 0, 1, 0});
  expect_result(run_node(ops::kEye, EyeAttributes{2, 2, 7}, {}), {2, 2}, {0, 0, 0, 0});
  expect_error(run_node(ops::kEye, EyeAttributes{-1, 2, 0}, {}));
}

TEST(Positions, AreThoseOfTheListedAxes) {
  expect_result(run_node(ops::kPositions, PositionsAttributes{}, {counted({2, 2})}), {2, 2, 2}, {0, 0, 0, 1, 1, 0, 1, 1});
  expect_result(run_node(ops::kPositions, PositionsAttributes{{-1}}, {counted({2, 2})}), {2, 2, 1}, {0, 1, 0, 1});
  expect_error(run_node(ops::kPositions, PositionsAttributes{{2}}, {counted({2, 2})}), {"axis 2"});
}

TEST(ShapeOf, GivesSizesOrTheirProduct) {
  expect_result(run_node(ops::kShapeOf, ShapeOfAttributes{}, {counted({2, 0, 3})}), {3}, {2, 0, 3});
  expect_result(run_node(ops::kShapeOf, ShapeOfAttributes{true}, {counted({2, 4, 3})}), {1}, {24});
  expect_result(run_node(ops::kShapeOf, ShapeOfAttributes{}, {counted({})}), {0}, {});
}

TEST(Diagonal, IsTakenOrMade) {
  expect_result(run_node(ops::kDiagonal, DiagonalAttributes{}, {counted({2, 3})}), {2}, {0, 4});
  expect_result(run_node(ops::kDiagonal, DiagonalAttributes{.offset = 1}, {counted({2, 3})}), {2}, {1, 5});
  expect_result(run_node(ops::kDiagonal, DiagonalAttributes{.offset = -1}, {counted({2, 3})}), {1}, {3});
  expect_result(run_node(ops::kDiagonal, DiagonalAttributes{.offset = 0, .rows = 2, .columns = 0}, {counted({2, 3, 2})}), {3, 2},
                {0, 7, 2, 9, 4, 11});
  expect_result(run_node(ops::kDiagonal, DiagonalAttributes{.offset = 1}, {counted({2})}), {3, 3}, {0, 0, 0, 0, 0, 1, 0, 0, 0});
  expect_result(run_node(ops::kDiagonal, DiagonalAttributes{.offset = -1}, {tensor_of<float>({1}, {5})}), {2, 2}, {0, 0, 5, 0});
  expect_error(run_node(ops::kDiagonal, DiagonalAttributes{.offset = 3}, {counted({2, 3})}), {"2x3"});
  expect_error(run_node(ops::kDiagonal, DiagonalAttributes{.rows = 1, .columns = -1}, {counted({2, 3})}));
  expect_error(run_node(ops::kDiagonal, DiagonalAttributes{}, {counted({})}), {"scalar"});
}

}  // namespace
}  // namespace shoal::worker::by_hand

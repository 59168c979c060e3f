// Operators that look elements up, with numbers that are worked out by hand.
#include "worker/ops/indexing.hpp"

#include <limits>

#include "tests/unit/worker/ops/by_hand.hpp"

namespace shoal::worker::by_hand {
namespace {

/// Indices that a client may send: whatever they are, no kernel reads outside.
template <typename T>
std::vector<T> hostile() {
  using Limits = std::numeric_limits<T>;
  std::vector<T> values{Limits::lowest(), Limits::max(), T(0), T(1)};
  if constexpr (Limits::has_infinity)
    values.insert(values.end(), {T(kNan), T(kInfinity), T(-kInfinity), T(-0.5F), T(2147483647.F), T(-3e9F)});
  return values;
}

TEST(Take, ClipsAndWraps) {
  const Tensor data = counted({3, 2}), indices = tensor_of<float>({4}, {-1, 1.9F, 3, 100});
  expect_result(run_node(ops::kTake, TakeAttributes{}, {data, indices}), {4, 2}, {0, 1, 2, 3, 4, 5, 4, 5});
  expect_result(run_node(ops::kTake, TakeAttributes{.mode = IndexMode::kWrap}, {data, indices}), {4, 2},
                {4, 5, 2, 3, 0, 1, 2, 3});
  expect_result(run_node(ops::kTake, TakeAttributes{.axis = -1}, {data, tensor_of<std::int32_t>({2, 1}, {1, 0})}), {3, 2, 1},
                {1, 0, 3, 2, 5, 4});
}

TEST(Take, RaisesOnlyWhatLiesOutside) {
  const TakeAttributes raise{.mode = IndexMode::kRaise};
  expect_result(run_node(ops::kTake, raise, {counted({3}), tensor_of<std::int64_t>({2}, {2, 0})}), {2}, {2, 0});
  expect_error(run_node(ops::kTake, raise, {counted({3}), tensor_of<std::int64_t>({2}, {2, 3})}), {"1", "3 elements"});
  expect_error(run_node(ops::kTake, raise, {counted({3}), tensor_of<float>({1}, {kNan})}));
}

TEST(Take, ChecksTheTableOfAnEmbedding) {
  const TakeAttributes embedding{.table = {3, 2}};
  expect_result(run_node(ops::kTake, embedding, {counted({3, 2}), tensor_of<float>({}, {2})}), {2}, {4, 5});
  expect_error(run_node(ops::kTake, embedding, {counted({4, 2}), tensor_of<float>({1}, {2})}), {"weight", "4x2", "3x2"});
}

TEST(Take, HasNothingToTakeFromAnEmptyAxis) {
  expect_error(run_node(ops::kTake, TakeAttributes{}, {counted({0, 2}), tensor_of<float>({1}, {0})}), {"0x2"});
  expect_result(run_node(ops::kTake, TakeAttributes{}, {counted({0, 2}), tensor_of<float>({0}, {})}), {0, 2}, {});
  expect_error(run_node(ops::kTake, TakeAttributes{.axis = 2}, {counted({3, 2}), tensor_of<float>({1}, {0})}), {"axis 2"});
  expect_error(run_node(ops::kTake, TakeAttributes{}, {counted({3}), tensor_of<bool>({1}, {true})}), {"bool"});
}

TEST(Take, StaysInsideWhateverTheIndicesAre) {
  const auto run = [](const Tensor& indices) {
    for (const IndexMode mode : {IndexMode::kClip, IndexMode::kWrap})
      EXPECT_TRUE(run_node(ops::kTake, TakeAttributes{.mode = mode}, {counted({3, 2}), indices}).ok());
    EXPECT_TRUE(run_node(ops::kOneHot, OneHotAttributes{.depth = 3}, {indices}).ok());
    Tensor named = Tensor::create(indices.dtype(), {1, indices.shape()[0]}).value();
    std::copy_n(indices.view().data, indices.size_bytes(), named.view().data);
    EXPECT_TRUE(run_node(ops::kGatherNd, {}, {counted({3, 2}), named}).ok());
    EXPECT_TRUE(run_node(ops::kScatterNd, {}, {counted({3, 2}), named, counted({indices.shape()[0], 2})}).ok());
    EXPECT_TRUE(run_node(ops::kRavelIndex, RavelAttributes{{7}}, {named}).ok());
    EXPECT_TRUE(run_node(ops::kUnravelIndex, RavelAttributes{{2, 7}}, {indices}).ok());
  };
  const auto of = [&]<typename T>(T) {
    const std::vector<T> values = hostile<T>();
    run(tensor_of<T>({static_cast<std::int64_t>(values.size())}, values));
  };
  of(0.0F);
  of(0.0);
  of(std::int8_t{});
  of(std::uint8_t{});
  of(std::int32_t{});
  of(std::int64_t{});
  of(std::uint64_t{});
}

TEST(Pick, TakesOneOfEachRow) {
  const Tensor data = counted({2, 3}), index = tensor_of<float>({2}, {2, -5});
  expect_result(run_node(ops::kPick, PickAttributes{}, {data, index}), {2}, {2, 3});
  expect_result(run_node(ops::kPick, PickAttributes{.mode = IndexMode::kWrap, .keepdims = true}, {data, index}), {2, 1}, {2, 4});
  expect_result(run_node(ops::kPick, PickAttributes{.axis = 0}, {data, tensor_of<std::int32_t>({1, 3}, {1, 0, 7})}), {3},
                {3, 1, 5});
  expect_result(run_node(ops::kPick, PickAttributes{.axis = 0}, {counted({4}), tensor_of<float>({1}, {3})}), {1}, {3});
  expect_error(run_node(ops::kPick, PickAttributes{}, {data, tensor_of<float>({3}, {0, 0, 0})}), {"index", "3", "2"});
}

TEST(GatherNd, NamesElementsAndSlices) {
  const Tensor data = counted({2, 3});
  expect_result(run_node(ops::kGatherNd, {}, {data, tensor_of<float>({1, 2}, {1, 0})}), {2, 3}, {3, 4, 5, 0, 1, 2});
  expect_result(run_node(ops::kGatherNd, {}, {data, tensor_of<std::int32_t>({2, 2}, {-1, 0, -3, 2})}), {2}, {3, 2});
  // The size is added before the fraction is cut off: 2 - 0.5 is the last row.
  expect_result(run_node(ops::kGatherNd, {}, {data, tensor_of<float>({1, 1}, {-0.5F})}), {1, 3}, {3, 4, 5});
  expect_result(run_node(ops::kGatherNd, {}, {data, tensor_of<float>({2}, {1, 1})}), {}, {4});
  expect_error(run_node(ops::kGatherNd, {}, {data, tensor_of<float>({3, 1}, {0, 0, 0})}), {"3x1", "2x3"});
  expect_error(run_node(ops::kGatherNd, {}, {counted({0, 3}), tensor_of<float>({1, 1}, {0})}), {"0x3"});
}

TEST(ScatterNd, PutsSlicesInTheirPlaces) {
  const Tensor base = counted({3, 2}), indices = tensor_of<float>({1, 4}, {2, 0, 2, 5});
  const Tensor slices = tensor_of<float>({4, 2}, {10, 11, 20, 21, 30, 31, 40, 41});
  expect_result(run_node(ops::kScatterNd, {}, {base, indices, slices}), {3, 2}, {20, 21, 2, 3, 30, 31});
  expect_error(run_node(ops::kScatterNd, {}, {base, indices, counted({3, 2})}), {"data", "3x2", "4x2"});
  expect_error(run_node(ops::kScatterNd, {}, {base, indices, counted<double>({4, 2})}), {"float64"});
}

TEST(OneHot, LeavesOutWhatLiesOutside) {
  const OneHotAttributes attributes{.depth = 2, .on = 7, .off = -1, .dtype = DType::kInt32};
  expect_result(run_node(ops::kOneHot, attributes, {tensor_of<float>({4}, {1, 2, -0.5F, -1})}), {4, 2},
                {-1, 7, -1, -1, 7, -1, -1, -1});
  expect_error(run_node(ops::kOneHot, OneHotAttributes{.depth = 0}, {counted({2})}), {"depth"});
}

TEST(BooleanMask, FindsItsSize) {
  const Tensor data = counted({3, 2});
  expect_result(run_node(ops::kBooleanMask, {}, {data, tensor_of<float>({3}, {0, kNan, -1})}), {2, 2}, {2, 3, 4, 5});
  expect_result(run_node(ops::kBooleanMask, {}, {data, tensor_of<bool>({3}, {false, false, false})}), {0, 2}, {});
  expect_error(run_node(ops::kBooleanMask, {}, {data, counted({2})}), {"index"});
}

TEST(RavelIndex, CountsInRowMajorOrder) {
  const RavelAttributes shape{{2, 3, 4}};
  const Tensor named = tensor_of<std::int32_t>({3, 2}, {0, 1, 2, 1, 3, 0}), flat = tensor_of<float>({2}, {11, 16});
  expect_result(run_node(ops::kRavelIndex, shape, {named}), {2}, {11, 16});
  expect_result(run_node(ops::kUnravelIndex, shape, {flat}), {3, 2}, {0, 1, 2, 1, 3, 0});
  // The first size does not matter: such an index lies behind the others.
  expect_result(run_node(ops::kUnravelIndex, RavelAttributes{{-1, 4}}, {tensor_of<std::int64_t>({1}, {41})}), {2, 1}, {10, 1});
  expect_error(run_node(ops::kRavelIndex, RavelAttributes{{2, 3}}, {named}), {"3x2", "(2, 3)"});
  expect_error(run_node(ops::kUnravelIndex, RavelAttributes{{2, 0}}, {flat}), {"(2, 0)"});
  expect_error(run_node(ops::kUnravelIndex, RavelAttributes{{2, 3}}, {counted({2, 1})}), {"2x1", "Reshape"});
}

}  // namespace
}  // namespace shoal::worker::by_hand

// Operators of sparse tensors, with numbers that are worked out by hand.
#include "worker/ops/sparse.hpp"

#include <limits>
#include <numeric>

#include "tests/unit/worker/ops/by_hand.hpp"
#include "worker/ops/elements.hpp"

namespace shoal::worker::by_hand {
namespace {

using Indices = std::vector<std::int64_t>;

Tensor indices(const Indices& numbers) { return tensor_of<std::int64_t>({static_cast<std::int64_t>(numbers.size())}, numbers); }

/// 3 rows, 4 columns: [0 1 0 2], [], [3 0 0 0].
const Tensor kValues = tensor_of<float>({3}, {1, 2, 3}), kIndptr = indices({0, 2, 2, 3}), kColumns = indices({1, 3, 0});
const CsrAttributes kFour{4};
/// Rows 1 and 4 of 6: [1 2], [3 4].
const Tensor kStored = tensor_of<float>({2, 2}, {1, 2, 3, 4}), kRows = indices({1, 4});

constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::lowest(), kMost = std::numeric_limits<std::int64_t>::max();

TEST(Csr, IsMadeDense) {
  expect_result(run_node(ops::kCsrToDense, kFour, {kValues, kIndptr, kColumns}), {3, 4}, {0, 1, 0, 2, 0, 0, 0, 0, 3, 0, 0, 0});
  expect_result(run_node(ops::kCsrToDense, kFour, {tensor_of<float>({2}, {1, 2}), indices({0, 2}), indices({3, 3})}), {1, 4},
                {0, 0, 0, 2});
}

TEST(Csr, IsMultiplied) {
  const Tensor b = counted({4, 2});
  expect_result(run_node(ops::kSparseDot, SparseDotAttributes{4}, {kValues, kIndptr, kColumns, b}), {3, 2}, {14, 17, 0, 0, 0, 3});
  expect_result(run_node(ops::kSparseDot, SparseDotAttributes{4, true}, {kValues, kIndptr, kColumns, counted({3, 2})}), {4, 2},
                {12, 15, 0, 1, 0, 0, 0, 2});
  expect_result(run_node(ops::kDotSparse, SparseDotAttributes{4}, {counted({2, 3}), kValues, kIndptr, kColumns}), {2, 4},
                {6, 0, 0, 0, 15, 3, 0, 6});
  expect_result(run_node(ops::kDotSparse, SparseDotAttributes{4, true}, {counted({1, 4}), kValues, kIndptr, kColumns}), {1, 3},
                {7, 0, 0});
}

/// 4096 ones in one column, times ones: 2048 + 1 is 2048 in float16, and 256 + 1 is 256 in bfloat16.
template <typename T>
void expect_sums_in_float32() {
  constexpr std::int64_t kOnes = 4096;
  const auto ones = [](const Shape& shape) {
    return tensor_of<T>(shape, std::vector<T>(static_cast<std::size_t>(shape.element_count()), to_element<T>(1.0F)));
  };
  const auto expect_all = [](const Result<std::vector<Tensor>>& results) {
    ASSERT_TRUE(results.ok()) << results.status().to_string();
    EXPECT_EQ(static_cast<float>(reinterpret_cast<const T*>(results->front().view().data)[0]), 4096.0F);
  };
  Indices one_each(kOnes + 1);
  std::iota(one_each.begin(), one_each.end(), 0);
  const Tensor values = ones({kOnes}), column = indices(Indices(kOnes)), in_one_row = indices({0, kOnes}),
               in_rows = indices(one_each);
  expect_all(run_node(ops::kSparseDot, SparseDotAttributes{1}, {values, in_one_row, column, ones({1, 1})}));
  expect_all(run_node(ops::kSparseDot, SparseDotAttributes{1, true}, {values, in_rows, column, ones({kOnes, 1})}));
  expect_all(run_node(ops::kDotSparse, SparseDotAttributes{1}, {ones({1, kOnes}), values, in_rows, column}));
}

TEST(Csr, SumsHalvesInFloat32) {
  expect_sums_in_float32<Half>();
  expect_sums_in_float32<BFloat16>();
}

TEST(Csr, AddsNothingForWhatIsNotStored) {
  const Tensor b = tensor_of<float>({4, 1}, {1, 10, kNan, 100});
  expect_result(run_node(ops::kSparseDot, SparseDotAttributes{4}, {kValues, kIndptr, kColumns, b}), {3, 1}, {210, 0, 3});
}

TEST(Csr, MultipliesRowsOfWhichSomeAreStored) {
  const SparseDotAttributes product{6};
  const Tensor columns = indices({1, 2, 4});
  expect_result(run_node(ops::kSparseDot, product, {kValues, kIndptr, columns, kStored, kRows}), {3, 2}, {1, 2, 0, 0, 9, 12});
  const SparseDotAttributes transposed{6, true};  // of three rows, rows 1 and 2 are stored
  expect_result(run_node(ops::kSparseDot, transposed, {kValues, kIndptr, columns, kStored, indices({1, 2})}), {6, 2},
                {0, 0, 0, 0, 0, 0, 0, 0, 9, 12, 0, 0});
}

TEST(Csr, RefusesWhatDoesNotFit) {
  expect_error(run_node(ops::kSparseDot, SparseDotAttributes{4}, {kValues, kIndptr, kColumns, counted({3, 2})}), {"3x4", "3x2"});
  expect_error(run_node(ops::kCsrToDense, kFour, {kValues, kIndptr, indices({1, 3})}), {"indices"});
  expect_error(run_node(ops::kCsrToDense, kFour, {kValues, indices({}), kColumns}), {"empty"});
  expect_error(run_node(ops::kCsrToDense, kFour, {kValues, counted({4}), kColumns}), {"float32", "int64"});
}

// They come from nobody who could be trusted, and are checked before. If something is wrong all the same, nothing lies outside.
TEST(Csr, ReadsNothingOutside) {
  for (const std::int64_t wild : {kLeast, kMost, std::int64_t{-1}, std::int64_t{4}, (std::int64_t{1} << 31) - 1}) {
    for (std::size_t place = 0; place < 4; ++place) {
      Indices bounds{0, 2, 2, 3};
      bounds[place] = wild;
      const std::vector<Tensor> csr{kValues, indices(bounds), indices({wild, 3, wild})};
      std::vector<Tensor> product = csr, of_rows = csr;
      product.push_back(counted({4, 2}));
      of_rows.insert(of_rows.end(), {kStored, indices({wild, wild})});
      EXPECT_TRUE(run_node(ops::kCsrToDense, kFour, csr).ok());
      EXPECT_TRUE(run_node(ops::kSparseDot, SparseDotAttributes{4}, product).ok());
      product[3] = counted({3, 2});
      EXPECT_TRUE(run_node(ops::kSparseDot, SparseDotAttributes{4, true}, product).ok());
      EXPECT_TRUE(run_node(ops::kSparseDot, SparseDotAttributes{4, true}, of_rows).ok());
      std::vector<Tensor> right = csr;
      right.insert(right.begin(), counted({2, 3}));
      EXPECT_TRUE(run_node(ops::kDotSparse, SparseDotAttributes{4}, right).ok());
      right[0] = counted({2, 4});
      EXPECT_TRUE(run_node(ops::kDotSparse, SparseDotAttributes{4, true}, right).ok());
      EXPECT_TRUE(run_node(ops::kRowsToDense, RowsAttributes{6}, {kStored, indices({wild, wild})}).ok());
      EXPECT_TRUE(run_node(ops::kTakeRows, TakeRowsAttributes{6}, {kStored, indices({wild, wild}), indices({wild})}).ok());
      EXPECT_TRUE(run_node(ops::kRetainRows, {}, {kStored, indices({wild}), indices({wild, wild})}).ok());
    }
  }
}

TEST(CheckCsr, GivesInt64) {
  const Tensor indptr = tensor_of<std::int32_t>({3}, {0, 1, 2}), columns = tensor_of<std::int32_t>({3}, {3, 0, -7});
  const auto checked = run_node(ops::kCheckCsr, kFour, {kValues, indptr, columns}, 2);
  expect_result(checked, {3}, {0, 1, 2});
  expect_result(checked, {3}, {3, 0, 0}, 1);
  EXPECT_EQ(checked->at(0).dtype(), DType::kInt64);
  EXPECT_EQ(checked->at(1).dtype(), DType::kInt64);
}

TEST(CheckCsr, NamesTheElementThatIsWrong) {
  const auto check = [](const Indices& indptr, const Indices& columns) {
    return run_node(ops::kCheckCsr, kFour, {kValues, indices(indptr), indices(columns)}, 2);
  };
  expect_error(check({1, 2, 3}, {0, 0, 0}), {"element 0 of 'n.indptr' is 1", "begins at 0"});
  expect_error(check({0, 2, 1}, {0, 0, 0}), {"element 2 of 'n.indptr' is 1", "at 2"});
  expect_error(check({0, 4}, {0, 0, 0}), {"element 1 of 'n.indptr' is 4", "3 values"});
  expect_error(check({0, kMost}, {0, 0, 0}), {"indptr"});
  expect_error(check({0, kLeast}, {0, 0, 0}), {"indptr"});
  expect_error(check({0, 3}, {0, -1, 0}), {"element 1 of 'n.indices' is -1", "columns 0 to 3"});
  expect_error(check({0, 3}, {0, 0, 4}), {"element 2 of 'n.indices' is 4"});
  expect_error(check({0, 3}, {2147483647, 0, 0}), {"2147483647"});
  expect_error(run_node(ops::kCheckCsr, kFour, {kValues, counted({2}), indices({0, 0, 0})}, 2), {"float32", "int32 or int64"});
}

TEST(Rows, AreMadeDense) {
  expect_result(run_node(ops::kRowsToDense, RowsAttributes{6}, {kStored, kRows}), {6, 2}, {0, 0, 1, 2, 0, 0, 0, 0, 3, 4, 0, 0});
  expect_error(run_node(ops::kRowsToDense, RowsAttributes{6}, {kStored, indices({1})}), {"rows"});
}

TEST(Rows, AreTakenAndWhatIsNotStoredIsZero) {
  const Tensor ids = tensor_of<float>({2, 2}, {4.7F, 0, -3, 100});
  expect_result(run_node(ops::kTakeRows, TakeRowsAttributes{5}, {kStored, kRows, ids}), {2, 2, 2}, {3, 4, 0, 0, 0, 0, 3, 4});
  const TakeRowsAttributes wraps{5, IndexMode::kWrap};
  expect_result(run_node(ops::kTakeRows, wraps, {kStored, kRows, indices({-1, 6})}), {2, 2}, {3, 4, 1, 2});
  expect_error(run_node(ops::kTakeRows, TakeRowsAttributes{5, IndexMode::kClip, {7, 2}}, {kStored, kRows, ids}),
               {"weight", "7x2"});
}

TEST(Rows, AreRetained) {
  const Tensor ids = tensor_of<float>({4}, {0, 4, kNan, 3e9F});
  expect_result(run_node(ops::kRetainRows, {}, {kStored, ids, kRows}), {2, 2}, {0, 0, 3, 4});
  expect_result(run_node(ops::kRetainRows, {}, {counted({3, 1}), indices({2, -1})}), {3, 1}, {0, 0, 2});
}

TEST(CheckRows, NamesTheRowThatIsWrong) {
  const auto check = [](const Indices& rows) { return run_node(ops::kCheckRows, RowsAttributes{6}, {kStored, indices(rows)}); };
  expect_result(check({0, 5}), {2}, {0, 5});
  expect_error(check({1, 1}), {"element 1 of 'n.indices' is 1", "ascend"});
  expect_error(check({1, 6}), {"rows 0 to 5"});
  expect_error(check({kLeast, 1}), {"element 0"});
}

}  // namespace
}  // namespace shoal::worker::by_hand

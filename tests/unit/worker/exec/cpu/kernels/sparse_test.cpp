// Kernels of sparse tensors.
#include <algorithm>

#include "tests/unit/worker/exec/cpu/kernels/as_oracle.hpp"
#include "worker/ops/sparse.hpp"

namespace shoal::worker {
namespace {

using testing::as_oracle;
using testing::odd_numbers;
using testing::types_of;

Tensor indices(std::int64_t count, const auto& number) {
  Tensor tensor = Tensor::create(DType::kInt64, {count}).value();
  for (std::int64_t i = 0; i < count; ++i) tensor.values<std::int64_t>()[static_cast<std::size_t>(i)] = number(i);
  return tensor;
}

constexpr std::int64_t kLines = 301, kColumns = 97, kEach = 23, kCount = kLines * kEach;

/// kLines x kColumns with kEach elements in each row.
std::vector<Tensor> csr(DType dtype) {
  return {odd_numbers(dtype, {kCount}), indices(kLines + 1, [](std::int64_t i) { return i * kEach; }),
          indices(kCount, [](std::int64_t i) { return i * 31 % kColumns; })};
}

std::vector<Tensor> with(std::vector<Tensor> tensors, const std::vector<Tensor>& more) {
  tensors.insert(tensors.end(), more.begin(), more.end());
  return tensors;
}

TEST(SparseKernels, MultiplyAsTheOracle) {
  for (const DType dtype : types_of(Floats())) {
    const std::vector<Tensor> matrix = csr(dtype);
    const Tensor rows = indices(50, [](std::int64_t i) { return 2 * i; });
    const bool sums_in_place = dtype == DType::kFloat32 || dtype == DType::kFloat64;  // else the oracle kernel runs what scatters
    for (const std::int64_t width : {1, 2, 64, 150}) {
      const SparseDotAttributes plain{kColumns}, transposed{kColumns, true};
      EXPECT_TRUE(as_oracle({&ops::kSparseDot, plain, with(matrix, {odd_numbers(dtype, {kColumns, width}, 2)})}));
      EXPECT_TRUE(as_oracle({&ops::kSparseDot, plain, with(matrix, {odd_numbers(dtype, {50, width}, 2), rows})}));
      if (!sums_in_place) continue;
      EXPECT_TRUE(as_oracle({&ops::kSparseDot, transposed, with(matrix, {odd_numbers(dtype, {kLines, width}, 2)})}));
      EXPECT_TRUE(as_oracle({&ops::kSparseDot, transposed, with(matrix, {odd_numbers(dtype, {50, width}, 2), rows})}));
    }
    if (!sums_in_place) continue;
    EXPECT_TRUE(as_oracle({&ops::kDotSparse, SparseDotAttributes{kColumns}, with({odd_numbers(dtype, {40, kLines})}, matrix)}));
    EXPECT_TRUE(
        as_oracle({&ops::kDotSparse, SparseDotAttributes{kColumns, true}, with({odd_numbers(dtype, {40, kColumns})}, matrix)}));
  }
}

TEST(SparseKernels, CopyElementsOfEveryType) {
  const Tensor rows = indices(200, [](std::int64_t i) { return 3 * i; });
  for (const DType dtype : types_of(AnyTypes())) {
    EXPECT_TRUE(as_oracle({&ops::kCsrToDense, CsrAttributes{kColumns}, csr(dtype)}));
    const Tensor stored = odd_numbers(dtype, {200, 5, 13});
    EXPECT_TRUE(as_oracle({&ops::kRowsToDense, RowsAttributes{700}, {stored, rows}}));
    for (const IndexMode mode : {IndexMode::kClip, IndexMode::kWrap}) {
      for (const DType of_ids : types_of(Numbers())) {
        EXPECT_TRUE(as_oracle({&ops::kTakeRows, TakeRowsAttributes{700, mode}, {stored, rows, odd_numbers(of_ids, {40, 9})}}));
      }
    }
  }
}

}  // namespace
}  // namespace shoal::worker

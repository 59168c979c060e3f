// Products of matrices, through the importer's lowering and the oracle kernels. The numbers are worked out by hand.
#include <gtest/gtest.h>

#include "tests/unit/worker/ops/one_node.hpp"
#include "worker/graph/operators.hpp"
#include "worker/ops/products.hpp"

namespace shoal::worker {
namespace {

using namespace one_node;

const Tensor kA = tensor({1, 2, 2}, {1, 2, 3, 4}), kB = tensor({1, 2, 2}, {5, 6, 7, 8});

TEST(Products, BatchDotTransposesTheLastTwoAxes) {
  EXPECT_TRUE(gives("batch_dot", {}, {kA, kB}, {1, 2, 2}, {19, 22, 43, 50}));
  EXPECT_TRUE(gives("batch_dot", {{"transpose_a", "True"}}, {kA, kB}, {1, 2, 2}, {26, 30, 38, 44}));
  EXPECT_TRUE(gives("batch_dot", {{"transpose_b", "True"}}, {kA, kB}, {1, 2, 2}, {17, 23, 39, 53}));
  EXPECT_TRUE(gives("batch_dot", {{"transpose_a", "1"}, {"transpose_b", "1"}}, {kA, kB}, {1, 2, 2}, {23, 31, 34, 46}));
}

TEST(Products, BatchDotRefusesMatricesAndWhatDoesNotFit) {
  EXPECT_TRUE(refuses("batch_dot", {}, {tensor({2, 2}, {}), tensor({2, 2}, {})}, "3 or more axes"));
  EXPECT_TRUE(refuses("batch_dot", {}, {kA, tensor({2, 2, 2}, {})}, "must be equal"));
  EXPECT_TRUE(refuses("batch_dot", {}, {kA, tensor({1, 3, 2}, {})}, "axes 2 and 1"));
  EXPECT_TRUE(refuses("batch_dot", {}, {kA, tensor<std::int32_t>({1, 2, 2}, {})}, "int32"));
}

TEST(Products, DotContractsTheLastAxisWithTheFirst) {
  EXPECT_TRUE(gives("dot", {}, {tensor({2}, {1, 2}), tensor({2}, {3, 4})}, {1}, {11}));
  EXPECT_TRUE(gives("dot", {}, {kA, tensor({2, 1}, {1, 1})}, {1, 2, 1}, {3, 7}));
  EXPECT_TRUE(gives("dot", {}, {tensor({2}, {1, 10}), tensor({2, 3}, {1, 2, 3, 4, 5, 6})}, {3}, {41, 52, 63}));
  EXPECT_TRUE(gives("dot", {{"transpose_a", "True"}}, {tensor({2, 1, 2}, {1, 2, 3, 4}), tensor({2}, {1, 1})}, {1, 2}, {4, 6}));
  EXPECT_TRUE(gives("dot", {{"transpose_b", "True"}}, {tensor({1, 2}, {1, 10}), tensor({3, 2}, {1, 2, 3, 4, 5, 6})}, {1, 3},
                    {21, 43, 65}));
  EXPECT_TRUE(refuses("dot", {}, {tensor({2}, {}), tensor({3}, {})}, "axes 0 and 0"));
  EXPECT_TRUE(refuses("dot", {{"transpose_a", "True"}}, {tensor({2}, {}), tensor({2}, {})}, "vector"));
}

TEST(Products, OfNothingAreZeros) {
  EXPECT_TRUE(gives("dot", {}, {tensor({2, 0}, {}), tensor({0, 2}, {})}, {2, 2}, {0, 0, 0, 0}));
  EXPECT_TRUE(gives("batch_dot", {}, {tensor({0, 2, 1}, {}), tensor({0, 1, 2}, {})}, {0, 2, 2}, {}));
}

TEST(Products, GemmScalesAddsAndTakesRowsFromAnyAxis) {
  const Tensor rows = tensor({2, 1, 2}, {1, 2, 3, 4}), columns = tensor({2, 1, 1}, {1, 1});
  EXPECT_TRUE(gives("_linalg_gemm2", {{"axis", "0"}, {"alpha", "0.5"}}, {rows, columns}, {2, 1, 1}, {1.5, 3.5}));
  const Tensor a = tensor({1, 1}, {2}), b = tensor({1, 1}, {3});
  EXPECT_TRUE(gives("_linalg_gemm", {{"alpha", "2"}, {"beta", "0.5"}}, {a, b, tensor({1, 1}, {5})}, {1, 1}, {14.5}));
  EXPECT_TRUE(gives("_linalg_gemm", {{"beta", "0"}}, {a, b, tensor({1, 1}, {kNan})}, {1, 1}, {6}));
  EXPECT_TRUE(gives("_linalg_syrk", {}, {tensor({1, 2}, {1, 2})}, {1, 1}, {5}));
  EXPECT_TRUE(gives("_linalg_syrk", {{"transpose", "True"}}, {tensor({1, 2}, {1, 2})}, {2, 2}, {1, 2, 2, 4}));
}

TEST(Products, NumpysMatmulBroadcastsAndItsDotGivesScalars) {
  const Tensor two = tensor({2, 1, 2}, {1, 2, 3, 4}), one = tensor({2, 1}, {1, 10});
  EXPECT_TRUE(gives("_npi_matmul", {}, {two, one}, {2, 1, 1}, {21, 43}));
  EXPECT_TRUE(
      gives("_npi_matmul", {}, {tensor({2, 1, 1, 1}, {2, 3}), tensor({2, 1, 1}, {5, 7})}, {2, 2, 1, 1}, {10, 14, 15, 21}));
  EXPECT_TRUE(gives("_np_dot", {}, {tensor({2}, {1, 2}), tensor({2}, {3, 4})}, Shape(), {11}));
  EXPECT_TRUE(gives("_np_dot", {}, {tensor({2}, {1, 10}), tensor({2, 2, 1}, {1, 2, 3, 4})}, {2, 1}, {21, 43}));
  EXPECT_TRUE(gives("_np_dot", {}, {tensor({}, {3}), tensor({2}, {3, 4})}, {2}, {9, 12}));
  EXPECT_TRUE(refuses("_np_dot", {}, {tensor({2}, {}), tensor({2, 3, 2}, {})}, "differ"));
  EXPECT_TRUE(gives("_npi_matmul", {}, {tensor({2}, {1, 10}), tensor({2}, {3, 4})}, Shape(), {43}));
  EXPECT_TRUE(gives("_npi_matmul", {}, {tensor({1, 2}, {1, 10}), tensor({2}, {3, 4})}, {1}, {43}));
  EXPECT_TRUE(gives("_npi_matmul", {}, {tensor({2}, {1, 10}), tensor({3, 2, 1}, {1, 2, 3, 4, 5, 6})}, {3, 1}, {21, 43, 65}));
  EXPECT_TRUE(refuses("_npi_matmul", {}, {tensor({}, {3}), tensor({2}, {3, 4})}, "axes are needed"));
}

TEST(Products, KhatriRaoMultipliesColumnByColumn) {
  const Tensor a = tensor({2, 2}, {1, 2, 3, 4}), b = tensor({2, 2}, {5, 6, 7, 8});
  EXPECT_TRUE(gives("khatri_rao", {{"num_args", "2"}}, {a, b}, {4, 2}, {5, 12, 7, 16, 15, 24, 21, 32}));
  EXPECT_TRUE(refuses("khatri_rao", {}, {a, tensor({2, 3}, {})}, "columns"));
}

TEST(Products, KeepAnOpenBatch) {
  DimTable table;
  const Dim batch = table.symbol("batch", {1, 64});
  const Node node{.op = &ops::kMatMul, .name = "p", .attributes = MatMulAttributes{}};
  const std::array<TypedValue, 2> src{{{"a", DType::kFloat32, {batch, 2, 3}}, {"b", DType::kFloat32, {batch, 3, 4}}}};
  std::array<TypedValue, 1> dst;
  ASSERT_TRUE(node.op->infer(node, src, dst).ok());
  EXPECT_TRUE(dst[0].shape == (SymbolicShape{batch, 2, 4}));
}

}  // namespace
}  // namespace shoal::worker

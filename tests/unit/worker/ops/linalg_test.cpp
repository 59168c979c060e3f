// Triangles, diagonals, norms, moments, running sums and NumPy's names, through the importer's lowering. Worked out by hand.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/worker/ops/one_node.hpp"

namespace shoal::worker {
namespace {

using namespace one_node;

// What lies on the other side of the diagonal does not count.
const Tensor kLower = tensor({2, 2}, {2, 9, 1, 4}), kUpper = tensor({2, 2}, {2, 1, 9, 4});

TEST(Triangles, AreSolvedFromBothSides) {
  const Tensor column = tensor({2, 1}, {2, 9}), row = tensor({1, 2}, {5, 8});
  EXPECT_TRUE(gives("_linalg_trsm", {}, {kLower, column}, {2, 1}, {1, 2}));
  EXPECT_TRUE(gives("_linalg_trsm", {{"alpha", "2"}}, {kLower, column}, {2, 1}, {2, 4}));
  EXPECT_TRUE(gives("_linalg_trsm", {{"rightside", "True"}}, {kLower, row}, {1, 2}, {1.5, 2}));
  EXPECT_TRUE(gives("_linalg_trsm", {{"transpose", "True"}}, {kLower, tensor({2, 1}, {5, 8})}, {2, 1}, {1.5, 2}));
  EXPECT_TRUE(gives("_linalg_trsm", {{"lower", "False"}}, {kUpper, tensor({2, 1}, {5, 8})}, {2, 1}, {1.5, 2}));
  EXPECT_TRUE(refuses("_linalg_trsm", {}, {kLower, row}, "in0"));
  EXPECT_TRUE(refuses("_linalg_trsm", {}, {tensor({2, 3}, {}), column}, "square"));
}

TEST(Triangles, AreMultiplied) {
  EXPECT_TRUE(gives("_linalg_trmm", {}, {kLower, tensor({2, 1}, {1, 2})}, {2, 1}, {2, 9}));
  EXPECT_TRUE(gives("_linalg_trmm", {{"lower", "False"}}, {kUpper, tensor({2, 1}, {1, 2})}, {2, 1}, {4, 8}));
  EXPECT_TRUE(gives("_linalg_trmm", {{"rightside", "True"}}, {kLower, tensor({1, 2}, {1, 2})}, {1, 2}, {4, 8}));
}

// The numbers are MXNet's: BLAS computes no product that counts nothing.
TEST(Products, ThatCountNothingAreZeroWhateverIsMultiplied) {
  const Tensor nan = tensor({2, 2}, {NAN, NAN, INFINITY, NAN}), ones = tensor({2, 2}, {1, 1, 1, 1});
  for (const char* op : {"_linalg_gemm2", "_linalg_trmm", "_linalg_trsm"})
    EXPECT_TRUE(gives(op, {{"alpha", "0"}}, {nan, ones}, {2, 2}, {0, 0, 0, 0})) << op;
  EXPECT_TRUE(gives("_linalg_syrk", {{"alpha", "0"}}, {nan}, {2, 2}, {0, 0, 0, 0}));
}

TEST(Triangles, AreTakenOutAndPutBack) {
  const Tensor nine = tensor({3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  EXPECT_TRUE(gives("_linalg_extracttrian", {}, {nine}, {6}, {1, 4, 5, 7, 8, 9}));
  EXPECT_TRUE(gives("_linalg_extracttrian", {{"lower", "False"}}, {nine}, {6}, {1, 2, 5, 3, 6, 9}));
  EXPECT_TRUE(gives("_linalg_extracttrian", {{"offset", "1"}}, {nine}, {3}, {2, 3, 6}));
  EXPECT_TRUE(gives("_linalg_extracttrian", {{"offset", "-2"}}, {nine}, {1}, {7}));
  EXPECT_TRUE(gives("_linalg_maketrian", {}, {tensor({3}, {1, 2, 3})}, {2, 2}, {1, 0, 2, 3}));
  EXPECT_TRUE(gives("_linalg_maketrian", {{"offset", "1"}}, {tensor({1, 1}, {5})}, {1, 2, 2}, {0, 5, 0, 0}));
  EXPECT_TRUE(refuses("_linalg_maketrian", {}, {tensor({4}, {})}, "4 elements"));
  EXPECT_TRUE(refuses("_linalg_extracttrian", {{"offset", "3"}}, {nine}, "no triangle 3"));
}

TEST(Diagonals, AreTakenOutPutBackAndSummed) {
  const Tensor four = tensor({1, 2, 2}, {1, 2, 3, 4});
  EXPECT_TRUE(gives("_linalg_extractdiag", {}, {four}, {1, 2}, {1, 4}));
  EXPECT_TRUE(gives("_linalg_extractdiag", {{"offset", "1"}}, {four}, {1, 1}, {2}));
  EXPECT_TRUE(gives("_linalg_extractdiag", {{"offset", "-1"}}, {four}, {1, 1}, {3}));
  EXPECT_TRUE(gives("_linalg_makediag", {}, {tensor({2}, {1, 2})}, {2, 2}, {1, 0, 0, 2}));
  EXPECT_TRUE(gives("_linalg_makediag", {{"offset", "-1"}}, {tensor({1}, {5})}, {2, 2}, {0, 0, 5, 0}));
  EXPECT_TRUE(gives("_linalg_sumlogdiag", {}, {tensor({2, 2}, {2.718281828, 7, 7, 1})}, {1}, {1}));
  EXPECT_TRUE(refuses("_linalg_extractdiag", {{"offset", "2147483647"}}, {four}, "offset"));
  EXPECT_TRUE(refuses("_linalg_extractdiag", {}, {tensor({2, 3}, {})}, "square"));
  EXPECT_TRUE(refuses("_linalg_extractdiag", {}, {tensor({2}, {})}, "in0"));
}

// The numbers are MXNet's. What lies on the other side of the diagonal does not count.
const Tensor kSymmetric = tensor({3, 3}, {4, 2, 9, 2, 5, 3, 1, 3, 6});

TEST(Factorizations, IntoATriangleAndOrthonormalRowsHaveLapacksSigns) {
  const Tensor a = tensor({2, 3}, {-1, 2, 3, 4, -5, 6});
  EXPECT_TRUE(gives("_linalg_gelqf", {}, {a}, {2, 3}, {-.26726115, .5345225, .8017837, .49206775, -.6396882, .5904814}));
  EXPECT_TRUE(gives("_linalg_gelqf", {}, {a}, {2, 2}, {3.7416575, 0, 1.0690453, 8.7096}, 1));
  EXPECT_TRUE(gives("_linalg_gelqf", {}, {tensor({2, 3}, {1, 2, 3, 4, 5, 6})}, {2, 2}, {-3.7416575, 0, -8.552359, 1.9639606}, 1));
  EXPECT_TRUE(gives("_linalg_gelqf", {}, {tensor({1, 2, 3}, {2, 0, 0, 1, 0, 0})}, {1, 2, 3}, {1, 0, 0, 0, 1, 0}));
  EXPECT_TRUE(refuses("_linalg_gelqf", {}, {tensor({2, 1}, {})}, "higher than wide"));
}

TEST(Factorizations, IntoEigenvectorsAreSortedAndHaveASign) {
  EXPECT_TRUE(gives("_linalg_syevd", {}, {kSymmetric}, {3, 3},
                    {-.5145402, .7460847, -.42261833, .7758761, .1952709, -.5999049, .36505473, .6365745, .6793438}));
  EXPECT_TRUE(gives("_linalg_syevd", {}, {kSymmetric}, {3}, {1.9213464, 3.7301586, 9.348494}, 1));
  const double half = std::sqrt(0.5);
  EXPECT_TRUE(gives("_linalg_syevd", {}, {tensor({2, 2}, {2, -1, -1, 2})}, {2, 2}, {half, half, half, -half}));
}

TEST(Determinants, AndInverses) {
  EXPECT_TRUE(gives("_linalg_inverse", {}, {tensor<double>({1, 2, 2}, {1, 2, 3, 4})}, {1, 2, 2}, {-2, 1, 1.5, -.5}));
  EXPECT_TRUE(gives("_linalg_inverse", {}, {tensor({2, 2}, {0, 1, 2, 4})}, {2, 2}, {-2, .5, 1, 0}));
  const Tensor singular = tensor({2, 2}, {1, 2, 2, 4});
  EXPECT_TRUE(refuses("_linalg_inverse", {}, {singular}, "singular"));
  EXPECT_TRUE(gives("_linalg_det", {}, {kSymmetric}, {1}, {75}));
  EXPECT_TRUE(gives("_linalg_det", {}, {tensor({3, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})}, {3}, {-2, -2, -2}));
  EXPECT_TRUE(gives("_linalg_det", {}, {singular}, {1}, {0}));
  EXPECT_TRUE(gives("_linalg_slogdet", {}, {tensor({2, 2}, {0, 1, 2, 4})}, {1}, {-1}));
  EXPECT_TRUE(gives("_linalg_slogdet", {}, {tensor({2, 2}, {0, 1, 2, 4})}, {1}, {.6931472}, 1));
  EXPECT_TRUE(gives("_linalg_slogdet", {}, {singular}, {1}, {-kInfinity}, 1));
}

TEST(Determinants, OfMatricesWithoutElementsAreEmptyProducts) {
  const Tensor none = tensor({2, 0, 0}, {});
  EXPECT_TRUE(gives("_linalg_det", {}, {none}, {2}, {1, 1}));
  EXPECT_TRUE(gives("_linalg_slogdet", {}, {none}, {2}, {1, 1}));
  EXPECT_TRUE(gives("_linalg_slogdet", {}, {none}, {2}, {0, 0}, 1));
  EXPECT_TRUE(gives("_linalg_syevd", {}, {none}, {2, 0}, {}, 1));
}

TEST(Norms, DoNotOverflow) {
  EXPECT_TRUE(gives("norm", {}, {tensor({2}, {3, -4})}, {1}, {5}));
  EXPECT_TRUE(gives("norm", {{"ord", "1"}, {"axis", "1"}, {"keepdims", "1"}}, {tensor({1, 2}, {3, -4})}, {1, 1}, {7}));
  const auto large = apply("norm", {}, {tensor({2}, {3e30, 4e30})});
  EXPECT_FLOAT_EQ(large->front().tensor.values<float>()[0], 5e30F);
  EXPECT_TRUE(refuses("norm", {{"ord", "3"}}, {tensor({2}, {})}, "ord"));
}

TEST(Moments, AreMeanAndVariance) {
  const Tensor x = tensor({2, 2}, {1, 3, 5, 5});
  EXPECT_TRUE(gives("moments", {{"axes", "(1,)"}}, {x}, {2}, {2, 5}));
  EXPECT_TRUE(gives("moments", {{"axes", "(1,)"}}, {x}, {2}, {1, 0}, 1));
  EXPECT_TRUE(gives("moments", {{"axes", "(1,)"}, {"keepdims", "True"}}, {x}, {2, 1}, {1, 0}, 1));
}

TEST(RunningSums, RunAlongAnAxisOrOverAll) {
  const Tensor x = tensor({2, 2}, {1, 2, 3, 4});
  EXPECT_TRUE(gives("_np_cumsum", {}, {x}, {4}, {1, 3, 6, 10}));
  EXPECT_TRUE(gives("_np_cumsum", {{"axis", "0"}}, {x}, {2, 2}, {1, 2, 4, 6}));
  EXPECT_TRUE(gives("_np_cumsum", {{"axis", "-1"}, {"dtype", "int32"}}, {x}, {2, 2}, {1, 3, 3, 7}));
  EXPECT_TRUE(gives("cumsum", {{"axis", "0"}}, {tensor<std::uint8_t>({2}, {200, 100})}, {2}, {200, 44}));
  EXPECT_TRUE(refuses("cumsum", {{"axis", "2"}}, {x}, "axis 2"));
}

}  // namespace
}  // namespace shoal::worker

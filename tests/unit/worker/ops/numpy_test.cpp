// Names of MXNet's NumPy interface: their types, and rules that MXNet's own answers (tests/golden/numpy) do not show.
#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "tests/unit/worker/ops/by_hand.hpp"
#include "tests/unit/worker/ops/one_node.hpp"
#include "worker/ops/searching.hpp"
#include "worker/ops/solving.hpp"

namespace shoal::worker {
namespace {

using one_node::apply;
using one_node::bools;
using one_node::gives;
using one_node::refuses;
using one_node::tensor;
using one_node::Texts;

DType type_of(const std::string& op, const Texts& attributes, const std::vector<Tensor>& inputs) {
  const auto results = apply(op, attributes, inputs);
  EXPECT_TRUE(results.ok()) << op << ": " << results.status().to_string();
  return results.ok() ? results->front().tensor.dtype() : DType::kInvalid;
}

/// MXNet has no mean of nothing to subtract.
TEST(NumpyNames, VarianceOfNothingIsNan) {
  for (const char* const name : {"_npi_var", "_npi_std"}) {
    EXPECT_TRUE(gives(name, {{"axis", "(0,)"}}, {tensor({0, 2}, {})}, {2}, {one_node::kNan, one_node::kNan}));
    EXPECT_TRUE(gives(name, {}, {tensor({0, 2}, {})}, Shape(), {one_node::kNan}));
    EXPECT_TRUE(gives(name, {{"axis", "(1,)"}}, {tensor({0, 2}, {})}, {0}, {}));
  }
  EXPECT_TRUE(gives("_npi_mean", {}, {tensor({0, 2}, {})}, Shape(), {0}));
}

/// No axes are listed, so none goes.
TEST(NumpyNames, SqueezeNoAxis) {
  const Tensor data = tensor({1, 2, 1}, {3, 4});
  for (const char* const name : {"squeeze", "_np_squeeze"}) {
    EXPECT_TRUE(gives(name, {{"axis", "()"}}, {data}, {1, 2, 1}, {3, 4}));
    EXPECT_TRUE(gives(name, {{"axis", "None"}}, {data}, {2}, {3, 4}));
    EXPECT_TRUE(gives(name, {}, {data}, {2}, {3, 4}));
  }
}

TEST(NumpyNames, AverageNothingToASumOfWeights) {
  EXPECT_TRUE(gives("_npi_average", {{"axis", "(1,)"}, {"returned", "True"}}, {tensor({0, 3}, {}), tensor({3}, {1, 2, 4})},
                    Shape(), {7}, 1));
}

/// 28 / 255: all bits of the divisor are set, and it is not -1.
TEST(NumpyNames, AverageBytesWhoseWeightsSumToTheLargestByte) {
  const Tensor data = tensor<std::uint8_t>({2}, {10, 20}), weights = tensor<std::uint8_t>({2}, {200, 55});
  EXPECT_TRUE(gives("_npi_average", {}, {data, weights}, Shape(), {0}));
}

TEST(NumpyNames, RoundToDecimals) {
  const Tensor bytes = tensor<std::uint8_t>({3}, {30, 15, 250}), numbers = tensor<std::int32_t>({3}, {-15, 25, 127});
  EXPECT_TRUE(gives("_npi_around", {{"decimals", "1"}}, {bytes}, {3}, {30, 15, 250}));
  EXPECT_TRUE(gives("_npi_around", {{"decimals", "-1"}}, {bytes}, {3}, {30, 10, 250}));
  EXPECT_TRUE(gives("_npi_around", {{"decimals", "-3"}}, {bytes}, {3}, {0, 0, 0}));
  EXPECT_TRUE(gives("_npi_around", {{"decimals", "-1"}}, {numbers}, {3}, {-10, 20, 120}));
  EXPECT_TRUE(gives("_npi_around", {{"decimals", "1"}}, {tensor({3}, {0.25, -1.35, 2})}, {3}, {0.2, -1.4, 2}));
  EXPECT_TRUE(gives("_npi_around", {{"decimals", "-1"}}, {tensor({3}, {25, 35, -4})}, {3}, {20, 40, 0}));
  EXPECT_TRUE(gives("_npi_around", {}, {tensor({2}, {0.5, 1.5})}, {2}, {0, 2}));
}

/// Each step of scaling by 10 rounds: 1.035 becomes less than 103.5, where one product would be 103.5.
TEST(NumpyNames, RoundToDecimalsStepByStep) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(gives("_npi_around", {{"decimals", "2"}}, {tensor({2}, {1.035, 2.675})}, {2}, {1.03, 2.68}));
  EXPECT_TRUE(gives("_npi_around", {{"decimals", "39"}}, {tensor({3}, {0, 5, -3.25})}, {3}, {0, kInfinity, -kInfinity}));
  EXPECT_TRUE(gives("_npi_around", {{"decimals", "-39"}}, {tensor({3}, {0, 5, -3.25})}, {3}, {0, 0, 0}));
}

/// The place among the sorted numbers is a float32: 29 % of 100 is 29, and not a little less.
TEST(NumpyNames, FindPercentilesAtWholePlaces) {
  std::vector<double> numbers(101);
  std::iota(numbers.begin(), numbers.end(), 0);
  const auto found = [&](const char* percent, const char* rule, double want) {
    return gives("_npi_percentile", {{"q_scalar", percent}, {"interpolation", rule}}, {tensor({101}, numbers)}, Shape(), {want});
  };
  EXPECT_TRUE(found("29", "lower", 29));
  EXPECT_TRUE(found("7", "higher", 7));
  EXPECT_TRUE(found("29", "midpoint", 29));
  EXPECT_TRUE(found("100", "higher", 100));
}

TEST(NumpyNames, ReduceNothingToZero) {
  const Tensor nothing = tensor({0, 3}, {});
  for (const char* op : {"_np_sum", "_np_prod", "_npi_mean"})
    EXPECT_TRUE(gives(op, {{"axis", "(0,)"}}, {nothing}, {3}, {0, 0, 0})) << op;
  EXPECT_TRUE(gives("_npi_mean", {}, {tensor<std::int32_t>({0}, {})}, Shape(), {0}));
}

TEST(NumpyNames, AddIntegersInAllTheirBits) {
  const auto sum = []<typename T>(T, const char* dtype, const Tensor& data) {
    const auto results = apply("_np_sum", {{"dtype", dtype}}, {data});
    EXPECT_TRUE(results.ok()) << results.status().to_string();
    if (!results.ok()) return T{};
    const Tensor& result = results->front().tensor;
    return result.values<T>()[0];
  };
  const Tensor large = tensor<std::int64_t>({1}, {0x1p53}), one = tensor<std::int64_t>({1}, {1});
  const auto odd = apply("_npi_add", {}, {large, one});
  ASSERT_TRUE(odd.ok());
  EXPECT_EQ(sum(std::int64_t{}, "int64", odd->front().tensor), (std::int64_t{1} << 53) + 1);
  EXPECT_EQ(sum(std::int32_t{}, "int32", tensor<std::int32_t>({2}, {2147483647, 5})), -2147483644);
  EXPECT_EQ(sum(float{}, "float32", tensor<std::int32_t>({2}, {16777217, -16777216})), 1);
  EXPECT_EQ(sum(std::int32_t{}, "int32", tensor({2}, {1.5, 1.5})), 3);
}

TEST(NumpyNames, DifferencesOfShortAxesAreEmpty) {
  EXPECT_TRUE(gives("_npi_diff", {}, {tensor({3, 1}, {1, 2, 3})}, {3, 0}, {}));
  EXPECT_TRUE(gives("_npi_diff", {{"n", "5"}}, {tensor({2, 2}, {1, 2, 3, 4})}, {2, 0}, {}));
  EXPECT_TRUE(gives("_npi_ediff1d", {{"to_begin_scalar", "7"}}, {tensor({1}, {3})}, {1}, {7}));
  EXPECT_TRUE(gives("_npi_ediff1d", {{"to_begin_scalar", "7"}}, {tensor({0}, {})}, {1}, {7}));
}

/// As MXNet 1.9.1 counts: the place of a number tells its bin, and then the edges, which are cut to integers.
TEST(NumpyNames, CountIntegersInBins) {
  std::vector<double> numbers(12);
  std::iota(numbers.begin(), numbers.end(), 0);
  const Tensor x = tensor<std::int32_t>({12}, numbers), bytes = tensor<std::uint8_t>({12}, numbers);
  const auto counts = [&](const Tensor& data, const char* bins, const char* range, const std::vector<double>& want) {
    return gives("_histogram", {{"bin_cnt", bins}, {"range", range}}, {data}, {static_cast<std::int64_t>(want.size())}, want);
  };
  EXPECT_TRUE(counts(x, "4", "(0, 10)", {2, 3, 2, 4}));
  EXPECT_TRUE(counts(x, "5", "(-3, 4)", {0, 0, 1, 1, 3}));
  EXPECT_TRUE(counts(bytes, "5", "(-3, 4)", {0, 0, 1, 1, 3}));
  EXPECT_TRUE(counts(x, "10", "(0, 1)", {0, 1, 0, 0, 0, 0, 0, 0, 0, 1}));
  EXPECT_TRUE(counts(x, "3", "(0.5, 2.5)", {0, 1, 1}));
  EXPECT_TRUE(counts(x, "6", "(0.1, 0.7)", {0, 0, 0, 0, 0, 0}));
  const Tensor doubles = tensor<double>({7}, {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7});
  const auto edges = apply("_histogram", {{"bin_cnt", "6"}, {"range", "(0.1, 0.7)"}}, {doubles});
  ASSERT_TRUE(edges.ok()) << edges.status().to_string();
  EXPECT_EQ(edges->at(1).tensor.values<double>()[3], 0.3999999999999999) << "the range is no float32";
  EXPECT_TRUE(refuses("_histogram", {{"bin_cnt", "6"}, {"range", "(0, inf)"}}, {doubles}, "infinite"));
}

/// u u' = 1, v v' = 1 and u diag(values) v = a, also where a has fewer independent rows than rows, and at any scale.
TEST(NumpyNames, TakeMatricesOfEveryRankApart) {
  for (const double scale : {1.0, 1e-200, 1e200}) {
    for (const std::vector<double>& rows : {std::vector<double>{1, 2, 3, 2, 4, 6},
                                            {0, 0, 0, 0, 0, 0},
                                            {1, 0, 0, 0, 0, 0},
                                            {0, 0, 0, 1, 2, 3},
                                            {1, 2, 3, -4, 5, 7}}) {
      std::vector<double> a = rows;
      for (double& number : a) number *= scale;
      const auto results = apply("_npi_svd", {}, {tensor<double>({2, 3}, a)});
      ASSERT_TRUE(results.ok()) << results.status().to_string();
      const auto u = results->at(0).tensor.values<double>(), l = results->at(1).tensor.values<double>(),
                 v = results->at(2).tensor.values<double>();
      for (std::size_t i = 0; i < 2; ++i) {
        for (std::size_t k = 0; k < 2; ++k) {
          EXPECT_NEAR(u[2 * i] * u[2 * k] + u[2 * i + 1] * u[2 * k + 1], i == k, 1e-12);
          EXPECT_NEAR(v[3 * i] * v[3 * k] + v[3 * i + 1] * v[3 * k + 1] + v[3 * i + 2] * v[3 * k + 2], i == k, 1e-12);
        }
        for (std::size_t j = 0; j < 3; ++j)
          EXPECT_NEAR((u[2 * i] * l[0] * v[j] + u[2 * i + 1] * l[1] * v[3 + j]) / scale, rows[3 * i + j], 1e-12);
      }
    }
  }
}

TEST(NumpyNames, SumNothingAlongAnAxisThatIsLong) {
  const Tensor nothing = tensor({std::int64_t{1} << 31, 0}, {});
  EXPECT_TRUE(gives("_npi_einsum", {{"subscripts", "ij->"}, {"num_args", "1"}}, {nothing}, Shape(), {0}));
}

TEST(NumpyNames, CompareBoolsOfAnyBytes) {
  const Tensor odd = bools({2, 1, 0, 4}), ones = bools({1, 0, 0, 1});
  EXPECT_TRUE(gives("_npi_equal", {}, {odd, ones}, {4}, {1, 0, 1, 1}));
  EXPECT_TRUE(gives("_npi_greater", {}, {odd, ones}, {4}, {0, 1, 0, 0}));
  EXPECT_TRUE(gives("_npi_less_equal", {}, {odd, ones}, {4}, {1, 0, 1, 1}));
  EXPECT_TRUE(gives("_npi_equal_scalar", {{"scalar", "1"}}, {odd}, {4}, {1, 1, 0, 1}));
}

TEST(NumpyNames, GiveBoolsAndScalars) {
  const Tensor x = tensor({2}, {1, 3});
  const auto greater = apply("_npi_greater_scalar", {{"scalar", "2"}}, {x});
  ASSERT_TRUE(greater.ok()) << greater.status().to_string();
  EXPECT_EQ(greater->front().tensor.dtype(), DType::kBool);
  EXPECT_TRUE(gives("_npi_greater_scalar", {{"scalar", "2"}}, {x}, {2}, {0, 1}));
  EXPECT_TRUE(gives("_npi_logical_not", {}, {tensor({2}, {0, 3})}, {2}, {1, 0}));
  EXPECT_TRUE(gives("_np_sum", {}, {x}, Shape(), {4}));
  EXPECT_TRUE(gives("_npi_mean", {{"axis", "0"}}, {x}, Shape(), {2}));
  EXPECT_TRUE(gives("_npi_mean", {{"keepdims", "True"}}, {x}, {1}, {2}));
  EXPECT_TRUE(gives("_npi_std", {}, {x}, Shape(), {1}));
  EXPECT_TRUE(gives("_npi_var", {}, {x}, Shape(), {2}, 1));
  EXPECT_TRUE(gives("_npi_rsubtract_scalar", {{"scalar", "1"}}, {x}, {2}, {0, -2}));
}

TEST(NumpyNames, PromoteOperandsOfDifferentTypes) {
  const Tensor f = tensor({2}, {1.5, 2.5}), d = tensor<double>({2}, {1, 2}), i = tensor<std::int32_t>({2}, {1, 3}),
               l = tensor<std::int64_t>({2}, {1, 3}), b = tensor<std::int8_t>({2}, {1, 3}), u = tensor<std::uint8_t>({2}, {1, 3}),
               p = bools({1, 0});
  EXPECT_EQ(type_of("_npi_add", {}, {f, d}), DType::kFloat64);
  EXPECT_EQ(type_of("_npi_add", {}, {l, f}), DType::kFloat32);
  EXPECT_EQ(type_of("_npi_add", {}, {i, l}), DType::kInt64);
  EXPECT_EQ(type_of("_npi_add", {}, {u, i}), DType::kInt32);
  EXPECT_EQ(type_of("_npi_add", {}, {p, b}), DType::kInt8);
  EXPECT_EQ(type_of("_npi_add", {}, {p, p}), DType::kBool);
  EXPECT_TRUE(refuses("_npi_add", {}, {b, u}, "int8"));
  EXPECT_TRUE(refuses("_npi_subtract", {}, {p, p}, "bool"));
  EXPECT_EQ(type_of("_npi_true_divide", {}, {i, i}), DType::kFloat32);
  EXPECT_EQ(type_of("_npi_mean", {}, {i}), DType::kFloat32);
  EXPECT_EQ(type_of("_np_sum", {}, {p}), DType::kInt64);
  EXPECT_EQ(type_of("_npi_exp", {}, {i}), DType::kInt32);
  EXPECT_EQ(type_of("_npi_add_scalar", {{"scalar", "2"}}, {p}), DType::kInt64);
  EXPECT_EQ(type_of("_npi_add_scalar", {{"scalar", "2.5"}, {"is_int", "False"}}, {i}), DType::kFloat64);
  EXPECT_EQ(type_of("_npi_bitwise_xor_scalar", {{"scalar", "1"}}, {p}), DType::kBool);
  EXPECT_TRUE(refuses("_npi_bitwise_and", {}, {f, f}, "integers are needed"));
  EXPECT_TRUE(refuses("_npi_bitwise_not", {}, {f}, "integers are needed"));
}

TEST(NumpyNames, SplitAndStackVectorsAlongTheirOnlyAxis) {
  const Tensor vector = tensor({4}, {1, 2, 3, 4}), cube = tensor({1, 1, 3}, {1, 2, 3});
  EXPECT_TRUE(gives("_npi_hsplit", {{"sections", "2"}, {"indices", "[]"}}, {vector}, {2}, {3, 4}, 1));
  EXPECT_TRUE(gives("_npi_hstack", {{"num_args", "2"}}, {vector, vector}, {8}, {1, 2, 3, 4, 1, 2, 3, 4}));
  EXPECT_TRUE(gives("_npi_dsplit", {{"indices", "(0, 1)"}}, {cube}, {1, 1, 2}, {2, 3}, 1));
}

TEST(NumpyNames, DeleteIndicesAndRanges) {
  const Tensor x = tensor({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_TRUE(gives("_npi_delete", {{"int_ind", "1"}, {"axis", "1"}}, {x}, {2, 2}, {1, 3, 4, 6}));
  EXPECT_TRUE(gives("_npi_delete", {{"int_ind", "-1"}, {"axis", "0"}}, {x}, {1, 3}, {1, 2, 3}));
  EXPECT_TRUE(gives("_npi_delete", {{"start", "0"}, {"stop", "5"}, {"step", "2"}}, {x}, {3}, {2, 4, 6}));
  EXPECT_TRUE(gives("_npi_delete", {{"start", "None"}, {"stop", "None"}, {"step", "-2"}, {"axis", "1"}}, {x}, {2, 1}, {2, 5}));
  EXPECT_TRUE(refuses("_npi_delete", {{"int_ind", "3"}, {"axis", "1"}}, {x}, "index 3"));
  EXPECT_TRUE(refuses("_npi_delete", {{"axis", "1"}}, {x, x}, "data"));
}

TEST(NumpyNames, SayWhatIsWrongWithSubscripts) {
  const Tensor x = tensor({2, 3}, {1, 2, 3, 4, 5, 6});
  for (const char* const text : {"i1", "....", "ij,->", "ij->ijk->", "...i..."})
    EXPECT_TRUE(refuses("_npi_einsum", {{"subscripts", text}, {"num_args", "1"}}, {x}, "subscripts")) << text;
  EXPECT_TRUE(refuses("_npi_einsum", {{"subscripts", "ijk->i"}}, {x}, "names 3 axes"));
  EXPECT_TRUE(refuses("_npi_einsum", {{"subscripts", "ii->i"}}, {x}, "2"));
  EXPECT_TRUE(refuses("_npi_einsum", {{"subscripts", "ij->ik"}}, {x}, "no input has"));
  EXPECT_TRUE(refuses("_npi_einsum", {{"subscripts", "ij->ii"}}, {x}, "twice"));
  EXPECT_TRUE(refuses("_npi_einsum", {{"subscripts", "i...->i"}}, {x}, "ellipsis"));
  EXPECT_TRUE(gives("_npi_einsum", {{"subscripts", "i...->..."}}, {x}, {3}, {5, 7, 9}));
  // Each of several summed axes may be repeated by itself.
  EXPECT_TRUE(gives("_npi_einsum", {{"subscripts", "ijk,jkl->il"}, {"num_args", "2"}},
                    {tensor({1, 1, 3}, {1, 2, 3}), tensor({2, 1, 1}, {10, 20})}, {1, 1}, {180}));
  EXPECT_TRUE(refuses("_npi_einsum", {{"subscripts", "ijk,jkl->il"}, {"num_args", "2"}},
                      {tensor({1, 2, 3}, {1, 2, 3, 4, 5, 6}), tensor({3, 2, 1}, {1, 2, 3, 4, 5, 6})}, "3"));
  const Tensor vector = Tensor::create(DType::kFloat32, Shape{64}).value();
  EXPECT_TRUE(refuses("_npi_einsum", {{"subscripts", "a,b,c,d,e,f,g,h->abcd"}, {"num_args", "8"}}, std::vector<Tensor>(8, vector),
                      "too long"));
}

/// Whether the sum is a product of matrices, which devices compute, or not.
TEST(NumpyNames, SumProductsOfIntegersAndWrap) {
  const Tensor bytes = tensor<std::uint8_t>({1, 2}, {200, 100}), column = tensor<std::uint8_t>({2, 1}, {2, 1});
  const Tensor large = tensor<std::int32_t>({2, 2}, {1 << 30, 3, -5, 7}), numbers = tensor<std::int32_t>({2, 2}, {4, 1, 2, -1});
  const auto sums = [](const char* subscripts, const std::vector<Tensor>& inputs, const Shape& shape,
                       const std::vector<double>& want) {
    return gives("_npi_einsum", {{"subscripts", subscripts}, {"num_args", "2"}}, inputs, shape, want);
  };
  EXPECT_TRUE(sums("ij,jk->ik", {bytes, column}, {1, 1}, {244}));
  EXPECT_TRUE(sums("ij,jk->ik", {large, numbers}, {2, 2}, {6, (1 << 30) - 3, -6, -12}));
  EXPECT_TRUE(sums("ij,kj->ki", {large, numbers}, {2, 2}, {3, -13, 2147483645, -17}));
  EXPECT_TRUE(sums("ij,ij->", {large, numbers}, Shape(), {-14}));
  EXPECT_TRUE(refuses("_npi_matmul", {}, {large, numbers}, "int32"));
}

TEST(NumpyNames, FindWhatIsNotZero) {
  by_hand::expect_result(by_hand::run_node(ops::kNonzero, {}, {tensor({2, 2}, {0, 1, one_node::kNan, 0})}), {2, 2}, {0, 1, 1, 0});
  by_hand::expect_result(by_hand::run_node(ops::kNonzero, {}, {bools({0, 7, 1})}), {2, 1}, {1, 2});
  by_hand::expect_result(by_hand::run_node(ops::kNonzero, {}, {bools({0})}), {0, 1}, {});
}

TEST(NumpyNames, FindDifferentElements) {
  const auto found = by_hand::run_node(ops::kUnique, {}, {tensor({2, 2}, {3, 1, 3, 2})}, 4);
  by_hand::expect_result(found, {3}, {1, 2, 3});
  by_hand::expect_result(found, {3}, {1, 3, 0}, 1);
  by_hand::expect_result(found, {4}, {2, 0, 2, 1}, 2);
  by_hand::expect_result(found, {3}, {1, 1, 2}, 3);
}

TEST(NumpyNames, CheckThatAllIsTrue) {
  EXPECT_TRUE(gives("_npx_constraint_check", {{"msg", "no"}}, {bools({1, 1})}, Shape(), {1}));
  EXPECT_TRUE(refuses("_npx_constraint_check", {}, {bools({1, 0})}, "element 1"));
}

TEST(NumpyNames, ReportMatricesThatHaveNoAnswer) {
  const Tensor singular = tensor({2, 2}, {1, 2, 2, 4}), right = tensor({2}, {1, 2});
  EXPECT_TRUE(refuses("_npi_solve", {}, {singular, right}, "singular"));
  EXPECT_TRUE(refuses("_npi_cholesky", {}, {tensor({2, 2}, {1, 2, 2, 1})}, "positive definite"));
  EXPECT_TRUE(refuses("_npi_svd", {}, {tensor({2, 1}, {1, 2})}, "higher than wide"));
  EXPECT_TRUE(refuses("_npi_solve", {}, {singular, tensor({3}, {1, 2, 3})}, "right sides"));
  EXPECT_TRUE(gives("_npi_pinv_scalar_rcond", {}, {singular}, {2, 2}, {0.04, 0.08, 0.08, 0.16}));
}

}  // namespace
}  // namespace shoal::worker

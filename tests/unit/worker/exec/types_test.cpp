// The device cpu in other types than float32: who computes a node, and that the answers are those of the reference device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "tests/unit/worker/exec/graph_builder.hpp"
#include "tests/unit/worker/exec/typed_answers.hpp"
#include "worker/exec/backend.hpp"
#include "worker/graph/types.hpp"
#include "worker/ops/attention.hpp"
#include "worker/ops/cast.hpp"
#include "worker/ops/convolution.hpp"
#include "worker/ops/fully_connected.hpp"
#include "worker/ops/movement.hpp"
#include "worker/ops/products.hpp"
#include "worker/ops/reduce.hpp"
#include "worker/ops/selection.hpp"
#include "worker/ops/softmax.hpp"
#include "worker/ops/unary.hpp"

namespace shoal::worker {
namespace {

using testing::GraphBuilder;
using testing::load;
using testing::runs_oracle_kernel;
using testing::TypedAnswer;

/// Runs the graph on small numbers: -8 to 8 in floating point, or integers up to 20.
TypedAnswer run_on_small_numbers(Model& model, const std::vector<TensorSpec>& inputs) {
  model.enter_thread();
  const auto program = model.program(inputs).value();
  std::vector<Tensor> tensors;
  for (const TensorSpec& spec : program->inputs()) {
    const auto offset = 13 * static_cast<std::int64_t>(tensors.size() + 1);
    const bool is_float = TypeSet(Floats()).holds(spec.dtype);
    tensors.push_back(testing::tensor_of_numbers(spec, [&](std::int64_t i) {
      const auto number = static_cast<double>((i * 7919 + offset) % 129 - 64);
      return is_float ? number / 8 : std::abs(number) / 3;
    }));
  }
  Context context;
  return testing::run_typed(*program, context, tensors);
}

/// Compares the two devices. Returns the answer of `cpu`.
TypedAnswer compare_devices(const Graph& graph, const std::vector<TensorSpec>& inputs, double tolerance) {
  const auto fast = load(graph, inputs), slow = load(graph, inputs, "cpu-reference");
  const TypedAnswer got = run_on_small_numbers(*fast, inputs), want = run_on_small_numbers(*slow, inputs);
  EXPECT_EQ(got.outputs.size(), want.outputs.size());
  for (std::size_t k = 0; k < want.outputs.size(); ++k) {
    double largest = 1e-30, error = 0;
    for (const double x : want.outputs[k]) largest = std::max(largest, std::abs(x));
    for (std::size_t i = 0; i < want.outputs[k].size(); ++i)
      error = std::max(error, std::abs(got.outputs[k][i] - want.outputs[k][i]));
    EXPECT_LE(error, tolerance * largest) << "output " << k;
  }
  return got;
}

/// Half types round every layer's result, here to as few bits.
double rounding_of(DType dtype) { return dtype == DType::kFloat16 ? 0x1p-9 : 0x1p-6; }

Graph residual_classifier() {
  GraphBuilder b;
  const ValueId x = b.activation(b.batch_norm(b.conv(b.input("data"), 3, 16, 3, 1, 1, true), 16));
  const ValueId y =
      b.pool(b.add(x, b.conv(x, 16, 16, 1)), {.kind = PoolingKind::kMax, .kernel = {2, 2}, .stride = {2, 2}, .pad = {0, 0}});
  b.output(b.node("Softmax", {b.fully_connected(b.global_average(y), 16, 10)}, SoftmaxAttributes{}));
  b.output(b.node("Transpose", {y}, TransposeAttributes{{0, 2, 3, 1}}));
  return b.graph();
}

TEST(HalfTypes, RunWholeNetworksWithoutOracleKernels) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const std::vector<TensorSpec> inputs = {{"data", dtype, {2, 3, 12, 12}}};
    EXPECT_FALSE(runs_oracle_kernel(compare_devices(residual_classifier(), inputs, rounding_of(dtype)))) << dtype_name(dtype);
  }
}

// Such a window gives the lowest number of the type, which is not that of float32.
TEST(HalfTypes, PoolWindowsWithoutANumber) {
  GraphBuilder b;
  const ValueId x = b.input("data");
  b.output(b.pool(x, {.kind = PoolingKind::kMax, .kernel = {2, 2}, .stride = {2, 2}, .pad = {0, 0}}));
  b.output(b.pool(x, {.kind = PoolingKind::kMax, .kernel = {2, 2}, .stride = {1, 1}, .pad = {2, 2}}));
  constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const double lowest = dtype == DType::kFloat16 ? -65504 : -0x1.fep127;
    const std::vector<TensorSpec> specs{{"data", dtype, {1, 16, 4, 4}}};
    const Tensor input =
        testing::tensor_of_numbers(specs[0], [](std::int64_t i) {  // a window of NaN, of -inf, of +inf, of numbers
          const std::int64_t row = i / 4 % 4, column = i % 4;
          if (row >= 2) return column >= 2 ? kInfinity : -3.0;
          return column >= 2 ? -kInfinity : kNan;
        });
    std::vector<TypedAnswer> answers;
    for (const char* const device : {"cpu", "cpu-reference"}) {
      const auto model = load(b.graph(), specs, device);
      model->enter_thread();
      Context context;
      answers.push_back(testing::run_typed(*model->program(specs).value(), context, {input}));
      const auto& first = answers.back().outputs[0];
      EXPECT_EQ(std::vector<double>(first.begin(), first.begin() + 4), (std::vector<double>{lowest, lowest, -3, kInfinity}))
          << device;
      EXPECT_EQ(answers.back().outputs[1][0], lowest) << device << ": a window of padding";
    }
    EXPECT_EQ(answers[0].outputs[1], answers[1].outputs[1]);
  }
}

// Its constants exist only in packed form then.
TEST(HalfTypes, CompileForAShapeThatComesLater) {
  const std::vector<TensorSpec> first = {{"data", DType::kFloat16, {1, 3, 12, 12}}},
                                later = {{"data", DType::kFloat16, {3, 3, 8, 8}}};
  const auto model = load(residual_classifier(), first);
  const TypedAnswer got = run_on_small_numbers(*model, later);
  const TypedAnswer want = compare_devices(residual_classifier(), later, rounding_of(DType::kFloat16));
  for (std::size_t k = 0; k < want.outputs.size(); ++k) {
    for (std::size_t i = 0; i < want.outputs[k].size(); ++i)
      EXPECT_NEAR(got.outputs[k][i], want.outputs[k][i], rounding_of(DType::kFloat16)) << k << ", " << i;
  }
}

/// Element-wise functions with a value that is read again later, broadcasting, a condition, a reduction, movement.
Graph arithmetic_network() {
  GraphBuilder b;
  const ValueId x = b.input("x"), row = b.input("row");
  const ValueId a = b.node("Unary", {x}, UnaryAttributes{UnaryKind::kSquare});
  const ValueId c = b.scalar(BinaryKind::kAdd, a, 3);
  const ValueId d = b.binary(BinaryKind::kSub, c, row, true);
  const ValueId e = b.binary(BinaryKind::kMaximum, d, a);
  const ValueId f = b.node("Where", {b.binary(BinaryKind::kGreater, e, c), e, d}, WhereAttributes{});
  b.output(b.node("Reduce", {f}, ReduceAttributes{ReduceKind::kMax, {1}}));
  b.output(b.node("Slice", {f}, SliceAttributes{{{.axis = 2, .step = -2}}}));
  b.output(b.node("Cast", {b.activation(f, ActivationKind::kTanh)}, CastAttributes{DType::kFloat32}));
  return b.graph();
}

TEST(Types, RunArithmeticWithoutOracleKernelsInEveryType) {
  const auto check = [](DType dtype) {
    SCOPED_TRACE(dtype_name(dtype));
    const std::vector<TensorSpec> inputs = {{"x", dtype, {2, 5, 41}}, {"row", dtype, {41}}};
    EXPECT_FALSE(runs_oracle_kernel(compare_devices(arithmetic_network(), inputs, 0)));
  };
  for (const DType dtype : {DType::kFloat64, DType::kFloat16, DType::kBFloat16, DType::kInt8, DType::kUInt8, DType::kInt32,
                            DType::kUInt32, DType::kInt64, DType::kUInt64, DType::kInt16, DType::kUInt16})
    check(dtype);
}

TEST(Types, AChainOfFunctionsRunsInTheMemoryOfOneValue) {
  GraphBuilder b;
  ValueId x = b.scalar(BinaryKind::kAdd, b.input("x"), 1);
  for (int i = 0; i < 5; ++i) x = b.scalar(BinaryKind::kMul, x, 3);
  b.output(b.node("Reduce", {x}, ReduceAttributes{ReduceKind::kSum, {0}}));
  const std::vector<TensorSpec> inputs = {{"x", DType::kInt32, {1000, 100}}};
  EXPECT_LT(compare_devices(b.graph(), inputs, 0).arena_bytes, 2 * 1000 * 100 * sizeof(std::int32_t));
}

/// A product of every kind of data with data, in a batch and alone, broadcast and transposed; attention in both forms; a layer
/// with computed weights.
Graph product_network() {
  GraphBuilder b;
  const ValueId x = b.input("x"), y = b.input("y"), one = b.input("one"), tokens = b.input("tokens"), memory = b.input("memory");
  for (const bool a : {false, true}) {
    for (const bool c : {false, true})
      b.output(b.node("MatMul", {a ? y : x, c ? x : y}, MatMulAttributes{.transpose_a = a, .transpose_b = c, .scale = 0.5}));
  }
  b.output(b.node("MatMul", {x, one}, MatMulAttributes{.broadcast = true}));
  b.output(b.node("Dot", {x, one}, DotAttributes{}));
  b.output(b.node("Dot", {one, x}, DotAttributes{.transpose_a = true, .transpose_b = true}));
  const ValueId scores = b.node("AttentionScores", {tokens}, AttentionAttributes{3, true});
  b.output(scores);
  b.output(b.node("AttentionValues", {tokens, b.node("Softmax", {scores}, SoftmaxAttributes{})}, AttentionAttributes{3, true}));
  const ValueId across = b.node("AttentionScores", {tokens, memory}, AttentionAttributes{9, false});
  b.output(across);
  b.output(b.node("AttentionValues", {memory, across}, AttentionAttributes{9, false}));
  b.output(b.node("FullyConnected", {x, b.node("Transpose", {one}, TransposeAttributes{}), b.input("bias")},
                  FullyConnectedAttributes{.num_hidden = 5, .flatten = false}));
  return b.graph();
}

TEST(Products, RunWithoutOracleKernels) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    const std::vector<TensorSpec> inputs = {{"x", dtype, {4, 6, 7}},       {"y", dtype, {4, 7, 6}},       {"one", dtype, {7, 5}},
                                            {"tokens", dtype, {8, 2, 36}}, {"memory", dtype, {5, 2, 72}}, {"bias", dtype, {5}}};
    const double tolerance = dtype == DType::kFloat32 ? 1e-5 : rounding_of(dtype);
    EXPECT_FALSE(runs_oracle_kernel(compare_devices(product_network(), inputs, tolerance))) << dtype_name(dtype);
  }
}

/// Plain loops run these on every device: they are rare, or the small end of a network.
constexpr std::string_view kPlainLoops[] = {"Average",      "BooleanMask", "CheckAll",      "CheckCsr",        "CheckRows",
                                            "Cholesky",     "Delete",      "Determinant",   "DiagonalIndices", "Eigen",
                                            "Einsum",       "Histogram",   "Inverse",       "LowerTriangle",   "LqFactorization",
                                            "Nonzero",      "Percentile",  "PolyVal",       "PseudoInverse",   "RavelIndex",
                                            "RetainRows",   "Roll",        "ScatterNd",     "SingularValues",  "SliceAssign",
                                            "Solve",        "TensorDot",   "TensorInverse", "TensorSolve",     "Unique",
                                            "UnravelIndex", "Variance"};

TEST(Types, TablesNameEveryOperatorThatIsComputedInFloat32) {
  std::set<std::string_view> names;
  for (const TypeSupport& row : make_backends({}).value().front()->type_table()) {
    EXPECT_FALSE(row.by.empty()) << row.op->name;
    if (row.types.holds(DType::kFloat32)) names.insert(row.op->name);
  }
  for (const Operator* const op : all_operators()) {
    if (op->name.starts_with("_") || op->bodies.count > 0) continue;  // made by a test; runs what its bodies have
    const bool is_plain = std::ranges::find(kPlainLoops, op->name) != std::end(kPlainLoops);
    EXPECT_NE(names.contains(op->name), is_plain) << op->name;
  }
}

}  // namespace
}  // namespace shoal::worker

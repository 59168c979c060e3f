// Products of matrices, linear algebra, norms, moments, running sums.
#include "worker/import/mxnet/lower_math.hpp"

#include "worker/ops/arithmetic.hpp"
#include "worker/ops/cast.hpp"
#include "worker/ops/diagonal.hpp"
#include "worker/ops/factorization.hpp"
#include "worker/ops/linalg.hpp"
#include "worker/ops/movement.hpp"
#include "worker/ops/products.hpp"
#include "worker/ops/reduce.hpp"
#include "worker/ops/unary.hpp"

namespace shoal::worker {
namespace {

using Values = std::vector<ValueId>;

/// The storage of results is dense here, whatever the file wishes; the numbers are the same.
void ignore_storage(AttributeReader& attributes) {
  attributes.choice("forward_stype", {"None", "default", "row_sparse", "csr"}, 0);
}

Values batch_dot(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  MatMulAttributes product{.least_rank = 3};
  product.transpose_a = attributes.flag("transpose_a", false);
  product.transpose_b = attributes.flag("transpose_b", false);
  ignore_storage(attributes);
  return lowering.add(ops::kMatMul, product);
}

Values dot(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  DotAttributes product;
  product.transpose_a = attributes.flag("transpose_a", false);
  product.transpose_b = attributes.flag("transpose_b", false);
  ignore_storage(attributes);
  return lowering.add(ops::kDot, product);
}

/// The value with `axis`, where MXNet has the rows of its matrices, as the last but one; or back.
ValueId with_rows_at(MxnetLowering& lowering, std::int64_t axis, ValueId value) {
  if (axis == -2) return value;
  const Values swapped = lowering.add(ops::kSwapAxes, SwapAxesAttributes{axis, -2}, {value});
  return swapped.empty() ? kNoValue : swapped[0];
}

/// alpha A B, and with a third input + beta C.
Values gemm(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  MatMulAttributes product;
  product.transpose_a = attributes.flag("transpose_a", false);
  product.transpose_b = attributes.flag("transpose_b", false);
  product.scale = attributes.number("alpha", 1);
  const std::int64_t axis = attributes.integer("axis", -2);
  const bool adds = lowering.inputs.size() == 3;
  const double beta = adds ? attributes.number("beta", 1) : 0;
  Values sources;
  for (std::size_t i = 0; i < 2; ++i) {
    sources.push_back(with_rows_at(lowering, axis, lowering.inputs[i]));
    if (sources.back() == kNoValue) return {};
  }
  const Values made = lowering.add(ops::kMatMul, product, sources);
  if (made.empty()) return {};
  ValueId result = with_rows_at(lowering, axis, made[0]);
  if (result == kNoValue) return {};
  if (!adds || beta == 0) return {result};
  ValueId added = lowering.inputs[2];
  if (beta != 1) {
    const Values scaled = lowering.add(ops::kScalar, ScalarAttributes{.kind = BinaryKind::kMul, .scalar = beta}, {added});
    if (scaled.empty()) return {};
    added = scaled[0];
  }
  return lowering.add(ops::kBinary, BinaryAttributes{BinaryKind::kAdd}, {result, added});
}

Values syrk(MxnetLowering& lowering) {
  MatMulAttributes product;
  product.transpose_a = lowering.attributes.flag("transpose", false);
  product.transpose_b = !product.transpose_a;
  product.scale = lowering.attributes.number("alpha", 1);
  return lowering.add(ops::kMatMul, product, {lowering.inputs[0], lowering.inputs[0]});
}

auto triangular(const Operator& op) {
  return [&op](MxnetLowering& lowering) {
    AttributeReader& attributes = lowering.attributes;
    TriangularAttributes triangular;
    triangular.transpose = attributes.flag("transpose", false);
    triangular.from_right = attributes.flag("rightside", false);
    triangular.lower = attributes.flag("lower", true);
    triangular.scale = attributes.number("alpha", 1);
    return lowering.add(op, triangular);
  };
}

/// Diagonals of square matrices, in the last two axes.
Values extract_diagonal(MxnetLowering& lowering, std::int64_t offset) {
  return lowering.add(ops::kDiagonal, DiagonalAttributes{.offset = offset, .rows = -2, .columns = -1, .is_square = true});
}
Values diagonal(MxnetLowering& lowering) { return extract_diagonal(lowering, lowering.attributes.integer("offset", 0)); }
Values make_diagonal(MxnetLowering& lowering) {
  return lowering.add(ops::kMakeDiagonal, MakeDiagonalAttributes{lowering.attributes.integer("offset", 0)});
}

auto triangle(const Operator& op) {
  return [&op](MxnetLowering& lowering) {
    const std::int64_t offset = lowering.attributes.integer("offset", 0);
    return lowering.add(op, TriangleAttributes{offset, lowering.attributes.flag("lower", true)});
  };
}

auto factorization(const Operator& op) {
  return [&op](MxnetLowering& lowering) { return lowering.add(op); };
}

/// Behind the results are those that only training reads: the factors, and the order of the rows.
auto determinant(bool as_logarithm) {
  return [=](MxnetLowering& lowering) {
    const DeterminantAttributes attributes{as_logarithm, lowering.node.np_shape};
    Values outputs = lowering.add(ops::kDeterminant, attributes, lowering.inputs, as_logarithm ? 2 : 1);
    if (!outputs.empty()) outputs.insert(outputs.end(), 2, kNoValue);
    return outputs;
  };
}

Values sum_log_diagonal(MxnetLowering& lowering) {
  const Values diagonal = extract_diagonal(lowering, 0);
  if (diagonal.empty()) return {};
  const Values logs = lowering.add(ops::kUnary, UnaryAttributes{UnaryKind::kLog}, diagonal);
  if (logs.empty()) return {};
  return lowering.add(ops::kReduce, ReduceAttributes{.kind = ReduceKind::kSum, .axes = {-1}, .floats_only = true}, logs);
}

Values khatri_rao(MxnetLowering& lowering) {
  lowering.check_input_count("num_args");
  return lowering.add(ops::kKhatriRao);
}

Values norm(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  ReduceAttributes reduce;
  reduce.kind = attributes.integer("ord", 2, 1, 2) == 1 ? ReduceKind::kNorm1 : ReduceKind::kNorm2;
  reduce.axes = attributes.tuple("axis", Dims{});
  if (reduce.axes.size() > 2) attributes.fail("axis", "has more than 2 entries");
  reduce.keepdims = attributes.flag("keepdims", false);
  const bool converts = attributes.has("out_dtype");
  reduce.floats_only = converts;
  const Values norms = lowering.add(ops::kReduce, reduce);
  if (!converts || norms.empty()) {
    attributes.ignore({"out_dtype"});
    return norms;
  }
  return lowering.add(ops::kCast, CastAttributes{attributes.dtype("out_dtype")}, norms);
}

/// The mean, and the mean squared distance from it.
Values moments(MxnetLowering& lowering) {
  ReduceAttributes mean{.kind = ReduceKind::kMean, .floats_only = true};
  mean.axes = lowering.attributes.tuple("axes", Dims{});
  mean.keepdims = lowering.attributes.flag("keepdims", false);
  return add_moments(lowering, mean, lowering.inputs[0]);
}

Values cumsum(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  CumSumAttributes sums{.promotion = Promotion::kNumbers};
  if (attributes.has("axis")) sums.axis = attributes.integer("axis");
  Values data = lowering.inputs;
  if (attributes.has("dtype")) data = lowering.add(ops::kCast, CastAttributes{attributes.dtype("dtype")});
  attributes.ignore({"axis", "dtype"});
  if (data.empty()) return {};
  return lowering.add(ops::kCumSum, sums, data);
}

}  // namespace

std::vector<ValueId> add_moments(MxnetLowering& lowering, const ReduceAttributes& mean, ValueId data) {
  ReduceAttributes kept = mean;
  kept.keepdims = true;
  const Values center = lowering.add(ops::kReduce, kept, {data});
  if (center.empty()) return {};
  const Values shown = mean.keepdims ? center : lowering.add(ops::kReduce, mean, {data});
  const Values apart = lowering.add(ops::kBinary, BinaryAttributes{BinaryKind::kSub, true}, {data, center[0]});
  if (shown.empty() || apart.empty()) return {};
  const Values squares = lowering.add(ops::kUnary, UnaryAttributes{UnaryKind::kSquare}, apart);
  if (squares.empty()) return {};
  const Values variance = lowering.add(ops::kReduce, mean, squares);
  if (variance.empty()) return {};
  return {shown[0], variance[0]};
}

std::vector<MxnetOperator> math_operators() {
  std::vector<MxnetOperator> all;
  add_aliases(all, {"", 2, 2, -1, batch_dot}, {"batch_dot", "_npx_batch_dot"});
  all.push_back({"dot", 2, 2, -1, dot});
  add_aliases(all, {"", 3, 3, -1, gemm}, {"_linalg_gemm", "linalg_gemm"});
  add_aliases(all, {"", 2, 2, -1, gemm}, {"_linalg_gemm2", "linalg_gemm2"});
  add_aliases(all, {"", 1, 1, -1, syrk}, {"_linalg_syrk", "linalg_syrk"});
  add_aliases(all, {"", 2, 2, -1, triangular(ops::kTriangularProduct)}, {"_linalg_trmm", "linalg_trmm"});
  add_aliases(all, {"", 2, 2, -1, triangular(ops::kTriangularSolve)}, {"_linalg_trsm", "linalg_trsm"});
  add_aliases(all, {"", 1, 1, -1, sum_log_diagonal}, {"_linalg_sumlogdiag", "linalg_sumlogdiag"});
  add_aliases(all, {"", 1, 1, -1, diagonal}, {"_linalg_extractdiag", "linalg_extractdiag"});
  add_aliases(all, {"", 1, 1, -1, make_diagonal}, {"_linalg_makediag", "linalg_makediag"});
  add_aliases(all, {"", 1, 1, -1, triangle(ops::kExtractTriangle)}, {"_linalg_extracttrian", "linalg_extracttrian"});
  add_aliases(all, {"", 1, 1, -1, triangle(ops::kMakeTriangle)}, {"_linalg_maketrian", "linalg_maketrian"});
  add_aliases(all, {"", 1, 1, -1, factorization(ops::kLqFactorization)}, {"_linalg_gelqf", "linalg_gelqf"});
  add_aliases(all, {"", 1, 1, -1, factorization(ops::kEigen)}, {"_linalg_syevd", "linalg_syevd"});
  add_aliases(all, {"", 1, 1, -1, factorization(ops::kInverse)}, {"_linalg_inverse", "linalg_inverse", "_npi_inv"});
  add_aliases(all, {"", 1, 1, -1, determinant(false)}, {"_linalg_det", "linalg_det", "_npi_det"});
  add_aliases(all, {"", 1, 1, -1, determinant(true)}, {"_linalg_slogdet", "linalg_slogdet", "_npi_slogdet"});
  all.push_back({"khatri_rao", 1, -1, -1, khatri_rao});
  all.push_back({"norm", 1, 1, -1, norm});
  all.push_back({"moments", 1, 1, -1, moments});
  add_aliases(all, {"", 1, 1, -1, cumsum}, {"_np_cumsum", "cumsum", "_npi_cumsum"});
  return all;
}

}  // namespace shoal::worker

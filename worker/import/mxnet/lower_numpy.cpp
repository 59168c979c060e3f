// Names of MXNet's NumPy interface (MXNet 1.6 and later, and 2). Here are those that compute what an older operator computes.
//
// Comparisons give bools. Full reductions give scalars. Functions of real numbers make floats of integers in some versions, and
// integers in others, so integers are refused.
#include "shm/base/format.hpp"
#include "worker/import/mxnet/lower_math.hpp"
#include "worker/ops/activation.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/cast.hpp"
#include "worker/ops/products.hpp"
#include "worker/ops/unary.hpp"

namespace shoal::worker {
namespace {

using Values = std::vector<ValueId>;

/// They compute what the older operator of one of their two stems computes.
struct NumpyUnary {
  const char* stem;
  const char* other = nullptr;  ///< another stem
};
constexpr NumpyUnary kOfNumbers[] = {
    {"absolute", "abs"}, {"negative"}, {"sign"}, {"square"}, {"floor"}, {"ceil"}, {"trunc"}, {"fix"}, {"rint"},
};
constexpr NumpyUnary kOfReals[] = {
    {"reciprocal"},
    {"sqrt"},
    {"cbrt"},
    {"exp"},
    {"expm1"},
    {"log"},
    {"log2"},
    {"log10"},
    {"log1p"},
    {"sin"},
    {"cos"},
    {"tan"},
    {"arcsin"},
    {"arccos"},
    {"arctan"},
    {"sinh"},
    {"cosh"},
    {"arcsinh"},
    {"arccosh"},
    {"arctanh"},
    {"degrees", "rad2deg"},
    {"radians", "deg2rad"},
};

struct NumpyBinary {
  const char* stem;
  BinaryKind kind;
  bool has_scalar = true, has_reversed = false;
  bool of_floats = false;  ///< integers would become floats
};
constexpr NumpyBinary kArithmetic[] = {
    {"add", BinaryKind::kAdd},
    {"subtract", BinaryKind::kSub, true, true},
    {"multiply", BinaryKind::kMul},
    {"true_divide", BinaryKind::kDiv, true, true, true},
    {"mod", BinaryKind::kMod, true, true},
    {"power", BinaryKind::kPower, true, true},
    {"maximum", BinaryKind::kMaximum},
    {"minimum", BinaryKind::kMinimum},
    {"hypot", BinaryKind::kHypot, false, false, true},
};
constexpr NumpyBinary kLogic[] = {
    {"equal", BinaryKind::kEqual},
    {"not_equal", BinaryKind::kNotEqual},
    {"greater", BinaryKind::kGreater},
    {"greater_equal", BinaryKind::kGreaterEqual},
    {"less", BinaryKind::kLesser},
    {"less_equal", BinaryKind::kLesserEqual},
    {"logical_and", BinaryKind::kLogicalAnd},
    {"logical_or", BinaryKind::kLogicalOr},
    {"logical_xor", BinaryKind::kLogicalXor},
};

/// Truth values as bools; none if there are none.
Values as_bools(MxnetLowering& lowering, Values numbers) {
  if (numbers.empty()) return {};
  return lowering.add(ops::kCast, CastAttributes{DType::kBool}, std::move(numbers));
}

auto numpy_unary(UnaryKind kind, bool floats_only) {
  return [=](MxnetLowering& lowering) { return lowering.add(ops::kUnary, UnaryAttributes{kind, floats_only}); };
}

Values numpy_tanh(MxnetLowering& lowering) {
  return lowering.add(ops::kActivation, ActivationAttributes{ActivationKind::kTanh, true});
}

Values numpy_logical_not(MxnetLowering& lowering) {
  return as_bools(lowering, lowering.add(ops::kUnary, UnaryAttributes{UnaryKind::kLogicalNot}));
}

auto numpy_binary(const NumpyBinary& name, bool is_logic) {
  return [&name, is_logic](MxnetLowering& lowering) {
    Values result = lowering.add(ops::kBinary, BinaryAttributes{name.kind, true, name.of_floats});
    return is_logic ? as_bools(lowering, std::move(result)) : result;
  };
}

/// Integer data with a fraction, or with a number of which the file does not say whether it is an integer, would become floats.
auto numpy_scalar(const NumpyBinary& name, bool reversed, bool is_logic) {
  return [&name, reversed, is_logic](MxnetLowering& lowering) {
    ScalarAttributes scalar{.kind = name.kind, .reversed = reversed};
    scalar.scalar = lowering.attributes.number("scalar", 1.0);
    const bool is_integer = lowering.attributes.flag("is_int", false);
    scalar.floats_only = name.of_floats || !is_integer;
    Values result = lowering.add(ops::kScalar, scalar);
    return is_logic ? as_bools(lowering, std::move(result)) : result;
  };
}

void add_numpy_binaries(std::vector<MxnetOperator>& all, const NumpyBinary& name, bool is_logic) {
  all.push_back({format("_npi_{}", name.stem), 2, 2, -1, numpy_binary(name, is_logic)});
  if (name.has_scalar) all.push_back({format("_npi_{}_scalar", name.stem), 1, 1, -1, numpy_scalar(name, false, is_logic)});
  if (name.has_reversed) all.push_back({format("_npi_r{}_scalar", name.stem), 1, 1, -1, numpy_scalar(name, true, is_logic)});
}

/// Reads what NumPy's reductions have in common. `data` becomes the input in the type in which it is to be reduced.
ReduceAttributes numpy_reduction(MxnetLowering& lowering, ReduceKind kind, Values& data) {
  AttributeReader& attributes = lowering.attributes;
  ReduceAttributes reduce{.kind = kind, .gives_scalars = true};
  reduce.floats_only = kind != ReduceKind::kMax && kind != ReduceKind::kMin;
  reduce.axes = attributes.tuple("axis", Dims{});
  if (attributes.has("axis") && reduce.axes.empty())
    attributes.fail("axis", "is empty, so nothing is reduced; this is not supported");
  reduce.keepdims = attributes.flag("keepdims", false);
  if (attributes.has("initial")) attributes.fail("initial", "is not supported");
  data = lowering.inputs;
  if (attributes.has("dtype")) data = lowering.add(ops::kCast, CastAttributes{attributes.dtype("dtype")});
  attributes.ignore({"initial", "dtype"});
  return reduce;
}

auto numpy_reduce(ReduceKind kind) {
  return [=](MxnetLowering& lowering) -> Values {
    Values data;
    const ReduceAttributes attributes = numpy_reduction(lowering, kind, data);
    if (data.empty()) return {};
    return lowering.add(ops::kReduce, attributes, data);
  };
}

/// Outputs the variance or its root, and the mean.
auto numpy_variance(bool takes_root) {
  return [=](MxnetLowering& lowering) -> Values {
    if (lowering.attributes.integer("ddof", 0) != 0) lowering.attributes.fail("ddof", "is not 0, which is not supported");
    Values data;
    const ReduceAttributes mean = numpy_reduction(lowering, ReduceKind::kMean, data);
    if (data.empty()) return {};
    const Values moments = add_moments(lowering, mean, data[0]);
    if (moments.empty() || !takes_root) return Values(moments.rbegin(), moments.rend());
    const Values root = lowering.add(ops::kUnary, UnaryAttributes{UnaryKind::kSqrt, true}, {moments[1]});
    if (root.empty()) return {};
    return {root[0], moments[0]};
  };
}

Values numpy_matmul(MxnetLowering& lowering) { return lowering.add(ops::kMatMul, MatMulAttributes{.broadcast = true}); }
Values numpy_dot(MxnetLowering& lowering) { return lowering.add(ops::kDot, DotAttributes{.as_numpy = true}); }
Values numpy_copy(MxnetLowering& lowering) { return {lowering.inputs[0]}; }

}  // namespace

std::vector<MxnetOperator> numpy_operators() {
  std::vector<MxnetOperator> all;
  const auto add_unary = [&](const NumpyUnary& name, bool floats_only) {
    std::vector<std::string> names{format("_npi_{}", name.stem)};
    if (name.other) names.push_back(format("_npi_{}", name.other));
    const auto kind = find_unary(name.stem);
    add_aliases(all, {"", 1, 1, -1, numpy_unary(kind ? *kind : find_unary(name.other).value(), floats_only)}, names);
  };
  for (const NumpyUnary& name : kOfNumbers) add_unary(name, false);
  for (const NumpyUnary& name : kOfReals) add_unary(name, true);
  all.push_back({"_npi_tanh", 1, 1, -1, numpy_tanh});
  all.push_back({"_npi_logical_not", 1, 1, -1, numpy_logical_not});
  for (const NumpyBinary& name : kArithmetic) add_numpy_binaries(all, name, false);
  for (const NumpyBinary& name : kLogic) add_numpy_binaries(all, name, true);
  for (const auto& [stem, kind] : {std::pair("sum", ReduceKind::kSum),
                                   {"prod", ReduceKind::kProd},
                                   {"max", ReduceKind::kMax},
                                   {"min", ReduceKind::kMin},
                                   {"mean", ReduceKind::kMean}}) {
    add_aliases(all, {"", 1, 1, -1, numpy_reduce(kind)}, {format("_np_{}", stem), format("_npi_{}", stem)});
  }
  all.push_back({"_npi_std", 1, 1, -1, numpy_variance(true), -1, {"std", "mean"}});
  all.push_back({"_npi_var", 1, 1, -1, numpy_variance(false), -1, {"var", "mean"}});
  all.push_back({"_npi_matmul", 2, 2, -1, numpy_matmul, -1, {"out"}});
  add_aliases(all, {"", 2, 2, -1, numpy_dot}, {"_np_dot", "_npi_dot"});
  add_aliases(all, {"", 1, 1, -1, numpy_copy}, {"_np_copy", "_npi_copy"});
  return all;
}

}  // namespace shoal::worker

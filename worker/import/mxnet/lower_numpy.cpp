// Names of MXNet's NumPy interface (MXNet 1.6 and later, and 2): functions of elements, and reductions. lower_numpy_shapes.cpp
// and lower_numpy_linalg.cpp have the others.
//
// Types are those of MXNet 1.9.1. Operands of different types meet in their common type, comparisons give bools, and full
// reductions give scalars. A function of one number keeps the type of its data, so that of integers is cut.
#include <cmath>

#include "shm/base/format.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/import/mxnet/lower_chain.hpp"
#include "worker/import/mxnet/lower_math.hpp"
#include "worker/ops/activation.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/cast.hpp"
#include "worker/ops/creation.hpp"
#include "worker/ops/ordering.hpp"
#include "worker/ops/searching.hpp"
#include "worker/ops/selection.hpp"
#include "worker/ops/statistics.hpp"
#include "worker/ops/unary.hpp"

namespace shoal::worker {
namespace {

using Values = std::vector<ValueId>;

/// They compute what the older operator of one of their two stems computes.
struct NumpyUnary {
  const char* stem;
  const char* other = nullptr;  ///< another stem
};
constexpr NumpyUnary kNumpyUnaries[] = {
    {"absolute", "abs"},
    {"negative"},
    {"sign"},
    {"square"},
    {"floor"},
    {"ceil"},
    {"trunc"},
    {"fix"},
    {"rint"},
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

struct NumpyQuestion {
  const char* name;
  UnaryKind kind;
};
constexpr NumpyQuestion kNumpyQuestions[] = {
    {"_npi_logical_not", UnaryKind::kLogicalNot},
    {"_npi_isnan", UnaryKind::kIsNan},
    {"_npi_isinf", UnaryKind::kIsInf},
    {"_npi_isposinf", UnaryKind::kIsPosInf},
    {"_npi_isneginf", UnaryKind::kIsNegInf},
    {"_npi_isfinite", UnaryKind::kIsFinite},
};

struct NumpyBinary {
  const char* stem;
  BinaryKind kind;
  bool has_scalar = true, has_reversed = false;
  Promotion promotion = Promotion::kCommon;     ///< of two tensors
  Promotion with_scalar = Promotion::kNumbers;  ///< of a tensor and a number
};
constexpr NumpyBinary kArithmetic[] = {
    {"add", BinaryKind::kAdd},
    {"subtract", BinaryKind::kSub, true, true},
    {"multiply", BinaryKind::kMul},
    {"true_divide", BinaryKind::kDiv, true, true, Promotion::kReals, Promotion::kReals},
    {"mod", BinaryKind::kMod, true, true},
    {"power", BinaryKind::kPower, true, true},
    {"maximum", BinaryKind::kMaximum},
    {"minimum", BinaryKind::kMinimum},
    {"hypot", BinaryKind::kHypot, true, false, Promotion::kReals},
    {"arctan2", BinaryKind::kArctan2, true, true, Promotion::kReals},
    {"copysign", BinaryKind::kCopySign, true, true},
    {"ldexp", BinaryKind::kLdexp, true, true},
    {"lcm", BinaryKind::kLcm},
    {"bitwise_and", BinaryKind::kBitAnd, true, false, Promotion::kCommon, Promotion::kCommon},
    {"bitwise_or", BinaryKind::kBitOr, true, false, Promotion::kCommon, Promotion::kCommon},
    {"bitwise_xor", BinaryKind::kBitXor, true, false, Promotion::kCommon, Promotion::kCommon},
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
  return Chain(lowering, std::move(numbers)).add(ops::kCast, CastAttributes{DType::kBool}).end();
}

auto numpy_unary(UnaryKind kind) {
  return [=](MxnetLowering& lowering) { return lowering.add(ops::kUnary, UnaryAttributes{kind}); };
}

auto numpy_question(UnaryKind kind) {
  return [=](MxnetLowering& lowering) { return as_bools(lowering, lowering.add(ops::kUnary, UnaryAttributes{kind})); };
}

Values numpy_tanh(MxnetLowering& lowering) { return lowering.add(ops::kActivation, ActivationAttributes{ActivationKind::kTanh}); }

Values numpy_around(MxnetLowering& lowering) {
  return lowering.add(ops::kAround, AroundAttributes{lowering.attributes.integer("decimals", 0, -400, 400)});
}

Values nan_to_num(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  NanToNumAttributes numbers{.nan = attributes.number("nan", 0)};
  if (attributes.has("posinf")) numbers.highest = attributes.number("posinf");
  if (attributes.has("neginf")) numbers.lowest = attributes.number("neginf");
  attributes.ignore({"copy", "posinf", "neginf"});
  return lowering.add(ops::kNanToNum, numbers);
}

auto numpy_binary(const NumpyBinary& name, bool is_logic) {
  return [&name, is_logic](MxnetLowering& lowering) {
    Values result = lowering.add(ops::kBinary, BinaryAttributes{name.kind, true, name.promotion});
    return is_logic ? as_bools(lowering, std::move(result)) : result;
  };
}

/// Integers with a number that is an integer stay so; the number is cut if it is none.
auto numpy_scalar(const NumpyBinary& name, bool reversed, bool is_logic) {
  return [&name, reversed, is_logic](MxnetLowering& lowering) {
    ScalarAttributes scalar{.kind = name.kind, .reversed = reversed};
    scalar.scalar = lowering.attributes.number("scalar", 1.0);
    scalar.is_int = lowering.attributes.flag("is_int", true);
    scalar.promotion = is_logic ? Promotion::kCommon : name.with_scalar;
    Values result = lowering.add(ops::kScalar, scalar);
    return is_logic ? as_bools(lowering, std::move(result)) : result;
  };
}

void add_numpy_binaries(std::vector<MxnetOperator>& all, const NumpyBinary& name, bool is_logic) {
  all.push_back({format("_npi_{}", name.stem), 2, 2, -1, numpy_binary(name, is_logic)});
  if (name.has_scalar) all.push_back({format("_npi_{}_scalar", name.stem), 1, 1, -1, numpy_scalar(name, false, is_logic)});
  if (name.has_reversed) all.push_back({format("_npi_r{}_scalar", name.stem), 1, 1, -1, numpy_scalar(name, true, is_logic)});
}

/// Axes and keepdims of NumPy's reductions.
ReduceAttributes numpy_axes(MxnetLowering& lowering, ReduceKind kind) {
  AttributeReader& attributes = lowering.attributes;
  ReduceAttributes reduce{.kind = kind, .gives_scalars = true};
  reduce.nothing_is_zero = kind == ReduceKind::kProd || kind == ReduceKind::kMean;
  reduce.axes = attributes.tuple("axis", Dims{});
  if (attributes.has("axis") && reduce.axes.empty())
    attributes.fail("axis", "is empty, so nothing is reduced; this is not supported");
  reduce.keepdims = attributes.flag("keepdims", false);
  return reduce;
}

Promotion promotion_of(ReduceKind kind) {
  if (kind == ReduceKind::kMean) return Promotion::kReals;
  return kind == ReduceKind::kSum || kind == ReduceKind::kProd ? Promotion::kNumbers : Promotion::kNone;
}

/// The type that the file wants for the result; none: it says nothing.
std::optional<DType> wanted_type(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  if (attributes.has("initial")) attributes.fail("initial", "is not supported");
  std::optional<DType> type;
  if (attributes.has("dtype")) type = attributes.dtype("dtype");
  attributes.ignore({"initial", "dtype"});
  return type;
}

Values cast_to(MxnetLowering& lowering, Values data, std::optional<DType> dtype) {
  return dtype ? Chain(lowering, std::move(data)).add(ops::kCast, CastAttributes{*dtype}).end() : data;
}

auto numpy_reduce(ReduceKind kind) {
  return [=](MxnetLowering& lowering) -> Values {
    ReduceAttributes attributes = numpy_axes(lowering, kind);
    const std::optional<DType> wanted = wanted_type(lowering);
    std::optional<DType> computed;
    if (!wanted)
      attributes.promotion = promotion_of(kind);
    else if (kind == ReduceKind::kMean)
      computed = is_float(*wanted) ? *wanted : DType::kFloat64;
    else
      attributes.promotion = Promotion::kWidest;  // integers are added in 64 bits, whatever the result is
    const Values data = cast_to(lowering, lowering.inputs, computed);
    const Values result = Chain(lowering, data).add(ops::kReduce, attributes).end();
    return wanted == computed ? result : cast_to(lowering, result, wanted);
  };
}

/// Of the bytes of bools: all are true if the least is, and any if the largest is.
auto numpy_all(ReduceKind kind) {
  return [=](MxnetLowering& lowering) {
    return Chain(lowering, lowering.inputs[0])
        .add(ops::kCast, CastAttributes{DType::kBool})
        .add(ops::kCast, CastAttributes{DType::kUInt8})
        .add(ops::kReduce, numpy_axes(lowering, kind))
        .add(ops::kCast, CastAttributes{DType::kBool})
        .end();
  };
}

/// Outputs the variance or its root, and the mean.
auto numpy_variance(bool takes_root) {
  return [=](MxnetLowering& lowering) -> Values {
    const std::int64_t less = lowering.attributes.integer("ddof", 0);
    ReduceAttributes mean = numpy_axes(lowering, ReduceKind::kMean);
    mean.nothing_is_zero = false;  // that is a rule of _npi_mean itself; the variance of nothing is NaN
    const std::optional<DType> wanted = wanted_type(lowering);
    if (wanted && !is_float(*wanted)) lowering.attributes.fail("dtype", "is no float, which is not supported");
    const Values data = cast_to(lowering, lowering.inputs, wanted);
    if (data.empty()) return {};
    if (less != 0) return lowering.add(ops::kVariance, VarianceAttributes{mean.axes, mean.keepdims, less, takes_root}, data);
    const Values moments = add_moments(lowering, mean, data[0]);
    if (moments.empty() || !takes_root) return Values(moments.rbegin(), moments.rend());
    const Values root = lowering.add(ops::kUnary, UnaryAttributes{UnaryKind::kSqrt}, {moments[1]});
    if (root.empty()) return {};
    return {root[0], moments[0]};
  };
}

/// Outputs the average and, if `returned` says so, the sum of the weights.
Values numpy_average(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  const Dims axes = attributes.tuple("axis", Dims{});
  const bool returned = attributes.flag("returned", false), weighted = attributes.flag("weighted", true);
  if (lowering.inputs.size() != (weighted ? 2U : 1U)) {
    attributes.fail_node(StatusCode::kInvalidArgument, format("{} inputs; with weighted={} it takes {}", lowering.inputs.size(),
                                                              weighted ? "True" : "False", weighted ? 2 : 1));
  }
  if (!weighted || lowering.inputs.size() < 2) {
    if (returned) attributes.fail("returned", "is not supported without weights");
    return lowering.add(ops::kReduce, ReduceAttributes{.kind = ReduceKind::kMean, .axes = axes, .gives_scalars = true});
  }
  Values outputs = lowering.add(ops::kAverage, AverageAttributes{axes});
  if (!outputs.empty() && !returned) outputs.pop_back();
  return outputs;
}

Values numpy_percentile(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  PercentileAttributes percentile{.axes = attributes.tuple("axis", Dims{}), .keepdims = attributes.flag("keepdims", false)};
  percentile.interpolation =
      static_cast<Interpolation>(attributes.choice("interpolation", {"linear", "lower", "higher", "midpoint", "nearest"}, 0));
  if (attributes.has("q_scalar"))
    percentile.percent = attributes.number("q_scalar");
  else if (lowering.inputs.size() == 1)
    attributes.fail("q_scalar", "is missing, and there is no second input");
  attributes.ignore({"q_scalar"});
  return lowering.add(ops::kPercentile, percentile);
}

/// Bins between given edges, or of one width.
Values numpy_histogram(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  HistogramAttributes histogram;
  const bool has_count = attributes.has("bin_cnt");
  if (has_count) histogram.count = attributes.integer("bin_cnt", {}, 1);
  if (has_count != (lowering.inputs.size() == 1)) attributes.fail("bin_cnt", "is for a single input, and is needed then");
  const std::vector<double> range = has_count ? attributes.doubles("range") : std::vector<double>();
  if (has_count && range.size() != 2) attributes.fail("range", "has not 2 entries");
  if (range.size() == 2) {
    const double apart = range[0] == range[1] ? 0.5 : 0;  // of a picture of one color
    histogram.low = range[0] - apart;
    histogram.high = range[1] + apart;
  }
  attributes.ignore({"bin_cnt", "range"});
  return lowering.add(ops::kHistogram, histogram);
}

auto numpy_arg_extreme(bool lowest) {
  return [=](MxnetLowering& lowering) {
    ArgExtremeAttributes extreme{.lowest = lowest, .dtype = DType::kInt64, .gives_scalars = true};
    extreme.axis = lowering.attributes.optional_integer("axis", std::nullopt);
    extreme.keepdims = lowering.attributes.flag("keepdims", false);
    return lowering.add(ops::kArgExtreme, extreme);
  };
}

/// A scalar of the type of `like`, or of float32 without it.
Values scalar_like(MxnetLowering& lowering, double value, std::optional<ValueId> like) {
  FillAttributes fill{.value = value};
  if (!like) fill.dtype = DType::kFloat32;
  return lowering.add(ops::kFill, fill, like ? Values{*like} : Values{});
}

Values numpy_where(MxnetLowering& lowering) {
  return lowering.add(ops::kWhere, WhereAttributes{.promotion = Promotion::kCommon});
}

/// One of the two is a number.
auto where_scalar(bool is_left) {
  return [=](MxnetLowering& lowering) -> Values {
    const Values number = scalar_like(lowering, lowering.attributes.number("scalar", 0), lowering.inputs[1]);
    if (number.empty()) return {};
    const ValueId tensor = lowering.inputs[1];
    return lowering.add(ops::kWhere, WhereAttributes{},
                        {lowering.inputs[0], is_left ? number[0] : tensor, is_left ? tensor : number[0]});
  };
}

Values where_scalars(MxnetLowering& lowering) {
  const Values x = scalar_like(lowering, lowering.attributes.number("x", 0), std::nullopt),
               y = scalar_like(lowering, lowering.attributes.number("y", 0), std::nullopt);
  if (x.empty() || y.empty()) return {};
  return lowering.add(ops::kWhere, WhereAttributes{}, {lowering.inputs[0], x[0], y[0]});
}

/// The different elements, and what else the file wants of them.
Values numpy_unique(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  if (attributes.has("axis")) attributes.fail("axis", "is not None, which is not supported");
  attributes.ignore({"axis"});
  const Values all = lowering.add(ops::kUnique);
  if (all.empty()) return {};
  Values wanted{all[0]};
  if (attributes.flag("return_index", false)) wanted.push_back(all[1]);
  if (attributes.flag("return_inverse", false)) wanted.push_back(all[2]);
  if (attributes.flag("return_counts", false)) wanted.push_back(all[3]);
  return wanted;
}

Values numpy_nonzero(MxnetLowering& lowering) { return lowering.add(ops::kNonzero); }
Values numpy_poly_val(MxnetLowering& lowering) { return lowering.add(ops::kPolyVal); }
Values constraint_check(MxnetLowering& lowering) {
  lowering.attributes.ignore({"msg"});
  return lowering.add(ops::kCheckAll);
}
Values numpy_copy(MxnetLowering& lowering) { return {lowering.inputs[0]}; }

}  // namespace

std::vector<MxnetOperator> numpy_operators() {
  std::vector<MxnetOperator> all;
  for (const NumpyUnary& name : kNumpyUnaries) {
    std::vector<std::string> names{format("_npi_{}", name.stem)};
    if (name.other) names.push_back(format("_npi_{}", name.other));
    const auto kind = find_unary(name.stem);
    add_aliases(all, {"", 1, 1, -1, numpy_unary(kind ? *kind : find_unary(name.other).value())}, names);
  }
  for (const NumpyQuestion& question : kNumpyQuestions) all.push_back({question.name, 1, 1, -1, numpy_question(question.kind)});
  all.push_back({"_npi_tanh", 1, 1, -1, numpy_tanh});
  all.push_back({"_npi_bitwise_not", 1, 1, -1, numpy_unary(UnaryKind::kBitNot)});
  all.push_back({"_npi_around", 1, 1, -1, numpy_around});
  all.push_back({"_npi_nan_to_num", 1, 1, -1, nan_to_num});
  for (const NumpyBinary& name : kArithmetic) add_numpy_binaries(all, name, false);
  for (const NumpyBinary& name : kLogic) add_numpy_binaries(all, name, true);
  add_aliases(all, {"", 1, 1, -1, numpy_reduce(ReduceKind::kSum)}, {"_np_sum", "_npi_sum"});
  add_aliases(all, {"", 1, 1, -1, numpy_reduce(ReduceKind::kProd)}, {"_np_prod", "_np_product", "_npi_prod"});
  add_aliases(all, {"", 1, 1, -1, numpy_reduce(ReduceKind::kMax)}, {"_np_max", "_np_amax", "_npi_max"});
  add_aliases(all, {"", 1, 1, -1, numpy_reduce(ReduceKind::kMin)}, {"_np_min", "_np_amin", "_npi_min"});
  add_aliases(all, {"", 1, 1, -1, numpy_reduce(ReduceKind::kMean)}, {"_np_mean", "_npi_mean"});
  all.push_back({"_np_all", 1, 1, -1, numpy_all(ReduceKind::kMin)});
  add_aliases(all, {"", 1, 1, -1, numpy_all(ReduceKind::kMax)}, {"_np_any", "_np_sometrue"});
  all.push_back({"_npi_std", 1, 1, -1, numpy_variance(true), -1, {"std", "mean"}});
  all.push_back({"_npi_var", 1, 1, -1, numpy_variance(false), -1, {"var", "mean"}});
  all.push_back({"_npi_average", 1, 2, -1, numpy_average, -1, {"output0"}});
  all.push_back({"_npi_percentile", 1, 2, -1, numpy_percentile});
  add_aliases(all, {"", 1, 2, -1, numpy_histogram, -1, {"output0"}}, {"_histogram", "_npi_histogram"});
  all.push_back({"_npi_argmax", 1, 1, -1, numpy_arg_extreme(false)});
  all.push_back({"_npi_argmin", 1, 1, -1, numpy_arg_extreme(true)});
  all.push_back({"_npi_where", 3, 3, -1, numpy_where});
  all.push_back({"_npi_where_lscalar", 2, 2, -1, where_scalar(true)});
  all.push_back({"_npi_where_rscalar", 2, 2, -1, where_scalar(false)});
  all.push_back({"_npi_where_scalar2", 1, 1, -1, where_scalars});
  all.push_back({"_npi_unique", 1, 1, -1, numpy_unique, -1, {"output0"}});
  add_aliases(all, {"", 1, 1, -1, numpy_nonzero}, {"_npx_nonzero", "_npi_nonzero"});
  all.push_back({"_npi_polyval", 2, 2, -1, numpy_poly_val});
  all.push_back({"_npx_constraint_check", 1, 1, -1, constraint_check});
  add_aliases(all, {"", 1, 1, -1, numpy_copy}, {"_np_copy", "_npi_copy"});
  return all;
}

}  // namespace shoal::worker

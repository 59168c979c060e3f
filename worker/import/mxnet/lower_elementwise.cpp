// Element-wise operators: arithmetic of two tensors, the scalar family, functions of one tensor, casts, clip, and operators that
// do nothing at inference.
#include <algorithm>
#include <cctype>

#include "shm/base/format.hpp"
#include "worker/import/mxnet/lower_math.hpp"
#include "worker/ops/activation.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/cast.hpp"
#include "worker/ops/selection.hpp"
#include "worker/ops/unary.hpp"

namespace shoal::worker {
namespace {

using Values = std::vector<ValueId>;

Values add_n(MxnetLowering& lowering) {
  lowering.check_input_count("num_args");
  return lowering.add(ops::kAddN);
}

/// MXNet's names for one kind of operator have a common stem: _greater_equal, _Greater_Equal, broadcast_greater_equal,
/// _greater_equal_scalar, _GreaterEqualScalar.
struct BinaryName {
  BinaryKind kind;
  const char* stem;
  bool has_reversed_scalar = false;          ///< _rminus_scalar
  std::vector<std::string> same_shape = {};  ///< names without the stem; they come first
  std::vector<std::string> broadcast = {};
};

const std::vector<BinaryName>& binary_names() {
  static const std::vector<BinaryName> names{
      {BinaryKind::kAdd, "plus", false, {"elemwise_add", "_add", "_grad_add"}, {"broadcast_add"}},
      {BinaryKind::kSub, "minus", true, {"elemwise_sub", "_sub"}, {"broadcast_sub"}},
      {BinaryKind::kMul, "mul", false, {"elemwise_mul"}},
      {BinaryKind::kDiv, "div", true, {"elemwise_div"}},
      {BinaryKind::kMod, "mod", true},
      {BinaryKind::kPower, "power", true},
      {BinaryKind::kMaximum, "maximum"},
      {BinaryKind::kMinimum, "minimum"},
      {BinaryKind::kHypot, "hypot"},
      {BinaryKind::kEqual, "equal"},
      {BinaryKind::kNotEqual, "not_equal"},
      {BinaryKind::kGreater, "greater"},
      {BinaryKind::kGreaterEqual, "greater_equal"},
      {BinaryKind::kLesser, "lesser"},
      {BinaryKind::kLesserEqual, "lesser_equal"},
      {BinaryKind::kLogicalAnd, "logical_and"},
      {BinaryKind::kLogicalOr, "logical_or"},
      {BinaryKind::kLogicalXor, "logical_xor"},
  };
  return names;
}

/// "not_equal" as "Not_Equal", or without the underscore.
std::string capitalised(std::string_view stem, bool with_underscores) {
  std::string text;
  bool begins_word = true;
  for (const char c : stem) {
    if (c != '_' || with_underscores) text += begins_word ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    begins_word = c == '_';
  }
  return text;
}

/// Lowers to Binary. These operators have no attributes.
auto binary(BinaryKind kind, bool broadcast) {
  return [=](MxnetLowering& lowering) { return lowering.add(ops::kBinary, BinaryAttributes{kind, broadcast}); };
}

auto scalar(BinaryKind kind, bool reversed) {
  return [=](MxnetLowering& lowering) {
    ScalarAttributes scalar{.kind = kind, .reversed = reversed};
    scalar.scalar = lowering.attributes.number("scalar", 1.0);
    scalar.is_int = lowering.attributes.flag("is_int", true);
    if (kind < BinaryKind::kEqual) scalar.promotion = Promotion::kNumbers;
    return lowering.add(ops::kScalar, scalar);
  };
}

std::vector<std::string> with(std::vector<std::string> names, const std::vector<std::string>& more) {
  names.insert(names.end(), more.begin(), more.end());
  return names;
}

void add_binaries(std::vector<MxnetOperator>& all) {
  for (const BinaryName& row : binary_names()) {
    const std::string stem = row.stem, words = capitalised(stem, true), camel = capitalised(stem, false);
    add_aliases(all, {"", 2, 2, -1, binary(row.kind, false)}, with(row.same_shape, {format("_{}", stem), format("_{}", words)}));
    add_aliases(all, {"", 2, 2, -1, binary(row.kind, true)}, with(row.broadcast, {format("broadcast_{}", stem)}));
    add_aliases(all, {"", 1, 1, -1, scalar(row.kind, false)}, {format("_{}_scalar", stem), format("_{}Scalar", camel)});
    if (!row.has_reversed_scalar) continue;
    add_aliases(all, {"", 1, 1, -1, scalar(row.kind, true)}, {format("_r{}_scalar", stem), format("_R{}Scalar", camel)});
  }
  add_aliases(all, {"", 1, 1, -1, scalar(BinaryKind::kSmoothL1, false)}, {"smooth_l1", "_npx_smooth_l1"});
}

struct UnaryName {
  const char* name;
  UnaryKind kind;
  const char* alias = nullptr;
};
constexpr UnaryName kUnaries[] = {
    {"abs", UnaryKind::kAbs},
    {"negative", UnaryKind::kNegative},
    {"sign", UnaryKind::kSign},
    {"_contrib_sign_ste", UnaryKind::kSign},
    {"square", UnaryKind::kSquare},
    {"logical_not", UnaryKind::kLogicalNot},
    {"floor", UnaryKind::kFloor},
    {"ceil", UnaryKind::kCeil},
    {"trunc", UnaryKind::kTrunc},
    {"fix", UnaryKind::kTrunc},
    {"round", UnaryKind::kRound},
    {"_contrib_round_ste", UnaryKind::kRound},
    {"rint", UnaryKind::kRint},
    {"reciprocal", UnaryKind::kReciprocal},
    {"sqrt", UnaryKind::kSqrt},
    {"rsqrt", UnaryKind::kRsqrt},
    {"cbrt", UnaryKind::kCbrt},
    {"rcbrt", UnaryKind::kRcbrt},
    {"exp", UnaryKind::kExp},
    {"expm1", UnaryKind::kExpm1},
    {"log", UnaryKind::kLog},
    {"log2", UnaryKind::kLog2},
    {"log10", UnaryKind::kLog10},
    {"log1p", UnaryKind::kLog1p},
    {"sin", UnaryKind::kSin},
    {"cos", UnaryKind::kCos},
    {"tan", UnaryKind::kTan},
    {"arcsin", UnaryKind::kArcsin},
    {"arccos", UnaryKind::kArccos},
    {"arctan", UnaryKind::kArctan},
    {"sinh", UnaryKind::kSinh},
    {"cosh", UnaryKind::kCosh},
    {"arcsinh", UnaryKind::kArcsinh},
    {"arccosh", UnaryKind::kArccosh},
    {"arctanh", UnaryKind::kArctanh},
    {"degrees", UnaryKind::kDegrees},
    {"radians", UnaryKind::kRadians},
    {"erf", UnaryKind::kErf, "_npx_erf"},
    {"erfinv", UnaryKind::kErfinv, "_npx_erfinv"},
    {"gamma", UnaryKind::kGamma, "_npx_gamma"},
    {"gammaln", UnaryKind::kGammaln, "_npx_gammaln"},
};

auto unary(UnaryKind kind) {
  return [=](MxnetLowering& lowering) { return lowering.add(ops::kUnary, UnaryAttributes{kind}); };
}

auto activation(ActivationKind kind) {
  return [=](MxnetLowering& lowering) { return lowering.add(ops::kActivation, ActivationAttributes{kind}); };
}

Values where(MxnetLowering& lowering) { return lowering.add(ops::kWhere, WhereAttributes{.selects_rows = true}); }

Values hard_sigmoid(MxnetLowering& lowering) {
  const float alpha = lowering.attributes.real("alpha", 0.2f), beta = lowering.attributes.real("beta", 0.5f);
  return lowering.add(ops::kHardSigmoid, HardSigmoidAttributes{alpha, beta});
}

Values div_sqrt_dim(MxnetLowering& lowering) { return lowering.add(ops::kDivSqrtDim); }

Values quadratic(MxnetLowering& lowering) {
  const auto number = [&](const char* name) { return lowering.attributes.real(name, 0.0f); };
  return lowering.add(ops::kQuadratic, QuadraticAttributes{number("a"), number("b"), number("c")});
}

Values cast(MxnetLowering& lowering) {
  return lowering.add(ops::kCast, CastAttributes{lowering.attributes.dtype("dtype"), false});
}
Values amp_cast(MxnetLowering& lowering) {
  return lowering.add(ops::kCast, CastAttributes{lowering.attributes.dtype("dtype"), true});
}

Values amp_multicast(MxnetLowering& lowering) {
  lowering.check_input_count("num_outputs");
  const MulticastAttributes attributes{lowering.attributes.flag("cast_narrow", false)};
  return lowering.add(ops::kAmpMulticast, attributes, lowering.inputs, lowering.inputs.size());
}

Values clip(MxnetLowering& lowering) {
  const float least = lowering.attributes.real("a_min"), most = lowering.attributes.real("a_max");
  return lowering.add(ops::kClip, ClipAttributes{least, most});
}

/// The output is the input; no node is added.
Values identity(MxnetLowering& lowering) {
  lowering.attributes.ignore(
      {"grad_scale", "valid_thresh", "normalization", "scalar", "is_int", "sparseness_target", "penalty", "momentum"});
  return {lowering.inputs[0]};
}

Values dropout(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  const float p = attributes.real("p", 0.5f);
  if (!(p >= 0 && p <= 1)) attributes.fail("p", "is not in 0 to 1");
  if (attributes.choice("mode", {"training", "always"}, 0) == 1)
    attributes.fail("mode", "asks for random numbers at inference, which is not supported");
  attributes.tuple("axes", Dims{});
  attributes.ignore({"cudnn_off"});
  return {lowering.inputs[0], kNoValue};
}

}  // namespace

std::optional<UnaryKind> find_unary(std::string_view name) {
  const auto row = std::ranges::find(kUnaries, name, &UnaryName::name);
  return row == std::end(kUnaries) ? std::nullopt : std::optional(row->kind);
}

std::vector<MxnetOperator> elementwise_operators() {
  std::vector<MxnetOperator> all;
  add_binaries(all);
  add_aliases(all, {"", 1, -1, -1, add_n}, {"add_n", "ElementWiseSum", "_npx_add_n"});
  for (const UnaryName& row : kUnaries)
    add_aliases(all, {"", 1, 1, -1, unary(row.kind)},
                with({row.name}, row.alias ? std::vector<std::string>{row.alias} : std::vector<std::string>{}));
  add_aliases(all, {"", 1, 1, -1, activation(ActivationKind::kRelu)}, {"relu", "_npx_relu"});
  add_aliases(all, {"", 1, 1, -1, activation(ActivationKind::kSigmoid)}, {"sigmoid", "_npx_sigmoid"});
  all.push_back({"tanh", 1, 1, -1, activation(ActivationKind::kTanh)});
  all.push_back({"softsign", 1, 1, -1, activation(ActivationKind::kSoftSign)});
  all.push_back({"hard_sigmoid", 1, 1, -1, hard_sigmoid});
  all.push_back({"_contrib_div_sqrt_dim", 1, 1, -1, div_sqrt_dim});
  all.push_back({"_contrib_quadratic", 1, 1, -1, quadratic});
  add_aliases(all, {"", 1, 1, -1, cast}, {"Cast", "cast", "_npx_cast", "_npi_cast"});
  all.push_back({"amp_cast", 1, 1, -1, amp_cast});
  all.push_back({"where", 3, 3, -1, where});
  all.push_back({"amp_multicast", 1, -1, -1, amp_multicast});
  add_aliases(all, {"", 1, 1, -1, clip}, {"clip", "_npi_clip"});
  add_aliases(all, {"", 1, 1, -1, dropout, -1, {"output", "mask"}}, {"Dropout", "_npx_dropout"});
  add_aliases(all, {"", 1, 1, -1, identity},
              {"_copy", "identity", "BlockGrad", "stop_gradient", "MakeLoss", "_CrossDeviceCopy", "_contrib_gradientmultiplier"});
  all.push_back({"make_loss", 1, 1, -1, identity, -1, {"loss"}, {}, "_copy"});
  all.push_back({"IdentityAttachKLSparseReg", 1, 2, 1, identity, 1});
  all.push_back({"_identity_with_attr_like_rhs", 2, 2, 1, identity});
  return all;
}

}  // namespace shoal::worker

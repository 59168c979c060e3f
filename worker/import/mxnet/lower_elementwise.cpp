// Element-wise operators: same-shape arithmetic, the scalar family, casts, clip, and everything that is the identity at
// inference.
#include "shm/base/format.hpp"
#include "worker/import/mxnet/mxnet_lowering.hpp"

namespace shoal::worker {
namespace {

using Values = std::vector<ValueId>;

/// num_args, where the file has it, must be the number of inputs.
void check_num_args(MxnetLowering& lowering, const char* key) {
  const auto count = static_cast<std::int64_t>(lowering.inputs.size());
  if (lowering.attributes.integer(key, count, 1) != count)
    lowering.attributes.fail(key, format("and the node has {} inputs", count));
}

Values add(MxnetLowering& lowering) { return lowering.add("Add"); }
Values subtract(MxnetLowering& lowering) { return lowering.add("Sub"); }
Values multiply(MxnetLowering& lowering) { return lowering.add("Mul"); }
Values divide(MxnetLowering& lowering) { return lowering.add("Div"); }
Values round(MxnetLowering& lowering) { return lowering.add("Round"); }
Values sign(MxnetLowering& lowering) { return lowering.add("Sign"); }

Values add_n(MxnetLowering& lowering) {
  check_num_args(lowering, "num_args");
  return lowering.add("AddN");
}

/// MXNet's name of a scalar operator, its CamelCase alias, and ours.
struct ScalarName {
  const char *name, *alias, *shoal;
};
constexpr ScalarName kScalars[] = {
    {"_plus_scalar", "_PlusScalar", "AddScalar"},
    {"_minus_scalar", "_MinusScalar", "SubScalar"},
    {"_rminus_scalar", "_RMinusScalar", "RSubScalar"},
    {"_mul_scalar", "_MulScalar", "MulScalar"},
    {"_div_scalar", "_DivScalar", "DivScalar"},
    {"_rdiv_scalar", "_RDivScalar", "RDivScalar"},
    {"_mod_scalar", "_ModScalar", "ModScalar"},
    {"_rmod_scalar", "_RModScalar", "RModScalar"},
    {"_power_scalar", "_PowerScalar", "PowerScalar"},
    {"_rpower_scalar", "_RPowerScalar", "RPowerScalar"},
    {"_maximum_scalar", "_MaximumScalar", "MaximumScalar"},
    {"_minimum_scalar", "_MinimumScalar", "MinimumScalar"},
    {"_hypot_scalar", "_HypotScalar", "HypotScalar"},
    {"_equal_scalar", "_EqualScalar", "EqualScalar"},
    {"_not_equal_scalar", "_NotEqualScalar", "NotEqualScalar"},
    {"_greater_scalar", "_GreaterScalar", "GreaterScalar"},
    {"_greater_equal_scalar", "_GreaterEqualScalar", "GreaterEqualScalar"},
    {"_lesser_scalar", "_LesserScalar", "LesserScalar"},
    {"_lesser_equal_scalar", "_LesserEqualScalar", "LesserEqualScalar"},
    {"_logical_and_scalar", "_LogicalAndScalar", "LogicalAndScalar"},
    {"_logical_or_scalar", "_LogicalOrScalar", "LogicalOrScalar"},
    {"_logical_xor_scalar", "_LogicalXorScalar", "LogicalXorScalar"},
};

Values scalar(MxnetLowering& lowering) {
  ScalarAttributes scalar;
  scalar.scalar = lowering.attributes.number("scalar", 1.0);
  scalar.is_int = lowering.attributes.flag("is_int", true);
  for (const ScalarName& row : kScalars) {
    if (lowering.node.op == row.name || lowering.node.op == row.alias) return lowering.add(row.shoal, scalar);
  }
  return {};
}

Values cast(MxnetLowering& lowering) { return lowering.add("Cast", CastAttributes{lowering.attributes.dtype("dtype"), false}); }
Values amp_cast(MxnetLowering& lowering) {
  return lowering.add("Cast", CastAttributes{lowering.attributes.dtype("dtype"), true});
}

Values amp_multicast(MxnetLowering& lowering) {
  check_num_args(lowering, "num_outputs");
  const MulticastAttributes attributes{lowering.attributes.flag("cast_narrow", false)};
  return lowering.add("AmpMulticast", attributes, lowering.inputs, lowering.inputs.size());
}

Values clip(MxnetLowering& lowering) {
  const float least = lowering.attributes.real("a_min"), most = lowering.attributes.real("a_max");
  return lowering.add("Clip", ClipAttributes{least, most});
}

/// The output is the input: no node at all.
Values identity(MxnetLowering& lowering) {
  lowering.attributes.ignore(
      {"grad_scale", "valid_thresh", "normalization", "scalar", "is_int", "sparseness_target", "penalty", "momentum"});
  return {lowering.inputs[0]};
}

Values cast_storage(MxnetLowering& lowering) {
  if (lowering.attributes.choice("stype", {"default", "row_sparse", "csr"}) > 0)
    lowering.attributes.fail("stype", "is sparse, which is not supported");
  return identity(lowering);
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

std::vector<MxnetOperator> elementwise_operators() {
  std::vector<MxnetOperator> all;
  add_aliases(all, {"", 2, 2, -1, add}, {"elemwise_add", "_plus", "_Plus", "_add", "_grad_add"});
  add_aliases(all, {"", 2, 2, -1, subtract}, {"elemwise_sub", "_minus", "_Minus", "_sub"});
  add_aliases(all, {"", 2, 2, -1, multiply}, {"elemwise_mul", "_mul", "_Mul"});
  add_aliases(all, {"", 2, 2, -1, divide}, {"elemwise_div", "_div", "_Div"});
  add_aliases(all, {"", 1, -1, -1, add_n}, {"add_n", "ElementWiseSum", "_npx_add_n"});
  for (const ScalarName& row : kScalars) add_aliases(all, {"", 1, 1, -1, scalar}, {row.name, row.alias});
  add_aliases(all, {"", 1, 1, -1, cast}, {"Cast", "cast", "_npx_cast"});
  all.push_back({"amp_cast", 1, 1, -1, amp_cast});
  all.push_back({"amp_multicast", 1, -1, -1, amp_multicast});
  all.push_back({"clip", 1, 1, -1, clip});
  add_aliases(all, {"", 1, 1, -1, round}, {"round", "_contrib_round_ste"});
  add_aliases(all, {"", 1, 1, -1, sign}, {"sign", "_contrib_sign_ste"});
  add_aliases(all, {"", 1, 1, -1, dropout, -1, {"output", "mask"}}, {"Dropout", "_npx_dropout"});
  add_aliases(all, {"", 1, 1, -1, identity},
              {"_copy", "identity", "BlockGrad", "stop_gradient", "MakeLoss", "make_loss", "_CrossDeviceCopy",
               "_contrib_gradientmultiplier"});
  all.push_back({"cast_storage", 1, 1, -1, cast_storage});
  all.push_back({"IdentityAttachKLSparseReg", 1, 2, 1, identity, 1});
  all.push_back({"_identity_with_attr_like_rhs", 2, 2, 1, identity});
  return all;
}

}  // namespace shoal::worker

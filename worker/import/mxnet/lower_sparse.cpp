// Operators of sparse tensors. A graph has each tensor in a form that every operator can read; worker/passes/sparse_forms.hpp
// then finds those that compute with what is stored.
#include "worker/import/mxnet/mxnet_lowering.hpp"
#include "worker/ops/reduce.hpp"
#include "worker/ops/sparse.hpp"
#include "worker/ops/unary.hpp"

namespace shoal::worker {
namespace {

using Values = std::vector<ValueId>;

/// The elements are the same in any storage.
Values cast_storage(MxnetLowering& lowering) {
  lowering.attributes.choice("stype", {"default", "row_sparse", "csr"});
  return {lowering.inputs[0]};
}

Values retain(MxnetLowering& lowering) { return lowering.add(ops::kRetainRows); }

Values square_sum(MxnetLowering& lowering) {
  ReduceAttributes reduce{.kind = ReduceKind::kSum};
  reduce.axes = lowering.attributes.tuple("axis", Dims{});
  reduce.keepdims = lowering.attributes.flag("keepdims", false);
  reduce.exclude = lowering.attributes.flag("exclude", false);
  const Values squares = lowering.add(ops::kUnary, UnaryAttributes{UnaryKind::kSquare});
  return squares.empty() ? Values() : lowering.add(ops::kReduce, reduce, squares);
}

}  // namespace

std::span<const std::string_view> sparse_aliases() {
  static constexpr std::string_view kNames[] = {"ElementWiseSum",
                                                "FullyConnected",
                                                "LinearRegressionOutput",
                                                "LogisticRegressionOutput",
                                                "MAERegressionOutput",
                                                "_contrib_round_ste",
                                                "_contrib_sign_ste",
                                                "abs",
                                                "add_n",
                                                "arccos",
                                                "arccosh",
                                                "arcsin",
                                                "arcsinh",
                                                "arctan",
                                                "arctanh",
                                                "broadcast_add",
                                                "broadcast_div",
                                                "broadcast_minus",
                                                "broadcast_mul",
                                                "broadcast_plus",
                                                "broadcast_sub",
                                                "cast_storage",
                                                "cbrt",
                                                "ceil",
                                                "clip",
                                                "concat",
                                                "cos",
                                                "cosh",
                                                "degrees",
                                                "dot",
                                                "elemwise_add",
                                                "elemwise_div",
                                                "elemwise_mul",
                                                "elemwise_sub",
                                                "exp",
                                                "expm1",
                                                "fix",
                                                "floor",
                                                "gamma",
                                                "gammaln",
                                                "log",
                                                "log10",
                                                "log1p",
                                                "log2",
                                                "make_loss",
                                                "mean",
                                                "negative",
                                                "norm",
                                                "radians",
                                                "relu",
                                                "rint",
                                                "round",
                                                "rsqrt",
                                                "sigmoid",
                                                "sign",
                                                "sin",
                                                "sinh",
                                                "slice",
                                                "sqrt",
                                                "square",
                                                "stop_gradient",
                                                "sum",
                                                "tan",
                                                "tanh",
                                                "trunc",
                                                "where"};
  return kNames;
}

std::vector<MxnetOperator> sparse_operators() {
  std::vector<MxnetOperator> all;
  all.push_back({"cast_storage", 1, 1, -1, cast_storage});
  all.push_back({"_sparse_retain", 2, 2, -1, retain});
  all.push_back({"_square_sum", 1, 1, -1, square_sum});
  return all;
}

}  // namespace shoal::worker

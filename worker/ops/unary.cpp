// Unary, DivSqrtDim, Quadratic, NanToNum, Around.
#include "worker/ops/unary.hpp"

#include <cmath>

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/elements.hpp"
#include "worker/ops/unary_functions.hpp"

namespace shoal::worker {
namespace {

Status infer_unary(const Node& node, SourceValues src, ResultValues dst) {
  const UnaryKind kind = node.attributes.get<UnaryAttributes>().kind;
  if (kind == UnaryKind::kBitNot && is_float(src[0].dtype))
    return invalid_argument("{}: '{}' is {}; integers are needed", describe(node), src[0].name, dtype_name(src[0].dtype));
  return takes_bools(kind) ? infer_same(node, src, dst) : infer_numeric(node, src, dst);
}

/// The function of one number of type C, which is Compute<T>. It is called through a pointer, as in Binary.
template <typename C>
using UnaryFunction = C (*)(C x);

template <typename C>
UnaryFunction<C> function_of(UnaryKind kind) {
  if (!is_of_reals(kind, std::is_integral_v<C>))
    return with_function_of_numbers<C>(
        kind, []<typename Function>(Function) -> UnaryFunction<C> { return [](C x) { return Function()(x); }; });
  return with_function_of_reals<RealOf<C>>(kind, []<typename Function>(Function) -> UnaryFunction<C> {
    return [](C x) { return from_float<C>(Function()(static_cast<RealOf<C>>(x))); };
  });
}

Status compute_unary(const Node& node, Sources src, Results dst) {
  const UnaryKind kind = node.attributes.get<UnaryAttributes>().kind;
  if (src[0].dtype == DType::kBool) return map<std::uint8_t>(src[0], dst[0], function_of<std::uint8_t>(UnaryKind::kLogicalNot));
  return dispatch<Numbers>(node, src[0].dtype,
                           [&]<typename T>() { return map<T>(src[0], dst[0], function_of<Compute<T>>(kind)); });
}

Status compute_div_sqrt_dim(const Node& node, Sources src, Results dst) {
  const Shape& shape = src[0].shape;
  const double root = std::sqrt(static_cast<double>(row_length(shape)));
  return dispatch<Numbers>(node, src[0].dtype, [&]<typename T>() {
    using F = Float<T>;
    return map<T>(src[0], dst[0], [&](Compute<T> x) { return from_float<Compute<T>>(static_cast<F>(x) / static_cast<F>(root)); });
  });
}

Status compute_quadratic(const Node& node, Sources src, Results dst) {
  const auto& attributes = node.attributes.get<QuadraticAttributes>();
  return dispatch<Numbers>(node, src[0].dtype, [&]<typename T>() {
    return map<T>(src[0], dst[0],
                  [&](Compute<T> x) { return from_float<Compute<T>>(quadratic(attributes, static_cast<Float<T>>(x))); });
  });
}

Status compute_nan_to_num(const Node& node, Sources src, Results dst) {
  const auto& numbers = node.attributes.get<NanToNumAttributes>();
  return dispatch<Numbers>(node, src[0].dtype,
                           [&]<typename T>() { return map<T>(src[0], dst[0], nan_to_num_function<T>(numbers)); });
}

Status compute_around(const Node& node, Sources src, Results dst) {
  const auto& around = node.attributes.get<AroundAttributes>();
  return dispatch<Numbers>(node, src[0].dtype, [&]<typename T>() { return map<T>(src[0], dst[0], around_function<T>(around)); });
}

bool div_sqrt_dim_rows(const BatchedNode& batched) { return batched.only_first_has_rows() && batched.rank() > 1; }

}  // namespace

namespace ops {

const Operator kUnary({
    .name = "Unary",
    .attributes = &kSchema<UnaryAttributes>,
    .infer = infer_unary,
    .facts = elementwise_facts(rows_of_first_input, Accuracy::kLost),
    .oracle = compute_unary,
    .formula = "data: a function of each element. Integers are computed in float64 and truncated, unless the result is always "
               "whole. round: halves away from zero; rint: halves to the lower integer. "
               "bit_not takes "
               "no floats; of bools it is logical_not. Questions (isnan) give 1 or 0",
    .source = "MXNet 1.9.1 src/operator/mshadow_op.h",
});

const Operator kDivSqrtDim({
    .name = "DivSqrtDim",
    .infer = infer_numeric,
    .facts = layer_facts(div_sqrt_dim_rows, work_of_elements, Accuracy::kLost),
    .oracle = compute_div_sqrt_dim,
    .formula = "data / sqrt(length of the last axis)",
    .source = "MXNet 1.9.1 src/operator/contrib/transformer.cc",
});

const Operator kQuadratic({
    .name = "Quadratic",
    .attributes = &kSchema<QuadraticAttributes>,
    .infer = infer_numeric,
    .facts = elementwise_facts(rows_of_first_input, Accuracy::kLost),
    .oracle = compute_quadratic,
    .formula = "data: x (a x + b) + c. Integers are computed in float32 and truncated",
    .source = "MXNet 1.9.1 src/operator/contrib/quadratic_op-inl.h",
});

const Operator kNanToNum({
    .name = "NanToNum",
    .attributes = &kSchema<NanToNumAttributes>,
    .infer = infer_numeric,
    .facts = elementwise_facts(rows_of_first_input, Accuracy::kLost),
    .oracle = compute_nan_to_num,
    .formula = "data with numbers in place of NaN and infinities",
    .source = "MXNet 1.9.1 src/operator/numpy/np_elemwise_unary_op_basic.cc",
});

const Operator kAround({
    .name = "Around",
    .attributes = &kSchema<AroundAttributes>,
    .infer = infer_numeric,
    .facts = elementwise_facts(rows_of_first_input, Accuracy::kLost),
    .oracle = compute_around,
    .formula =
        "data rounded to decimals, halves to the even digit. Integers have no decimals; they are cut to tens, hundreds ...",
    .source = "MXNet 1.9.1 src/operator/numpy/np_elemwise_unary_op_basic.cc",
});

}  // namespace ops

}  // namespace shoal::worker

// Binary, Scalar, AddN, Clip.
#include "worker/ops/arithmetic.hpp"

#include <algorithm>
#include <array>
#include <functional>

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/binary_functions.hpp"
#include "worker/ops/elements.hpp"

namespace shoal::worker {
namespace {

/// Has the data numbers for this function? Bools are taken where types are promoted.
Status check_operand(const Node& node, BinaryKind kind, Promotion promotion, const TypedValue& data) {
  if (is_of_integers(kind) && is_float(data.dtype))
    return invalid_argument("{}: '{}' is {}; integers are needed", describe(node), data.name, dtype_name(data.dtype));
  const bool takes_bools = promotion != Promotion::kNone && kind_of_bools(kind);
  return data.dtype == DType::kBool && takes_bools ? Status() : check_number(node, data);
}

Status infer_binary(const Node& node, SourceValues src, ResultValues dst) {
  const auto& binary = node.attributes.get<BinaryAttributes>();
  SHOAL_RETURN_IF_ERROR(check_operand(node, binary.kind, binary.promotion, src[0]));
  if (!binary.broadcast) return infer_same(node, src, dst);
  SHOAL_RETURN_IF_ERROR(check_same_dtype(node, src));
  SHOAL_ASSIGN_OR_RETURN(const SymbolicShape out, broadcast(node, src[0], src[1]));
  set_result(dst[0], src[0].dtype, out);
  return {};
}

void binary_parameters(const Node& node, std::span<TypedValue> src) {
  if (!node.attributes.get<BinaryAttributes>().broadcast) same_parameters(node, src);
}

Status infer_scalar(const Node& node, SourceValues src, ResultValues dst) {
  const auto& scalar = node.attributes.get<ScalarAttributes>();
  const TypedValue& data = src[0];
  SHOAL_RETURN_IF_ERROR(check_operand(node, scalar.kind, scalar.promotion, data));
  const bool widens = is_integer(data.dtype) && !scalar.is_int && !is_of_integers(scalar.kind);
  set_result(dst[0], widens ? DType::kFloat64 : data.dtype, data.shape);
  return {};
}

void promote_binary(const Node& node, std::span<DType> types) {
  promote_all(node.attributes.get<BinaryAttributes>().promotion, types);
}
void promote_scalar(const Node& node, std::span<DType> types) {
  promote_all(node.attributes.get<ScalarAttributes>().promotion, types);
}

/// The function of two numbers. It is called through a pointer: one loop per kind and type would be hundreds of loops.
template <typename C>
using BinaryFunction = C (*)(C a, C b);

template <typename C>
BinaryFunction<C> function_of(BinaryKind kind) {
  return with_function<C>(kind, [](auto function) -> BinaryFunction<C> { return function; });
}

/// The function of two bools, in which every byte but 0 is true: a client may write any.
BinaryFunction<std::uint8_t> function_of_bools(BinaryKind kind) {
  return with_function<std::uint8_t>(kind_of_bools(kind).value(), []<typename F>(F) -> BinaryFunction<std::uint8_t> {
    return [](std::uint8_t a, std::uint8_t b) { return F()(a != 0, b != 0); };
  });
}

/// dst = function(a, b), each broadcast to the shape of dst.
template <typename T, typename C = Compute<T>>
void binary(BinaryFunction<C> function, const TensorView& a, const TensorView& b, TensorView& dst) {
  const bool equal = a.shape == b.shape;  // then all is one row
  const Shape shape = equal ? Shape{dst.element_count()} : dst.shape;
  const std::array strides{broadcast_strides(equal ? shape : a.shape, shape), broadcast_strides(equal ? shape : b.shape, shape)};
  const std::int64_t length = row_length(shape), step_a = row_stride(shape, strides[0]), step_b = row_stride(shape, strides[1]);
  T* to = elements<T>(dst);
  each_row(shape, strides, [&](const std::array<std::int64_t, 2>& offsets) {
    const T *left = elements<T>(a) + offsets[0], *right = elements<T>(b) + offsets[1];
    for (std::int64_t i = 0; i < length; ++i, left += step_a, right += step_b)
      *to++ = to_element<T>(function(static_cast<C>(*left), static_cast<C>(*right)));
  });
}

/// `s` has been rounded to the type of dst.
template <typename From, typename To>
Status scalar(BinaryFunction<Compute<To>> function, bool reversed, Compute<To> s, const TensorView& src, TensorView& dst) {
  using C = Compute<To>;
  if (reversed) return map<From, To>(src, dst, [=](C x) { return function(s, x); });
  return map<From, To>(src, dst, [=](C x) { return function(x, s); });
}

Status compute_binary(const Node& node, Sources src, Results dst) {
  const BinaryKind kind = node.attributes.get<BinaryAttributes>().kind;
  if (dst[0].dtype == DType::kBool) {
    binary<std::uint8_t>(function_of_bools(kind), src[0], src[1], dst[0]);
    return {};
  }
  return dispatch<Numbers>(node, dst[0].dtype, [&]<typename T>() {
    binary<T>(function_of<Compute<T>>(kind), src[0], src[1], dst[0]);
    return Status();
  });
}

Status compute_add_n(const Node& node, Sources src, Results dst) {
  return dispatch<Numbers>(node, dst[0].dtype, [&]<typename T>() {
    T* to = elements<T>(dst[0]);
    for (std::int64_t i = 0, count = dst[0].element_count(); i < count; ++i) {
      Compute<T> sum = 0;
      for (const TensorView& view : src) {
        sum = wrapping(sum, static_cast<Compute<T>>(elements<T>(view)[i]), std::plus<>());
      }
      to[i] = to_element<T>(sum);
    }
    return Status();
  });
}

Status compute_scalar(const Node& node, Sources src, Results dst) {
  const auto& attributes = node.attributes.get<ScalarAttributes>();
  const bool reversed = attributes.reversed;
  if (dst[0].dtype == DType::kBool) {
    return scalar<std::uint8_t, std::uint8_t>(function_of_bools(attributes.kind), reversed, attributes.scalar != 0 ? 1 : 0,
                                              src[0], dst[0]);
  }
  return dispatch<Numbers>(node, src[0].dtype, [&]<typename T>() {
    if constexpr (std::is_integral_v<T>) {
      if (dst[0].dtype == DType::kFloat64)
        return scalar<T, double>(function_of<double>(attributes.kind), reversed, attributes.scalar, src[0], dst[0]);
    }
    const auto function = function_of<Compute<T>>(attributes.kind);
    return scalar<T, T>(function, reversed, scalar_as<T>(attributes.scalar), src[0], dst[0]);
  });
}

Status compute_clip(const Node& node, Sources src, Results dst) {
  const auto& clip = node.attributes.get<ClipAttributes>();
  return dispatch<Numbers>(node, src[0].dtype, [&]<typename T>() {
    const auto least = scalar_as<T>(clip.min), most = scalar_as<T>(clip.max);
    return map<T>(src[0], dst[0], [&](Compute<T> x) {
      const double value = static_cast<double>(x);
      return value > clip.max ? most : value < clip.min ? least : x;  // NaN passes
    });
  });
}

bool binary_rows(const BatchedNode& batched) { return batched.rows_align(0) && batched.rows_align(1); }

}  // namespace

namespace ops {

const Operator kBinary({
    .name = "Binary",
    .inputs = 2,
    .attributes = &kSchema<BinaryAttributes>,
    .infer = infer_binary,
    .infer_parameters = binary_parameters,
    .constant_types = ConstantTypes::kAsData,
    .promote = promote_binary,
    .facts = elementwise_facts(binary_rows, Accuracy::kKept),
    .oracle = compute_binary,
    .formula =
        "a, b: a function of two elements. Integer sums, differences and products wrap; an integer divided by 0 is 0. "
        "Comparisons and logic give 0 or 1 in the type of the operands. mod has the sign of b, and x mod 0 is 0. "
        "smooth_l1: b^2 a^2 / 2 where |a| <= 1 / b^2, else |a| - 1 / (2 b^2). ldexp: a 2^b. lcm and functions of bits take "
        "integers. Where types are promoted, two bools give a bool: add is or, mul is and, power is a >= b",
    .source = "MXNet 1.9.1 src/operator/mshadow_op.h, tensor/elemwise_binary_broadcast_op.h",
});

const Operator kScalar({
    .name = "Scalar",
    .attributes = &kSchema<ScalarAttributes>,
    .infer = infer_scalar,
    .promote = promote_scalar,
    .facts = elementwise_facts(rows_of_first_input, Accuracy::kKept),
    .oracle = compute_scalar,
    .formula = "Binary of the data and one number",
    .source = "MXNet 1.9.1 src/operator/tensor/elemwise_binary_scalar_op.h",
});

const Operator kAddN({
    .name = "AddN",
    .inputs = {1, Arity::kAny},
    .infer = infer_numeric,
    .infer_parameters = same_parameters,
    .constant_types = ConstantTypes::kAsData,
    .facts = elementwise_facts(rows_of_all_inputs, Accuracy::kKept),
    .oracle = compute_add_n,
    .formula = "the sum of any number of inputs of one shape",
    .source = "MXNet 1.9.1 src/operator/tensor/elemwise_sum.cc",
});

const Operator kClip({
    .name = "Clip",
    .attributes = &kSchema<ClipAttributes>,
    .infer = infer_numeric,
    .facts = elementwise_facts(rows_of_first_input, Accuracy::kKept),
    .oracle = compute_clip,
    .formula = "data, cut to min .. max; NaN passes",
    .source = "MXNet 1.9.1 src/operator/tensor/matrix_op-inl.h",
});

}  // namespace ops

}  // namespace shoal::worker

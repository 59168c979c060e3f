// Element-wise arithmetic: two tensors, many tensors, a tensor and a scalar; clip.
#include <cmath>
#include <functional>

#include "worker/exec/reference/elements.hpp"
#include "worker/exec/reference/kernels.hpp"

namespace shoal::worker {
namespace {

/// a / b. Integer divisions that C leaves undefined give 0, so that no data crashes a worker.
template <typename T>
T quotient(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    const T divisor = load_once(&b);  // the client's memory is not read again
    if (divisor == 0) return 0;
    if (std::is_signed_v<T> && divisor == static_cast<T>(-1)) return static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(a));
    return static_cast<T>(a / divisor);
  } else {
    return a / b;
  }
}

/// The sign of the result is b's, as in Python; x mod 0 is 0.
template <typename T>
T modulo(T a, T b) {
  if (b == 0) return 0;
  const double rest = std::fmod(static_cast<double>(a), static_cast<double>(b));
  // In double the sum may be rounded to 2^63, which int64 cannot hold.
  return from_float<T>(rest != 0 && (rest < 0) != (b < 0) ? rest + static_cast<double>(b) : rest);
}

/// 1 or 0 as a number.
template <typename C>
constexpr C truth(bool value) {
  return value ? C{1} : C{0};
}

template <typename C>
C smooth_l1(C a, C b) {
  const Float<C> x = static_cast<Float<C>>(a), square = static_cast<Float<C>>(b) * static_cast<Float<C>>(b), border = 1 / square;
  return from_float<C>(x > border ? x - border / 2 : x < -border ? -x - border / 2 : x * x * square / 2);
}

/// The function of two numbers. It is called through a pointer: one loop per kind and type would be hundreds of loops.
template <typename C>
using BinaryFunction = C (*)(C a, C b);

template <typename C>
BinaryFunction<C> function_of(BinaryKind kind) {
  using F = Float<C>;
  switch (kind) {
    case BinaryKind::kAdd:
      return [](C a, C b) { return wrapping(a, b, std::plus<>()); };
    case BinaryKind::kSub:
      return [](C a, C b) { return wrapping(a, b, std::minus<>()); };
    case BinaryKind::kMul:
      return [](C a, C b) { return wrapping(a, b, std::multiplies<>()); };
    case BinaryKind::kDiv:
      return quotient<C>;
    case BinaryKind::kMod:
      return modulo<C>;
    case BinaryKind::kPower:
      return [](C a, C b) { return from_float<C>(std::pow(static_cast<F>(a), static_cast<F>(b))); };
    case BinaryKind::kHypot:
      return [](C a, C b) { return from_float<C>(std::hypot(static_cast<F>(a), static_cast<F>(b))); };
    case BinaryKind::kMaximum:
      return [](C a, C b) { return a != a || a > b ? a : b; };
    case BinaryKind::kMinimum:
      return [](C a, C b) { return a != a || a < b ? a : b; };
    case BinaryKind::kEqual:
      return [](C a, C b) { return truth<C>(a == b); };
    case BinaryKind::kNotEqual:
      return [](C a, C b) { return truth<C>(a != b); };
    case BinaryKind::kGreater:
      return [](C a, C b) { return truth<C>(a > b); };
    case BinaryKind::kGreaterEqual:
      return [](C a, C b) { return truth<C>(a >= b); };
    case BinaryKind::kLesser:
      return [](C a, C b) { return truth<C>(a < b); };
    case BinaryKind::kLesserEqual:
      return [](C a, C b) { return truth<C>(a <= b); };
    case BinaryKind::kLogicalAnd:
      return [](C a, C b) { return truth<C>(a != 0 && b != 0); };
    case BinaryKind::kLogicalOr:
      return [](C a, C b) { return truth<C>(a != 0 || b != 0); };
    case BinaryKind::kLogicalXor:
      return [](C a, C b) { return truth<C>((a != 0) != (b != 0)); };
    case BinaryKind::kSmoothL1:
      return smooth_l1<C>;
  }
  return nullptr;
}

/// dst = function(a, b), each broadcast to the shape of dst.
template <typename T>
void binary(BinaryKind kind, const TensorView& a, const TensorView& b, TensorView& dst) {
  using C = Compute<T>;
  const BinaryFunction<C> function = function_of<C>(kind);
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
Status scalar(const ScalarAttributes& scalar, Compute<To> s, const TensorView& src, TensorView& dst) {
  using C = Compute<To>;
  const BinaryFunction<C> function = function_of<C>(scalar.kind);
  if (scalar.reversed) return map<From, To>(src, dst, [=](C x) { return function(s, x); });
  return map<From, To>(src, dst, [=](C x) { return function(x, s); });
}

/// A scalar as an element: cut to integers, rounded to narrow floats.
template <typename T>
Compute<T> scalar_as(double s) {
  return static_cast<Compute<T>>(from_float<T>(s));
}

}  // namespace

Status reference_binary(const Node& node, Sources src, Results dst) {
  const BinaryKind kind = std::get<BinaryAttributes>(node.attributes).kind;
  return with_number(node, dst[0].dtype, [&]<typename T>() {
    binary<T>(kind, src[0], src[1], dst[0]);
    return Status();
  });
}

Status reference_add_n(const Node& node, Sources src, Results dst) {
  return with_number(node, dst[0].dtype, [&]<typename T>() {
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

Status reference_scalar(const Node& node, Sources src, Results dst) {
  const auto& attributes = std::get<ScalarAttributes>(node.attributes);
  return with_number(node, src[0].dtype, [&]<typename T>() {
    if constexpr (std::is_integral_v<T>) {
      if (dst[0].dtype == DType::kFloat64) return scalar<T, double>(attributes, attributes.scalar, src[0], dst[0]);
    }
    return scalar<T, T>(attributes, scalar_as<T>(attributes.scalar), src[0], dst[0]);
  });
}

Status reference_clip(const Node& node, Sources src, Results dst) {
  const auto& clip = std::get<ClipAttributes>(node.attributes);
  return with_number(node, src[0].dtype, [&]<typename T>() {
    const auto least = scalar_as<T>(clip.min), most = scalar_as<T>(clip.max);
    return map<T>(src[0], dst[0], [&](Compute<T> x) {
      const double value = static_cast<double>(x);
      return value > clip.max ? most : value < clip.min ? least : x;  // NaN passes
    });
  });
}

}  // namespace shoal::worker

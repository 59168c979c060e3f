// Element-wise arithmetic: two tensors, many tensors, a tensor and a scalar; clip, round, sign.
#include <cmath>
#include <limits>
#include <string_view>

#include "worker/exec/reference/elements.hpp"
#include "worker/exec/reference/kernels.hpp"
#include "worker/graph/operators.hpp"

namespace shoal::worker {
namespace {

/// a / b; what C leaves undefined for integers is 0, as there is no better answer and a worker must not die of it.
template <typename T>
T quotient(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (b == 0) return 0;
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(a));
  }
  return static_cast<T>(a / b);
}

/// The sign of the result is b's, as in Python; x mod 0 is 0.
template <typename T>
T modulo(T a, T b) {
  if (b == 0) return 0;
  const double rest = std::fmod(static_cast<double>(a), static_cast<double>(b));
  return static_cast<T>(rest != 0 && (rest < 0) != (b < 0) ? rest + static_cast<double>(b) : rest);
}

/// pow and hypot as MXNet computes them: in double for float64, in float for all other types.
template <typename T, typename Function>
T in_float(T a, T b, Function function) {
  using F = std::conditional_t<std::is_same_v<T, double>, double, float>;
  return static_cast<T>(function(static_cast<F>(a), static_cast<F>(b)));
}

/// Sums, differences and products wrap for integers.
template <typename T, typename Function>
T wrapping(T a, T b, Function function) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(function(static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(b)));
  } else {
    return function(a, b);
  }
}

/// dst[i] = function(a[i], b[i]) with numbers of Compute<T>.
template <typename T, typename Function>
Status zip(const TensorView& a, const TensorView& b, TensorView& dst, Function function) {
  using C = Compute<T>;
  const T *left = elements<T>(a), *right = elements<T>(b);
  T* to = elements<T>(dst);
  for (std::int64_t i = 0, count = dst.element_count(); i < count; ++i) {
    to[i] = to_element<T>(function(static_cast<C>(left[i]), static_cast<C>(right[i])));
  }
  return {};
}

template <typename T>
Status binary(std::string_view op, const TensorView& a, const TensorView& b, TensorView& dst) {
  using C = Compute<T>;
  if (op == "Add") return zip<T>(a, b, dst, [](C x, C y) { return wrapping(x, y, [](auto p, auto q) { return p + q; }); });
  if (op == "Sub") return zip<T>(a, b, dst, [](C x, C y) { return wrapping(x, y, [](auto p, auto q) { return p - q; }); });
  if (op == "Mul") return zip<T>(a, b, dst, [](C x, C y) { return wrapping(x, y, [](auto p, auto q) { return p * q; }); });
  return zip<T>(a, b, dst, [](C x, C y) { return quotient(x, y); });
}

/// dst[i] = function(src[i]); src of another type than dst is converted first.
template <typename From, typename To, typename Function>
Status map(const TensorView& src, TensorView& dst, Function function) {
  using C = Compute<To>;
  const From* from = elements<From>(src);
  To* to = elements<To>(dst);
  for (std::int64_t i = 0, count = dst.element_count(); i < count; ++i) to[i] = to_element<To>(function(static_cast<C>(from[i])));
  return {};
}

/// The scalar operator `op` on elements x and the scalar s, which has been rounded to the type of dst.
template <typename From, typename To>
Status scalar(const Node& node, Compute<To> s, const TensorView& src, TensorView& dst) {
  using C = Compute<To>;
  const std::string_view op = node.op->name;
  const auto with = [&](auto function) { return map<From, To>(src, dst, function); };
  if (op == "AddScalar") return with([s](C x) { return wrapping(x, s, [](auto p, auto q) { return p + q; }); });
  if (op == "SubScalar") return with([s](C x) { return wrapping(x, s, [](auto p, auto q) { return p - q; }); });
  if (op == "RSubScalar") return with([s](C x) { return wrapping(s, x, [](auto p, auto q) { return p - q; }); });
  if (op == "MulScalar") return with([s](C x) { return wrapping(x, s, [](auto p, auto q) { return p * q; }); });
  if (op == "DivScalar") return with([s](C x) { return quotient(x, s); });
  if (op == "RDivScalar") return with([s](C x) { return quotient(s, x); });
  if (op == "ModScalar") return with([s](C x) { return modulo(x, s); });
  if (op == "RModScalar") return with([s](C x) { return modulo(s, x); });
  if (op == "PowerScalar") return with([s](C x) { return in_float(x, s, [](auto p, auto q) { return std::pow(p, q); }); });
  if (op == "RPowerScalar") return with([s](C x) { return in_float(s, x, [](auto p, auto q) { return std::pow(p, q); }); });
  if (op == "HypotScalar") return with([s](C x) { return in_float(x, s, [](auto p, auto q) { return std::hypot(p, q); }); });
  if (op == "MaximumScalar") return with([s](C x) { return x != x || x > s ? x : s; });  // NaN passes
  if (op == "MinimumScalar") return with([s](C x) { return x != x || x < s ? x : s; });
  if (op == "EqualScalar") return with([s](C x) { return static_cast<C>(x == s); });
  if (op == "NotEqualScalar") return with([s](C x) { return static_cast<C>(x != s); });
  if (op == "GreaterScalar") return with([s](C x) { return static_cast<C>(x > s); });
  if (op == "GreaterEqualScalar") return with([s](C x) { return static_cast<C>(x >= s); });
  if (op == "LesserScalar") return with([s](C x) { return static_cast<C>(x < s); });
  if (op == "LesserEqualScalar") return with([s](C x) { return static_cast<C>(x <= s); });
  if (op == "LogicalAndScalar") return with([s](C x) { return static_cast<C>(x != 0 && s != 0); });
  if (op == "LogicalOrScalar") return with([s](C x) { return static_cast<C>(x != 0 || s != 0); });
  if (op == "LogicalXorScalar") return with([s](C x) { return static_cast<C>((x != 0) != (s != 0)); });
  return internal_error("{}: a scalar operator without a kernel", describe(node));
}

/// A scalar as an element: cut to integers, rounded to narrow floats.
template <typename T>
Compute<T> scalar_as(double s) {
  if constexpr (std::is_integral_v<T>) {
    constexpr double kLimit = 9.2e18;
    return static_cast<T>(static_cast<std::int64_t>(s > kLimit ? kLimit : s > -kLimit ? s : -kLimit));  // NaN too
  } else {
    return static_cast<Compute<T>>(to_element<T>(s));
  }
}

}  // namespace

Status reference_binary(const Node& node, Sources src, Results dst) {
  return with_number(node, dst[0].dtype, [&]<typename T>() { return binary<T>(node.op->name, src[0], src[1], dst[0]); });
}

Status reference_add_n(const Node& node, Sources src, Results dst) {
  return with_number(node, dst[0].dtype, [&]<typename T>() {
    T* to = elements<T>(dst[0]);
    for (std::int64_t i = 0, count = dst[0].element_count(); i < count; ++i) {
      Compute<T> sum = 0;
      for (const TensorView& view : src) {
        sum = wrapping(sum, static_cast<Compute<T>>(elements<T>(view)[i]), [](auto p, auto q) { return p + q; });
      }
      to[i] = to_element<T>(sum);
    }
    return Status();
  });
}

Status reference_scalar(const Node& node, Sources src, Results dst) {
  const double s = std::get<ScalarAttributes>(node.attributes).scalar;
  return with_number(node, src[0].dtype, [&]<typename T>() {
    if (src[0].dtype == dst[0].dtype) return scalar<T, T>(node, scalar_as<T>(s), src[0], dst[0]);
    return scalar<T, double>(node, s, src[0], dst[0]);
  });
}

Status reference_clip(const Node& node, Sources src, Results dst) {
  const auto& clip = std::get<ClipAttributes>(node.attributes);
  return with_number(node, src[0].dtype, [&]<typename T>() {
    const auto least = scalar_as<T>(clip.min), most = scalar_as<T>(clip.max);
    return map<T, T>(src[0], dst[0], [&](Compute<T> x) {
      const double value = static_cast<double>(x);
      return value > clip.max ? most : value < clip.min ? least : x;  // NaN passes
    });
  });
}

Status reference_round(const Node& node, Sources src, Results dst) {
  return with_number(node, src[0].dtype, [&]<typename T>() {
    return map<T, T>(src[0], dst[0], [](Compute<T> x) {
      if constexpr (std::is_integral_v<T>)
        return x;
      else
        return std::round(x);
    });
  });
}

Status reference_sign(const Node& node, Sources src, Results dst) {
  return with_number(node, src[0].dtype, [&]<typename T>() {
    return map<T, T>(src[0], dst[0], [](Compute<T> x) { return static_cast<Compute<T>>((x > 0) - (x < 0)); });
  });
}

}  // namespace shoal::worker

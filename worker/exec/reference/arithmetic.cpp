// Element-wise arithmetic: two tensors, many tensors, a tensor and a scalar; clip, round, sign.
#include <cmath>
#include <functional>
#include <limits>
#include <string_view>
#include <utility>

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
  if (op == "Add") return zip<T>(a, b, dst, [](C x, C y) { return wrapping(x, y, std::plus<>()); });
  if (op == "Sub") return zip<T>(a, b, dst, [](C x, C y) { return wrapping(x, y, std::minus<>()); });
  if (op == "Mul") return zip<T>(a, b, dst, [](C x, C y) { return wrapping(x, y, std::multiplies<>()); });
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

/// What a scalar operator does to an element x, given its scalar s. Found at run time: a loop per operator and type would be
/// hundreds of loops to compile.
template <typename C>
using ScalarFunction = C (*)(C x, C s);

template <typename C>
ScalarFunction<C> scalar_function(std::string_view op) {
  static constexpr std::pair<std::string_view, ScalarFunction<C>> kFunctions[] = {
      {"AddScalar", [](C x, C s) { return wrapping(x, s, std::plus<>()); }},
      {"SubScalar", [](C x, C s) { return wrapping(x, s, std::minus<>()); }},
      {"RSubScalar", [](C x, C s) { return wrapping(s, x, std::minus<>()); }},
      {"MulScalar", [](C x, C s) { return wrapping(x, s, std::multiplies<>()); }},
      {"DivScalar", [](C x, C s) { return quotient(x, s); }},
      {"RDivScalar", [](C x, C s) { return quotient(s, x); }},
      {"ModScalar", [](C x, C s) { return modulo(x, s); }},
      {"RModScalar", [](C x, C s) { return modulo(s, x); }},
      {"PowerScalar", [](C x, C s) { return in_float(x, s, [](auto p, auto q) { return std::pow(p, q); }); }},
      {"RPowerScalar", [](C x, C s) { return in_float(s, x, [](auto p, auto q) { return std::pow(p, q); }); }},
      {"HypotScalar", [](C x, C s) { return in_float(x, s, [](auto p, auto q) { return std::hypot(p, q); }); }},
      {"MaximumScalar", [](C x, C s) { return x != x || x > s ? x : s; }},  // NaN passes
      {"MinimumScalar", [](C x, C s) { return x != x || x < s ? x : s; }},
      {"EqualScalar", [](C x, C s) { return static_cast<C>(x == s); }},
      {"NotEqualScalar", [](C x, C s) { return static_cast<C>(x != s); }},
      {"GreaterScalar", [](C x, C s) { return static_cast<C>(x > s); }},
      {"GreaterEqualScalar", [](C x, C s) { return static_cast<C>(x >= s); }},
      {"LesserScalar", [](C x, C s) { return static_cast<C>(x < s); }},
      {"LesserEqualScalar", [](C x, C s) { return static_cast<C>(x <= s); }},
      {"LogicalAndScalar", [](C x, C s) { return static_cast<C>(x != 0 && s != 0); }},
      {"LogicalOrScalar", [](C x, C s) { return static_cast<C>(x != 0 || s != 0); }},
      {"LogicalXorScalar", [](C x, C s) { return static_cast<C>((x != 0) != (s != 0)); }},
  };
  for (const auto& [name, function] : kFunctions) {
    if (name == op) return function;
  }
  return nullptr;
}

/// The node's operator on every element; `s` has been rounded to the type of dst.
template <typename From, typename To>
Status scalar(const Node& node, Compute<To> s, const TensorView& src, TensorView& dst) {
  const auto function = scalar_function<Compute<To>>(node.op->name);
  if (!function) return internal_error("{}: a scalar operator without a kernel", describe(node));
  return map<From, To>(src, dst, [=](Compute<To> x) { return function(x, s); });
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
        sum = wrapping(sum, static_cast<Compute<T>>(elements<T>(view)[i]), std::plus<>());
      }
      to[i] = to_element<T>(sum);
    }
    return Status();
  });
}

Status reference_scalar(const Node& node, Sources src, Results dst) {
  const double s = std::get<ScalarAttributes>(node.attributes).scalar;
  return with_number(node, src[0].dtype, [&]<typename T>() {
    if constexpr (std::is_integral_v<T>) {
      if (dst[0].dtype == DType::kFloat64) return scalar<T, double>(node, s, src[0], dst[0]);
    }
    return scalar<T, T>(node, scalar_as<T>(s), src[0], dst[0]);
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

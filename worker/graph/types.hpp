// Element types as C++ types. A new type is a row here, and kernels.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "shm/tensor/floats.hpp"
#include "shoal/tensor.hpp"

namespace shoal::worker {

/// The DType of elements of type T.
template <typename T>
inline constexpr DType kDTypeOf = DType::kInvalid;
template <>
inline constexpr DType kDTypeOf<float> = DType::kFloat32;
template <>
inline constexpr DType kDTypeOf<double> = DType::kFloat64;
template <>
inline constexpr DType kDTypeOf<Half> = DType::kFloat16;
template <>
inline constexpr DType kDTypeOf<BFloat16> = DType::kBFloat16;
template <>
inline constexpr DType kDTypeOf<std::uint8_t> = DType::kUInt8;
template <>
inline constexpr DType kDTypeOf<std::int8_t> = DType::kInt8;
template <>
inline constexpr DType kDTypeOf<std::int16_t> = DType::kInt16;
template <>
inline constexpr DType kDTypeOf<std::uint16_t> = DType::kUInt16;
template <>
inline constexpr DType kDTypeOf<std::int32_t> = DType::kInt32;
template <>
inline constexpr DType kDTypeOf<std::uint32_t> = DType::kUInt32;
template <>
inline constexpr DType kDTypeOf<std::int64_t> = DType::kInt64;
template <>
inline constexpr DType kDTypeOf<std::uint64_t> = DType::kUInt64;
template <>
inline constexpr DType kDTypeOf<bool> = DType::kBool;

template <typename... Ts>
struct Types {};
template <typename... Lists>
struct Joined;
template <typename... Ts>
struct Joined<Types<Ts...>> {
  using Type = Types<Ts...>;
};
template <typename... Ts, typename... Us, typename... Rest>
struct Joined<Types<Ts...>, Types<Us...>, Rest...> : Joined<Types<Ts..., Us...>, Rest...> {};

using Floats = Types<float, double, Half, BFloat16>;
using Integers =
    Types<std::uint8_t, std::int8_t, std::int16_t, std::uint16_t, std::int32_t, std::uint32_t, std::int64_t, std::uint64_t>;
using Numbers = Joined<Floats, Integers>::Type;
using AnyTypes = Joined<Numbers, Types<bool>>::Type;

template <typename... Ts>
constexpr std::array<DType, sizeof...(Ts)> dtypes_of(Types<Ts...>) {
  return {kDTypeOf<Ts>...};
}

/// Calls run.operator()<T>() with the type of the list that `dtype` is. Returns false if it is none of them.
template <typename... Ts, typename Run>
bool dispatch(Types<Ts...>, DType dtype, Run&& run) {
  return ((dtype == kDTypeOf<Ts> && (run.template operator()<Ts>(), true)) || ...);
}

/// A set of element types: what a kernel takes.
class TypeSet {
 public:
  template <typename... Ts>
  constexpr TypeSet(Types<Ts...>)
      : bits_((bit(kDTypeOf<Ts>) | ... | 0U)) {}  // NOLINT(google-explicit-constructor): a list is a set
  constexpr bool holds(DType dtype) const { return (bits_ & bit(dtype)) != 0; }
  constexpr bool holds(TypeSet other) const { return (bits_ & other.bits_) == other.bits_; }
  /// "float32", "floats, uint8", "any type".
  std::string to_text() const;

 private:
  static constexpr std::uint32_t bit(DType dtype) { return std::uint32_t{1} << static_cast<unsigned>(dtype); }
  std::uint32_t bits_;
};

}  // namespace shoal::worker

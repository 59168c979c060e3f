// Numbers: flat arrays of any numeric type, converted to the types of a model.
#pragma once

#include <concepts>
#include <cstddef>
#include <ranges>
#include <string_view>
#include <type_traits>
#include <vector>

#include "shoal/tensor.hpp"

namespace shoal {

/// float, double, bool, and every integer that is not a character.
template <typename T>
concept Number = std::same_as<T, float> || std::same_as<T, double> ||
    (std::integral<T> && sizeof(T) <= 8 && !std::same_as<T, char> && !std::same_as<T, wchar_t> && !std::same_as<T, char8_t> &&
     !std::same_as<T, char16_t> && !std::same_as<T, char32_t>);

/// The type of a tensor whose elements are T.
template <Number T>
consteval DType dtype_of() {
  if (std::same_as<T, float>) return DType::kFloat32;
  if (std::same_as<T, double>) return DType::kFloat64;
  if (std::same_as<T, bool>) return DType::kBool;
  constexpr bool is_signed = std::signed_integral<T>;
  switch (sizeof(T)) {
    case 1:
      return is_signed ? DType::kInt8 : DType::kUInt8;
    case 2:
      return is_signed ? DType::kInt16 : DType::kUInt16;
    case 4:
      return is_signed ? DType::kInt32 : DType::kUInt32;
    default:
      return is_signed ? DType::kInt64 : DType::kUInt64;
  }
}

/// Numbers in a row that somebody else owns: an array of a program, or the elements of a tensor.
///   Lifetime  valid while their owner exists
///   Threads   immutable
class Numbers {
 public:
  /// A std::vector, std::array, std::span or array of C.
  template <std::ranges::contiguous_range Array>
  requires std::ranges::sized_range<Array> && Number<std::remove_cv_t<std::ranges::range_value_t<Array>>> Numbers(
      const Array& array)  // NOLINT(google-explicit-constructor): predict(array)
      : Numbers(dtype_of<std::remove_cv_t<std::ranges::range_value_t<Array>>>(), std::ranges::data(array),
                std::ranges::size(array)) {}
  /// The elements of a tensor of any type and shape, row by row.
  explicit Numbers(const TensorView& tensor);

  DType dtype() const { return view_.dtype; }
  std::size_t size() const { return static_cast<std::size_t>(view_.shape[0]); }

  /// Writes these numbers into a tensor of as many elements, as its type has them. A fraction is rounded to the nearest number
  /// of a floating-point type; NaN and infinities stay. Every other change would be a mistake, and is an error: a fraction or NaN
  /// for an integer, a number that is too large, an integer that a floating-point type does not hold exactly, and a bool that is
  /// neither 0 nor 1.
  ///   what    names the numbers in errors
  ///   Errors  kInvalidArgument (another number of elements, or a number that does not fit: names it and its place)
  Status copy_to(TensorView dst, std::string_view what = "the array") const;
  /// The numbers as T, by the same rule.
  template <Number T>
  requires(!std::same_as<T, bool>) Result<std::vector<T>> as()
  const {
    std::vector<T> values(size());
    const TensorView dst{dtype_of<T>(), view_.shape, reinterpret_cast<std::byte*>(values.data())};
    if (Status status = copy_to(dst); !status.ok()) return status;
    return values;
  }

 private:
  Numbers(DType dtype, const void* data, std::size_t size);

  TensorView view_;  // of rank 1
};

}  // namespace shoal

// The fields of a struct of attributes, as a list that the compiler checks.
//
//   enum class PadMode { kConstant, kEdge };
//   template <> inline constexpr std::array kWords<PadMode>{"constant", "edge"};
//
//   struct PadAttributes {
//     PadMode mode = PadMode::kConstant;
//     Dims widths;
//   };
//   template <> inline constexpr auto fields_of<PadAttributes> =
//       std::tuple{field("mode", &PadAttributes::mode, "what stands in the border"), field("widths", &PadAttributes::widths,
//       "...")};
//
// A field may be a bool, a number, an enum that has kWords, a DType, another such struct, or an optional or a vector of these.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "shm/base/format.hpp"
#include "shoal/tensor.hpp"

namespace shoal::worker {

using Dims = std::vector<std::int64_t>;

template <typename Struct, typename T>
struct Field {
  const char* name;
  T Struct::*member;
  const char* meaning;  ///< for the generated page; may be empty
};
template <typename Struct, typename T>
constexpr Field<Struct, T> field(const char* name, T Struct::*member, const char* meaning) {
  return {name, member, meaning};
}

/// All fields of T, in order. Each struct of attributes has its own.
template <typename T>
inline constexpr std::tuple<> fields_of{};
template <typename T>
concept HasFields = std::tuple_size_v<std::remove_const_t<decltype(fields_of<T>)>> >
0;

/// The words of an enum's values, from 0 on.
template <typename T>
inline constexpr std::array<const char*, 0> kWords{};

// An aggregate without bases: the number of its members is found by trying initializers. `Anything` has no definition of its
// conversion, so it is not in an unnamed namespace: clang would warn.
namespace attribute_detail {
template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};

struct Anything {
  template <typename T>
  requires(!IsOptional<T>::value)  // an optional also converts from its value type: that would be ambiguous
  operator T() const;              // NOLINT(google-explicit-constructor): only named in unevaluated code
};

template <typename T, typename... Args>
constexpr std::size_t count_members(Args... args) {
  if constexpr (requires { T{args..., Anything{}}; }) {
    return count_members<T>(args..., Anything{});
  } else {
    return sizeof...(Args);
  }
}
}  // namespace attribute_detail

/// Calls run(Field) for each field of T.
template <HasFields T, typename Run>
void for_each_field(Run run) {
  static_assert(std::tuple_size_v<std::remove_const_t<decltype(fields_of<T>)>> == attribute_detail::count_members<T>(),
                "fields_of lacks a field of this struct");
  std::apply([&](const auto&... fields) { (run(fields), ...); }, fields_of<T>);
}

template <typename T>
void append_value(const T& value, std::string& to);

template <HasFields T>
void append_fields(const T& attributes, std::string& to) {
  for_each_field<T>([&](const auto& field) { append_value(attributes.*field.member, to); });
}

template <typename T>
void append_value(const T& value, std::string& to) {
  if constexpr (attribute_detail::IsVector<T>::value) {
    append_value(value.size(), to);
    for (const auto& element : value) append_value(element, to);
  } else if constexpr (attribute_detail::IsOptional<T>::value) {
    append_value(value.has_value(), to);
    if (value) append_value(*value, to);
  } else if constexpr (HasFields<T>) {
    append_fields(value, to);
  } else {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>, "no type of a field");
    to.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
}

template <typename T>
std::string text_of(const T& value);

template <HasFields T>
std::string text_of_fields(const T& attributes) {
  std::string text;
  for_each_field<T>([&](const auto& field) {
    text += format("{}{}={}", text.empty() ? "" : ", ", field.name, text_of(attributes.*field.member));
  });
  return text;
}

template <typename T>
std::string text_of(const T& value) {
  if constexpr (attribute_detail::IsVector<T>::value) {
    std::string text = "(";
    for (const auto& element : value) text.append(text.size() == 1 ? "" : ", ").append(text_of(element));
    return text + ")";
  } else if constexpr (attribute_detail::IsOptional<T>::value) {
    return value ? text_of(*value) : "none";
  } else if constexpr (HasFields<T>) {
    return std::string("{").append(text_of_fields(value)) + "}";
  } else if constexpr (std::is_same_v<T, DType>) {
    return std::string(dtype_name(value));
  } else if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_enum_v<T>) {
    static_assert(!kWords<T>.empty(), "the enum needs kWords");
    const auto at = static_cast<std::size_t>(value);
    return at < kWords<T>.size() ? kWords<T>[at] : "?";
  } else {
    return format("{}", value);
  }
}

/// The type of a field for people: "integers", "max | avg".
template <typename T>
std::string type_text() {
  if constexpr (attribute_detail::IsVector<T>::value) {
    return std::is_same_v<T, Dims> ? "integers" : format("list of {}", type_text<typename T::value_type>());
  } else if constexpr (attribute_detail::IsOptional<T>::value) {
    return format("{}, or none", type_text<typename T::value_type>());
  } else if constexpr (HasFields<T>) {
    std::string text;
    for_each_field<T>([&](const auto& field) { text += format("{}{}", text.empty() ? "" : ", ", field.name); });
    return "(" + text + ")";
  } else if constexpr (std::is_same_v<T, DType>) {
    return "type";
  } else if constexpr (std::is_same_v<T, bool>) {
    return "bool";
  } else if constexpr (std::is_enum_v<T>) {
    std::string text;
    for (const char* const word : kWords<T>) text += format("{}{}", text.empty() ? "" : " \\| ", word);
    return text;
  } else {
    return std::is_integral_v<T> ? "integer" : "number";
  }
}

}  // namespace shoal::worker

// A small "{}" formatter for error messages, so that libshoal carries no formatting library.
#pragma once

#include <concepts>
#include <initializer_list>
#include <ostream>
#include <string>
#include <string_view>
#include <type_traits>

namespace shoal {

namespace internal {

/// One argument of format(), whatever its type. It points to the caller's value.
class FormatArgument {
 public:
  template <typename T>
  explicit FormatArgument(const T& value) {
    if constexpr (std::convertible_to<const T&, std::string_view>) {
      text_ = value;
    } else if constexpr (std::is_same_v<T, bool> || (std::integral<T> && sizeof(T) > 1)) {
      number_ = static_cast<unsigned long long>(value);
      kind_ = std::signed_integral<T> ? Kind::kSigned : Kind::kUnsigned;
    } else {
      value_ = &value;
      write_ = [](std::ostream& out, const void* any) { out << *static_cast<const T*>(any); };
      kind_ = Kind::kOther;
    }
  }
  void append_to(std::string& out) const;

 private:
  enum class Kind : unsigned char { kText, kSigned, kUnsigned, kOther };
  Kind kind_ = Kind::kText;
  std::string_view text_;
  unsigned long long number_ = 0;
  const void* value_ = nullptr;
  void (*write_)(std::ostream& out, const void* value) = nullptr;
};

std::string format_all(std::string_view pattern, std::initializer_list<FormatArgument> arguments);

}  // namespace internal

/// `pattern` with each "{}" replaced by the next argument, written as operator<< writes it in the classic locale, whatever the
/// application's locale is. Throws std::bad_alloc; a text is never cut.
template <typename... Args>
std::string format(std::string_view pattern, const Args&... args) {
  return internal::format_all(pattern, {internal::FormatArgument(args)...});
}

}  // namespace shoal

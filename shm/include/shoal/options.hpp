// StructSize, Text and List: what option structs are made of, so that they can grow.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace shoal {

/// The first member of a struct that a later release may make longer, at its end: its size in the header that the program was
/// compiled with. The library reads no further, and takes defaults for the rest. Nobody sets it: a copy has the size that is
/// known to the code that copies.
template <typename Struct>
class StructSize {
 public:
  StructSize() : bytes_(sizeof(Struct)) {}
  StructSize(const StructSize&) : StructSize() {}
  StructSize& operator=(const StructSize&) { return *this; }

  std::size_t bytes() const { return bytes_; }
  friend bool operator==(StructSize, StructSize) { return true; }

 private:
  std::size_t bytes_;
};

/// Elements that an option struct owns. Unlike std::vector, it is the same pointer and number with every standard library, and
/// nothing in it refers to itself.
///   Lifetime  a copy has elements of its own
///   Threads   a value: thread-compatible
template <typename T>
class List {
 public:
  List() = default;
  List(std::initializer_list<T> items) : List(std::span(items.begin(), items.size())) {}
  /// Of anything with elements that become a T: a vector, a span, an array.
  template <std::ranges::forward_range Range>
  requires(!std::same_as<std::remove_cvref_t<Range>, List> && std::convertible_to<std::ranges::range_reference_t<Range>, T>)
      List(Range&& range)  // NOLINT(google-explicit-constructor, bugprone-forwarding-reference-overload): as a span is made
      : size_(static_cast<std::size_t>(std::ranges::distance(range))) {
    if (size_ == 0) return;
    std::unique_ptr<T[]> items(new T[size_]);
    std::ranges::copy(range, items.get());
    items_ = items.release();
  }
  List(const List& other) : List(std::span<const T>(other)) {}
  List(List&& other) noexcept : items_(std::exchange(other.items_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  List& operator=(List other) noexcept {
    std::swap(items_, other.items_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~List() { delete[] items_; }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const T* data() const { return items_; }
  const T* begin() const { return items_; }
  const T* end() const { return items_ + size_; }
  T* begin() { return items_; }
  T* end() { return items_ + size_; }
  const T& operator[](std::size_t i) const { return items_[i]; }  ///< i < size()
  T& operator[](std::size_t i) { return items_[i]; }
  friend bool operator==(const List& a, const List& b) { return std::ranges::equal(a, b); }

 private:
  T* items_ = nullptr;
  std::size_t size_ = 0;
};

/// A text that an option struct owns, as List.
class Text {
 public:
  Text() = default;
  Text(const char* text) : Text(std::string(text)) {}       // NOLINT(google-explicit-constructor): it is a text
  Text(std::string_view text) : Text(std::string(text)) {}  // NOLINT(google-explicit-constructor)
  Text(const std::string& text)                             // NOLINT(google-explicit-constructor)
      : characters_(std::span(text.c_str(), text.size() + 1)) {}

  operator std::string_view() const { return view(); }  // NOLINT(google-explicit-constructor)
  std::string_view view() const { return {c_str(), characters_.empty() ? 0 : characters_.size() - 1}; }
  std::string string() const { return std::string(view()); }
  const char* c_str() const { return characters_.empty() ? "" : characters_.data(); }
  bool empty() const { return view().empty(); }
  template <std::convertible_to<std::string_view> Other>
  friend bool operator==(const Text& a, const Other& b) {
    return a.view() == std::string_view(b);
  }

 private:
  List<char> characters_;  ///< with the final 0
};

/// A struct that grows, or none, that another struct owns. It is copied and destroyed by the code that made it, which knows all
/// of its members.
///   Lifetime  a copy has a struct of its own
///   Threads   a value: thread-compatible
template <typename Struct>
class Optional {
 public:
  Optional() = default;
  Optional(const Struct& value)  // NOLINT(google-explicit-constructor): as std::optional
      : value_(new Struct(value)),
        copy_([](const Struct& other) { return new Struct(other); }),
        destroy_([](Struct* made) { delete made; }) {}
  Optional(const Optional& other)
      : value_(other.value_ ? other.copy_(*other.value_) : nullptr), copy_(other.copy_), destroy_(other.destroy_) {}
  Optional(Optional&& other) noexcept
      : value_(std::exchange(other.value_, nullptr)), copy_(other.copy_), destroy_(other.destroy_) {}
  Optional& operator=(Optional other) noexcept {
    std::swap(value_, other.value_);
    std::swap(copy_, other.copy_);
    std::swap(destroy_, other.destroy_);
    return *this;
  }
  ~Optional() { reset(); }

  explicit operator bool() const { return value_ != nullptr; }
  const Struct* get() const { return value_; }  ///< null if there is none
  const Struct& operator*() const { return *value_; }
  const Struct* operator->() const { return value_; }
  void reset() {
    if (value_) destroy_(std::exchange(value_, nullptr));
  }

 private:
  Struct* value_ = nullptr;
  Struct* (*copy_)(const Struct&) = nullptr;
  void (*destroy_)(Struct*) = nullptr;
};

}  // namespace shoal

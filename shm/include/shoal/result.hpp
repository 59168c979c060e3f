// Result<T>: a value, or the Status that explains why there is none.
#pragma once

#include <optional>
#include <stdexcept>
#include <utility>

#include "shoal/status.hpp"

namespace shoal {

/// The exception that Result::value() throws if there is no value. what() is Status::to_string().
class Error : public std::runtime_error {
 public:
  explicit Error(Status status) : std::runtime_error(status.to_string()), status_(std::move(status)) {}
  const Status& status() const { return status_; }

 private:
  Status status_;
};

/// A T, or a Status that is not OK.
///   Errors    value() throws shoal::Error when there is no value; do not use operator* and -> then
///   Lifetime  a temporary Result gives its value and status away by value: `const auto& x = f().value();` is safe
///   Threads  a value: thread-compatible
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor): `return value;`
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor): `return status;`
    if (status_.ok()) status_ = Status(StatusCode::kInternal, "a Result was made from an OK Status, without a value");
  }

  bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Status& status() const& { return status_; }  ///< OK when there is a value
  Status status() && { return std::move(status_); }

  T& value() & { return checked(); }
  const T& value() const& { return const_cast<Result*>(this)->checked(); }
  T value() && { return std::move(checked()); }

  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T operator*() && { return *std::move(value_); }
  T* operator->() & { return &*value_; }
  const T* operator->() const& { return &*value_; }
  T* operator->() && = delete;  ///< of a temporary: use value(), which can be kept

 private:
  T& checked() {
    if (!value_) throw Error(status_);
    return *value_;
  }

  std::optional<T> value_;
  Status status_;
};

}  // namespace shoal

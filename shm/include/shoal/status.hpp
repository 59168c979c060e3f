// Status: the error of a call.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace shoal {

/// The kind of an error, which tells the caller what to do. The numbers travel on the wire and are never changed.
enum class StatusCode : std::uint16_t {
  kOk = 0,
  kInvalidArgument = 1,     ///< the request or a file's content is wrong; sending it again does not help
  kNotFound = 2,            ///< no such file, model, input or output
  kDeadlineExceeded = 3,    ///< the timeout is over
  kOverloaded = 4,          ///< the queue is full; try again later or elsewhere
  kPoison = 5,              ///< this request crashed its worker twice; do not send it again
  kCancelled = 6,           ///< the caller canceled it
  kUnavailable = 7,         ///< no daemon, it does not answer, or it is shutting down; try again later
  kFailedPrecondition = 8,  ///< the system is in the wrong state for this call
  kUnimplemented = 9,       ///< an operator, attribute or format that Shoal does not have
  kDataLoss = 10,           ///< a file is damaged
  kAborted = 11,            ///< every attempt ended with the death of its worker
  kPermissionDenied = 12,   ///< the operating system or the daemon refused
  kInternal = 13,           ///< a bug in Shoal or an accelerator
};

/// The code's name as written in the documentation, for example "INVALID_ARGUMENT"; "UNKNOWN" for other numbers.
std::string_view status_code_name(StatusCode code);

/// Success, or a code and a message that names the operation, its subject and the cause.
///   Threads  a value: thread-compatible
class [[nodiscard]] Status {
 public:
  Status() = default;  ///< success
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const& { return message_; }
  std::string message() && { return std::move(message_); }

  /// Returns the same code, with `context` and ": " before the message. Success stays unchanged.
  Status with_context(std::string_view context) const;

  /// "INVALID_ARGUMENT: message", or "OK".
  std::string to_string() const;

  friend bool operator==(const Status&, const Status&) = default;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

}  // namespace shoal

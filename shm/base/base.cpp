#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

#include "shm/base/check.hpp"
#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/shortened.hpp"
#include "shm/base/unique_fd.hpp"

namespace shoal {

std::string_view status_code_name(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "OK";
    case StatusCode::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case StatusCode::kNotFound:
      return "NOT_FOUND";
    case StatusCode::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case StatusCode::kOverloaded:
      return "OVERLOADED";
    case StatusCode::kPoison:
      return "POISON";
    case StatusCode::kCancelled:
      return "CANCELLED";
    case StatusCode::kUnavailable:
      return "UNAVAILABLE";
    case StatusCode::kFailedPrecondition:
      return "FAILED_PRECONDITION";
    case StatusCode::kUnimplemented:
      return "UNIMPLEMENTED";
    case StatusCode::kDataLoss:
      return "DATA_LOSS";
    case StatusCode::kAborted:
      return "ABORTED";
    case StatusCode::kPermissionDenied:
      return "PERMISSION_DENIED";
    case StatusCode::kInternal:
      return "INTERNAL";
  }
  return "UNKNOWN";
}

Status Status::with_context(std::string_view context) const {
  return ok() ? *this : Status(code_, format("{}: {}", context, message_));
}

std::string Status::to_string() const { return ok() ? "OK" : format("{}: {}", status_code_name(code_), message_); }

Status status_from_errno(std::string_view what, std::string_view thing, int error_number) {
  StatusCode code = StatusCode::kInternal;
  if (error_number == ENOENT) code = StatusCode::kNotFound;
  if (error_number == ENOTDIR || error_number == EISDIR || error_number == ENAMETOOLONG || error_number == ELOOP)
    code = StatusCode::kInvalidArgument;  // the given path is wrong
  if (error_number == EACCES || error_number == EPERM) code = StatusCode::kPermissionDenied;
  if (error_number == ENOMEM || error_number == ENOSPC) code = StatusCode::kFailedPrecondition;
  if (error_number == EMFILE || error_number == ENFILE) code = StatusCode::kUnavailable;
  char text[128];
  return Status(code, format("{} {}: {}", what, thing, ::strerror_r(error_number, text, sizeof text)));
}

Status out_of_memory(std::string_view what, std::string_view model) noexcept try {
  const Status status = failed_precondition("out of memory: {} needs more than this machine has left", what);
  return model.empty() ? status : status.with_context(format("model '{}'", model));
} catch (const std::bad_alloc&) {
  return Status(StatusCode::kFailedPrecondition, "out of memory");  // short enough to be stored within the string object
}

std::uint64_t monotonic_now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

void close_all_but(std::initializer_list<int> kept) {
  constexpr unsigned kEnd = std::numeric_limits<unsigned>::max();
  for (unsigned next = 3, first_kept = 0; first_kept != kEnd; next = first_kept + 1) {
    first_kept = kEnd;
    for (const int fd : kept) {
      if (fd >= 0 && static_cast<unsigned>(fd) >= next) first_kept = std::min(first_kept, static_cast<unsigned>(fd));
    }
    if (first_kept > next) ::syscall(SYS_close_range, next, first_kept - 1, 0);
  }
}

std::string shortened(std::string_view text, std::size_t most_bytes) {
  constexpr std::string_view kGap = " ... ";
  if (text.size() <= most_bytes) return std::string(text);
  const auto begins = [&](std::size_t at) { return (static_cast<unsigned char>(text[at]) & 0xC0) != 0x80; };  // a character
  std::size_t first = most_bytes > kGap.size() ? (most_bytes - kGap.size()) / 2 : 0, last = text.size() - first;
  while (first > 0 && !begins(first)) --first;
  while (last < text.size() && !begins(last)) ++last;
  return std::string(text.substr(0, first)).append(kGap).append(text.substr(last));
}

namespace internal {
void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, condition);
  std::abort();
}
}  // namespace internal

}  // namespace shoal

// How long fetching may take, how much it may bring, and who wants to hear of its progress.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "shoal/result.hpp"

namespace shoal::fetch {

struct Limits {
  std::uint64_t total_ns = 0;       ///< for everything
  std::uint64_t stall_ns = 0;       ///< without a byte; also for connecting
  std::uint64_t largest_bytes = 0;  ///< of all files together
};

/// $SHOAL_FETCH_TIMEOUT_S (3600), $SHOAL_FETCH_STALL_S (30) and $SHOAL_FETCH_LIMIT_MB (65536, in MiB).
///   Errors  kInvalidArgument: not a number in its range; names the variable
Result<Limits> limits_from_environment();

/// One fetch: what is left of its limits, and its listener.
///   Threads  thread-bound
class Course {
 public:
  struct Progress {
    std::string file;
    std::uint64_t done_bytes = 0, total_bytes = 0;  ///< total 0: not known
  };
  /// `wants_more` is asked often; false: nobody wants the files any more.
  Course(Limits limits, std::function<bool()> wants_more, std::function<void(const Progress&)> listener);

  const Limits& limits() const { return limits_; }
  /// Errors: kDeadlineExceeded, kCancelled. They say nothing of what was attempted.
  Status check() const;
  void tell(const Progress& progress) const { listener_(progress); }
  /// Sleeps, unless check() fails meanwhile.
  Status sleep(std::uint64_t for_ns) const;

  /// Counts the bytes of a file that belongs to the model. Errors: kFailedPrecondition: there are too many
  Status take_bytes(std::uint64_t bytes);
  std::uint64_t bytes_left() const { return limits_.largest_bytes - taken_bytes_; }
  std::uint64_t taken_bytes() const { return taken_bytes_; }
  Status too_large(std::uint64_t bytes) const;

 private:
  const Limits limits_;
  const std::function<bool()> wants_more_;
  const std::function<void(const Progress&)> listener_;
  const std::uint64_t deadline_ns_;
  std::uint64_t taken_bytes_ = 0;
};

}  // namespace shoal::fetch

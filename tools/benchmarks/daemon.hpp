// A daemon of a benchmark's own: shoald on a temporary directory.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "shoal/pool.hpp"
#include "shoal/result.hpp"

namespace shoal::bench {

/// Stopped, and its directory removed, when destroyed. Move-only by way of pointers: thread-bound.
class Daemon {
 public:
  /// Starts the shoald beside this binary with these --model arguments and waits until all models answer.
  ///   Errors  kUnavailable: shoald ended (its last line), a model failed (its reason), or 60 s were over
  static Result<Daemon> start(const std::vector<std::string>& models);
  Daemon(Daemon&& other) noexcept;
  Daemon& operator=(Daemon&&) = delete;
  ~Daemon();

  const std::string& directory() const { return directory_; }
  Result<Pool> connect() const { return Pool::connect({.directory = directory_}); }

 private:
  Daemon(std::string directory, pid_t pid) : directory_(std::move(directory)), pid_(pid) {}
  Status wait_until_ready();
  std::string directory_;
  pid_t pid_ = -1;
};

/// What the daemon says of itself: bytes read by the supervisor so far, and the pids of one model's workers.
struct DaemonStats {
  std::uint64_t bytes_read = 0;
  bool all_ready = false;
  std::string failure;             ///< why a model is not served, when one is not
  std::vector<pid_t> worker_pids;  ///< of the first model, ready ones
};
Result<DaemonStats> read_stats(Pool& pool);

}  // namespace shoal::bench

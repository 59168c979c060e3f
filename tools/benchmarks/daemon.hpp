// A benchmark's own daemon: shoald in a temporary directory.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "shoal/pool.hpp"
#include "shoal/result.hpp"

namespace shoal::bench {

/// Stops the daemon and removes its directory when destroyed. Move-only.
///   Threads  thread-bound
class Daemon {
 public:
  /// Starts the shoald beside this binary with these --model arguments and waits until all models answer.
  ///   Errors  kUnavailable (shoald ended, with its last line; a model failed, with the reason; or not ready after 60 s)
  static Result<Daemon> start(const std::vector<std::string>& models);
  Daemon(Daemon&& other) noexcept;
  Daemon& operator=(Daemon&&) = delete;
  ~Daemon();

  const std::string& directory() const { return directory_; }
  pid_t pid() const { return pid_; }
  Result<Pool> connect() const { return Pool::connect({.directory = directory_}); }

 private:
  Daemon(std::string directory, pid_t pid) : directory_(std::move(directory)), pid_(pid) {}
  Status wait_until_ready();
  std::string directory_;
  pid_t pid_ = -1;
};

/// A part of the daemon's stats: bytes that the supervisor has read, and the pids of one model's workers.
struct DaemonStats {
  std::uint64_t bytes_read = 0;
  bool all_ready = false;
  std::string failure;             ///< why a model has failed; empty if none has
  std::vector<pid_t> worker_pids;  ///< ready workers of the first model
};
Result<DaemonStats> read_stats(Pool& pool);

}  // namespace shoal::bench

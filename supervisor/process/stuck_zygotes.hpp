// Zygotes that were killed and do not die, because the kernel waits for a file system. Nobody waits for them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "shm/log/log.hpp"
#include "supervisor/process/event_loop.hpp"
#include "supervisor/process/spawn.hpp"

namespace shoal::supervisor {

/// Those of all models. Each is reaped when it dies after all.
///   Threads  thread-bound
class StuckZygotes {
 public:
  /// Each costs a process and its memory. With so many of them, a model waits until its own zygote dies.
  static constexpr std::size_t kMost = 32;

  /// `loop` and `log` outlive this.
  StuckZygotes(EventLoop& loop, Logger& log) : loop_(loop), log_(log) {}
  ~StuckZygotes();
  StuckZygotes(const StuckZygotes&) = delete;
  StuckZygotes& operator=(const StuckZygotes&) = delete;

  bool has_room() const { return zygotes_.size() < kMost; }
  std::size_t count() const { return zygotes_.size(); }
  bool watches(pid_t pid) const { return std::ranges::count(zygotes_, pid, &Child::pid) > 0; }
  /// `zygote` was killed, and its pidfd is not watched.
  void take(const std::string& model, Child zygote);

 private:
  void died(int pidfd);

  EventLoop& loop_;
  Logger& log_;
  std::vector<Child> zygotes_;
};

}  // namespace shoal::supervisor

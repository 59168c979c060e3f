// Working: shows what a command is busy with.
#pragma once

#include <sys/types.h>

#include <string>

#include "shm/base/unique_fd.hpp"

namespace shoal::tool {

/// While it exists, a terminal shows "what, 3 s" from the second second on. A child process shows it, so that this thread can
/// work without a pause, and needs no other thread: Engine::load() forks only in a process without threads. Shows nothing if
/// stderr is no terminal, or if there can be no child.
///   Threads  thread-bound
class Working {
 public:
  explicit Working(const std::string& what);
  Working(const Working&) = delete;
  Working& operator=(const Working&) = delete;
  /// Removes the line.
  ~Working();

  /// Shows "what: state, 3 s" from now on.
  void say(const std::string& state) const;

 private:
  UniqueFd to_child_;
  pid_t child_ = -1;
};

}  // namespace shoal::tool

// Children of a test: for what a process can do or suffer only once.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace shoal::test {

/// A child process that runs this and ends with what it returns, or with the thread that started it.
inline pid_t start_child(const std::function<int()>& run) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that was killed leaves nobody behind
    ::_exit(run());
  }
  return pid;
}

/// Waits for its end: its exit code, or 128 and the signal.
inline int exit_code_of(pid_t pid) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// What a child makes of it.
inline int exit_code_of(const std::function<int()>& run) { return exit_code_of(start_child(run)); }

}  // namespace shoal::test

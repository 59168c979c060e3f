// Child processes of a test, for what a process can do only once.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace shoal::test {

/// Forks a child process that runs `run` and exits with its result. The child is killed when the thread that started it ends.
inline pid_t start_child(const std::function<int()>& run) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a killed test leaves no children behind
    ::_exit(run());
  }
  return pid;
}

/// Waits for the process to end. Returns its exit code, or 128 + signal.
inline int exit_code_of(pid_t pid) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Runs `run` in a child process and returns its exit code, as above.
inline int exit_code_of(const std::function<int()>& run) { return exit_code_of(start_child(run)); }

}  // namespace shoal::test

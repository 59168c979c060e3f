// Runs calls in the sandboxes, each in a process of its own.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "worker/serve/sandbox.hpp"

namespace shoal::worker {

enum class Who { kLoadingZygote, kZygote, kWorker };

/// Forks, enters the sandbox of that one, and exits with what `call` returns. The wait status.
///   writable  the directory that a loading zygote may write to
///   sockets   the directory in which a loading zygote may make sockets
inline int status_of(const std::function<int()>& call, Who who = Who::kWorker, const std::string& writable = {},
                     const std::string& sockets = {}) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    const auto entered = who == Who::kLoadingZygote ? enter_loading_sandbox(writable, sockets) : enter_sandbox();
    if (!entered.ok() || !entered->empty() || (who == Who::kWorker && !enter_worker_sandbox().ok())) ::_exit(99);
    ::_exit(call());
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return status;
}

class SandboxTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int status = status_of([] { return 0; });
    if (WIFEXITED(status) && WEXITSTATUS(status) == 99) GTEST_SKIP() << "this build, or this kernel, has no sandbox";
    ASSERT_EQ(status, 0);
  }
};

}  // namespace shoal::worker

// What the walk relies on: the addresses of a process that has only just executed its program are its own.
#include "tests/crash/step/tracee.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "tests/support/child_process.hpp"
#include "tests/support/pool_fixture.hpp"

namespace shoal::test {
namespace {

constexpr int kRounds = 200;  // about one in ten meets the process in the middle of execve()

TEST(Symbols, AreThoseOfAProgramWhoseNameHasOnlyJustAppeared) {
  const std::string program = std::filesystem::canonical(binary_directory() / "shoal-worker");
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    const pid_t pid = start_child([&] {  // a zygote that waits for its first command
      int ends[2];
      if (::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0) return 126;
      ::setenv("OMP_WAIT_POLICY", "active", 1);  // it does not execute itself once more
      ::execl(program.c_str(), program.c_str(), "--zygote", std::to_string(ends[0]).c_str(), nullptr);
      return 127;
    });
    const auto has_name = [&] {
      std::error_code error;
      return std::filesystem::read_symlink("/proc/" + std::to_string(pid) + "/exe", error) == program;
    };
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!has_name()) ASSERT_LT(std::chrono::steady_clock::now(), end);  // without a pause, to be as early as possible
    {
      Tracee tracee(pid);
      const Symbols symbols(tracee);
      const std::uint64_t address = symbols.address("shoal::worker::worker_main");
      EXPECT_TRUE(symbols.is_own(address)) << "round " << round;
      tracee.kill_process(pid);
    }
    ::waitpid(pid, nullptr, 0);
  }
}

}  // namespace
}  // namespace shoal::test

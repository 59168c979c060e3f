#include "worker/serve/crash_handler.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <new>
#include <thread>

namespace shoal::worker {
namespace {

constexpr std::size_t kLanes = 2;

/// Runs `crash` on lane 1 of a forked child with two lanes; the page is shared with this process.
class CrashHandler : public ::testing::Test {
 protected:
  CrashHandler() {
    void* memory = ::mmap(nullptr, wire::status_page_bytes(kLanes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    lines_ = new (memory) wire::LaneLine[kLanes]{};
  }
  ~CrashHandler() override { ::munmap(lines_, wire::status_page_bytes(kLanes)); }

  int run(const std::function<void()>& crash, bool on_lane = true) {
    const pid_t child = ::fork();
    if (child == 0) {
      install_crash_handler(lines_);
      std::thread([&] {
        Progress progress;
        progress.step_name = "Convolution 'conv1'";
        lines_[1].running_request = 42;
        if (on_lane) {
          const CrashEvidence evidence(lines_[1], progress, lines_[1].running_request);
          crash();
        } else {
          crash();
        }
      }).join();
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return status;
  }

  wire::LaneLine* lines_;
};

[[gnu::noinline]] int dig(volatile char* above, int depth) {
  volatile char room[1 << 14];
  room[0] = above ? static_cast<char>(above[0] + 1) : 0;
  return depth == 0 ? 0 : dig(room, depth - 1) + room[0];
}

TEST_F(CrashHandler, AFaultOnALaneLeavesItsEvidenceInThatLanesLine) {
  void* forbidden = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const int status = run([&] { *static_cast<volatile int*>(forbidden) = 1; });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
  const wire::CrashRecord& crash = lines_[1].crash;
  EXPECT_EQ(crash.valid, 1u);
  EXPECT_EQ(crash.request_id, 42u);
  EXPECT_EQ(crash.address, reinterpret_cast<std::uint64_t>(forbidden));
  EXPECT_EQ(crash.signal, static_cast<std::uint32_t>(SIGSEGV));
  EXPECT_EQ(crash.code, SEGV_ACCERR);
  EXPECT_EQ(crash.on_lane, 1u);
  EXPECT_STREQ(crash.operator_name, "Convolution 'conv1'");
  EXPECT_EQ(lines_[0].crash.valid, 0u);
  ::munmap(forbidden, 4096);
}

TEST_F(CrashHandler, AbortCountsAsTheLanesOwn) {
  const int status = run([] { std::abort(); });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  EXPECT_EQ(lines_[1].crash.valid, 1u);
  EXPECT_EQ(lines_[1].crash.sender_pid, 0);
}

TEST_F(CrashHandler, ASignalOfAnotherProcessNamesItsSender) {
  const pid_t parent = ::getpid();
  const int status = run([&] {
    const pid_t victim = ::getpid();
    if (const pid_t killer = ::fork(); killer == 0) {
      ::kill(victim, SIGFPE);
      ::_exit(0);
    }
    while (true) ::pause();
  });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGFPE);
  // Such a signal goes to any thread, so the record may be in either line.
  const wire::CrashRecord& crash = lines_[1].crash.valid == 1 ? lines_[1].crash : lines_[0].crash;
  EXPECT_EQ(crash.valid, 1u);
  EXPECT_GT(crash.sender_pid, 0);
  EXPECT_NE(crash.sender_pid, parent);
}

TEST_F(CrashHandler, AStackOverflowLeavesEvidence) {
  const int status = run([] { ::_exit(dig(nullptr, 1 << 20)); });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
  EXPECT_EQ(lines_[1].crash.valid, 1u);
}

TEST_F(CrashHandler, AThreadThatIsNoLaneWritesToTheFirstLine) {
  run([] { std::abort(); }, /*on_lane=*/false);
  EXPECT_EQ(lines_[0].crash.valid, 1u);
  EXPECT_EQ(lines_[0].crash.on_lane, 0u);
  EXPECT_EQ(lines_[0].crash.request_id, 0u);
}

}  // namespace
}  // namespace shoal::worker

#include "worker/serve/crash_handler.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <new>
#include <sstream>
#include <stdexcept>
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

// A sender of the same user may name anybody, the victim itself included. One in another pid namespace has the number 0 here.
TEST_F(CrashHandler, ASenderCannotPassASignalOffAsTheVictimsOwn) {
  for (const bool names_victim : {true, false}) {
    const int status = run([&] {
      const pid_t victim = ::getpid();
      if (const pid_t killer = ::fork(); killer == 0) {
        siginfo_t info{};
        info.si_code = SI_QUEUE;
        info.si_pid = names_victim ? victim : 0;
        ::syscall(SYS_rt_sigqueueinfo, victim, SIGABRT, &info);
        ::_exit(0);
      }
      while (true) ::pause();
    });
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    wire::LaneLine& line = lines_[1].crash.valid == 1 ? lines_[1] : lines_[0];
    EXPECT_EQ(line.crash.valid, 1u);
    EXPECT_EQ(line.crash.sender_pid, wire::kUnknownSender);
    line.crash.valid = 0;
  }
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

[[gnu::noinline]] void fault_here() {
  volatile int* volatile nowhere = reinterpret_cast<volatile int*>(8);  // where the compiler cannot see it
  *nowhere = 1;
}
[[gnu::noinline]] void call_it() {
  fault_here();
  std::atomic_signal_fence(std::memory_order_seq_cst);  // so that it is a call, and no jump
}

std::uintptr_t offset_of(void (*function)()) {
  Dl_info info{};
  EXPECT_NE(::dladdr(reinterpret_cast<void*>(function), &info), 0);
  return reinterpret_cast<std::uintptr_t>(function) - reinterpret_cast<std::uintptr_t>(info.dli_fbase);
}

TEST_F(CrashHandler, TheStackNamesModulesAndOffsetsInnermostFirst) {
  run(call_it);
  std::istringstream stack(lines_[1].crash.stack);
  const std::string module = std::filesystem::read_symlink("/proc/self/exe").filename().string().substr(0, 47) + "+0x";
  for (void (*const function)() : {fault_here, call_it}) {
    std::string line;
    ASSERT_TRUE(std::getline(stack, line)) << lines_[1].crash.stack;
    ASSERT_EQ(line.substr(0, module.size()), module) << lines_[1].crash.stack;
    const std::uintptr_t offset = std::stoull(line.substr(module.size()), nullptr, 16);
    EXPECT_GE(offset, offset_of(function));
    EXPECT_LT(offset, offset_of(function) + 400);
  }
}

TEST_F(CrashHandler, AnExceptionThatNobodyCatchesIsNamed) {
  const int status = run([] { std::thread([] { throw std::runtime_error("lost"); }).join(); });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  const wire::CrashRecord& crash = lines_[0].crash;
  EXPECT_EQ(crash.on_lane, 0u);
  EXPECT_EQ(crash.cause, static_cast<std::uint32_t>(wire::CrashCause::kException));
  EXPECT_EQ(std::string(crash.stack).substr(0, 33), "uncaught std::runtime_error: lost") << crash.stack;
}

[[gnu::noinline]] void fail_to_allocate() { throw std::bad_alloc(); }

TEST_F(CrashHandler, OneOfAnAllocationIsOutOfMemory) {
  run([]() noexcept { fail_to_allocate(); });
  EXPECT_EQ(lines_[1].crash.valid, 1u);
  EXPECT_EQ(lines_[1].crash.cause, static_cast<std::uint32_t>(wire::CrashCause::kOutOfMemory));
}

TEST_F(CrashHandler, AFaultIsNotOutOfMemoryUnlessThereIsNone) {
  run(fault_here);
  EXPECT_EQ(lines_[1].crash.cause, static_cast<std::uint32_t>(wire::CrashCause::kSignal));
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer's own handler needs memory first";
#endif
  lines_[1].crash.cause = 99;
  run([] {
    const rlimit nothing{1, 1};
    ::setrlimit(RLIMIT_DATA, &nothing);
    fault_here();  // what a malloc() that nobody checked leads to
  });
  EXPECT_EQ(lines_[1].crash.cause, static_cast<std::uint32_t>(wire::CrashCause::kOutOfMemory));
}

TEST_F(CrashHandler, ALaneCanSayThatItsMemoryIsSpent) {
  const int status = run([] { abort_out_of_memory("where no answer can say it"); });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  EXPECT_EQ(lines_[1].crash.cause, static_cast<std::uint32_t>(wire::CrashCause::kOutOfMemory));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_F(CrashHandler, AThreadWithoutMemoryForItsStackMayAnswerSo) {
  const auto attempt = [&] {
    const rlimit nothing{1, 1};
    ::setrlimit(RLIMIT_DATA, &nothing);
    try {
      const Progress progress;
      const CrashEvidence evidence(lines_[1], progress, lines_[1].running_request);
    } catch (const std::bad_alloc&) {
      ::_exit(7);
    }
  };
  const int status = run(attempt, /*on_lane=*/false);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
}

// What called this, as a loop that runs on does it; far above lie the thread's own variables.
[[gnu::noinline]] void spoil_stack() {
  volatile char here = 0;
  volatile char* volatile from = &here;  // the compiler does not know how much lies there
  volatile char* const end = from + 200;
  for (volatile char* at = from; at < end; ++at) *at = 'A';
  fault_here();
}

TEST_F(CrashHandler, AStackThatIsSpoiledCostsItsLinesAndNothingElse) {
  const int status = run(spoil_stack);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(lines_[1].crash.valid, 1u);
  EXPECT_EQ(lines_[1].crash.request_id, 42u);
}
#endif

}  // namespace
}  // namespace shoal::worker

#include "worker/serve/sandbox.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

namespace shoal::worker {
namespace {

enum class Who { kLoadingZygote, kZygote, kWorker };

/// Forks, enters the sandbox of that one, and exits with what `call` returns. The wait status.
int status_of(const std::function<int()>& call, Who who = Who::kWorker) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    const auto entered = who == Who::kLoadingZygote ? enter_loading_sandbox() : enter_sandbox();
    if (!entered.ok() || !entered->empty() || (who == Who::kWorker && !enter_worker_sandbox().ok())) ::_exit(99);
    ::_exit(call());
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return status;
}

class SandboxTest : public testing::Test {
 protected:
  void SetUp() override {
    int status = status_of([] { return 0; });
    if (WIFEXITED(status) && WEXITSTATUS(status) == 99) GTEST_SKIP() << "this build, or this kernel, has no sandbox";
    ASSERT_EQ(status, 0);
  }
};

// As under a service manager that allows its services the usual calls: libseccomp loads by prctl() then.
TEST_F(SandboxTest, IsThereWhereAFilterForbidsSeccomp) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    sock_filter program[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                             BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_seccomp, 0, 1),
                             BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const sock_fprog filter{std::size(program), program};
    if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) ::_exit(98);
    const auto entered = enter_sandbox();
    if (!entered.ok() || !entered->empty() || !enter_worker_sandbox().ok()) ::_exit(99);
    ::_exit(::open("/dev/null", O_WRONLY));
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) << status;
}

TEST_F(SandboxTest, WhatAnIntruderWantsIsTheEnd) {
  const std::pair<const char*, std::function<int()>> calls[] = {
      {"execve", [] { return ::execl("/bin/true", "/bin/true", nullptr); }},
      {"openat", [] { return ::open("/dev/null", O_WRONLY); }},
      {"openat", [] { return ::open("/dev/null", O_RDWR); }},
      {"openat", [] { return ::open("/nowhere/file", O_RDONLY | O_CREAT, 0600); }},
      {"openat", [] { return ::open("/dev/null", O_RDONLY | O_TRUNC); }},
      {"creat", [] { return static_cast<int>(::syscall(SYS_creat, "/nowhere/file", 0600)); }},
      {"unlink", [] { return ::unlink("/nowhere/file"); }},
      {"rename", [] { return ::rename("/nowhere/a", "/nowhere/b"); }},
      {"chmod", [] { return ::chmod("/nowhere/file", 0777); }},
      {"truncate", [] { return ::truncate("/nowhere/file", 0); }},
      {"socket", [] { return ::socket(AF_INET, SOCK_STREAM, 0); }},
      {"socket", [] { return ::socket(AF_NETLINK, SOCK_RAW, 0); }},
      {"connect", [] { return ::connect(0, nullptr, 0); }},
      {"ptrace", [] { return static_cast<int>(::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr)); }},
      {"process_vm_writev", [] { return static_cast<int>(::syscall(SYS_process_vm_writev, 1, nullptr, 0, nullptr, 0, 0)); }},
      {"mount", [] { return static_cast<int>(::syscall(SYS_mount, nullptr, nullptr, nullptr, 0, nullptr)); }},
      {"bpf", [] { return static_cast<int>(::syscall(SYS_bpf, 0, nullptr, 0)); }},
      {"unshare", [] { return static_cast<int>(::syscall(SYS_unshare, 0)); }},
      {"clone", [] { return ::fork() < 0; }},
      {"prlimit64", [] { return ::prlimit(::getppid(), RLIMIT_NOFILE, nullptr, nullptr); }},
      {"kill", [] { return ::kill(::getppid(), 0); }},
  };
  for (const auto& [name, call] : calls) {
    const int status = status_of(call);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) << name << ": " << status;
  }
}

TEST_F(SandboxTest, WhileAModelIsLoadedItsRecordIsWrittenAndNothingIsExecuted) {
  EXPECT_EQ(status_of(
                [] {
                  char beside[] = "/tmp/shoal-sandbox-XXXXXX";
                  const int file = ::mkstemp(beside);
                  const std::string record = std::string(beside) + ".record";
                  return file >= 0 && ::rename(beside, record.c_str()) == 0 && ::unlink(record.c_str()) == 0 ? 0 : 1;
                },
                Who::kLoadingZygote),
            0);
  const std::pair<const char*, std::function<int()>> calls[] = {
      {"execve", [] { return ::execl("/bin/true", "/bin/true", nullptr); }},
      {"socket", [] { return ::socket(AF_INET, SOCK_STREAM, 0); }},
      {"connect", [] { return ::connect(0, nullptr, 0); }},
      {"ptrace", [] { return static_cast<int>(::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr)); }},
  };
  for (const auto& [name, call] : calls) {
    const int status = status_of(call, Who::kLoadingZygote);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) << name << ": " << status;
  }
}

TEST_F(SandboxTest, WhatServingNeedsGoesOn) {
  EXPECT_EQ(status_of([] {
              int ran = 0;
              std::thread([&] { ran = 1; }).join();
              const int file = ::open("/proc/self/status", O_RDONLY | O_CLOEXEC), socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
              void* memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
              const bool is_code = memory != MAP_FAILED && ::mprotect(memory, 4096, PROT_READ | PROT_EXEC) == 0;
              return ran == 1 && file >= 0 && socket >= 0 && is_code && ::kill(::getpid(), 0) == 0 ? 0 : 1;
            }),
            0);
}

TEST_F(SandboxTest, ForbiddenCallsHaveNames) {
  EXPECT_EQ(status_of([] {
              return forbidden_call_name(SYS_execve) == std::string_view("execve") &&
                             forbidden_call_name(SYS_openat) == std::string_view("openat") && !forbidden_call_name(SYS_read) &&
                             !forbidden_call_name(-1) && !forbidden_call_name(1 << 20)
                         ? 0
                         : 1;
            }),
            0);
}

TEST_F(SandboxTest, AZygoteForks) {
  EXPECT_EQ(status_of(
                [] {
                  const pid_t child = ::fork();
                  if (child == 0) ::_exit(7);
                  int status = 0;
                  return ::waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7 ? 0 : 1;
                },
                Who::kZygote),
            0);
}

TEST_F(SandboxTest, WhatNobodyNeedsIsAsOnAnOlderKernel) {
  EXPECT_EQ(status_of([] { return ::syscall(SYS_mlockall, 0) == -1 && errno == ENOSYS ? 0 : 1; }), 0);
}

}  // namespace
}  // namespace shoal::worker

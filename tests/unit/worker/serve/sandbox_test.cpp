#include "worker/serve/sandbox.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "tests/support/child_process.hpp"
#include "tests/support/landlock.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/unit/worker/serve/sandbox_fixture.hpp"

namespace shoal::worker {
namespace {

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

TEST_F(SandboxTest, CallsOfAnIntruderEndTheProcess) {
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
      {"fsconfig", [] { return static_cast<int>(::syscall(SYS_fsconfig, -1, 0, nullptr, nullptr, 0)); }},
      {"fspick", [] { return static_cast<int>(::syscall(SYS_fspick, -1, nullptr, 0)); }},
      {"quotactl_fd", [] { return static_cast<int>(::syscall(SYS_quotactl_fd, -1, 0, 0, nullptr)); }},
      {"connect", [] { return ::connect(0, nullptr, 0); }},
      {"ptrace", [] { return static_cast<int>(::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr)); }},
      {"process_vm_writev", [] { return static_cast<int>(::syscall(SYS_process_vm_writev, 1, nullptr, 0, nullptr, 0, 0)); }},
      {"mount", [] { return static_cast<int>(::syscall(SYS_mount, nullptr, nullptr, nullptr, 0, nullptr)); }},
      {"bpf", [] { return static_cast<int>(::syscall(SYS_bpf, 0, nullptr, 0)); }},
      {"unshare", [] { return static_cast<int>(::syscall(SYS_unshare, 0)); }},
      {"clone", [] { return ::fork() < 0; }},
      {"pidfd_open", [] { return static_cast<int>(::syscall(SYS_pidfd_open, ::getppid(), 0)); }},
      {"prlimit64", [] { return ::prlimit(::getppid(), RLIMIT_NOFILE, nullptr, nullptr); }},
      {"kill", [] { return ::kill(::getppid(), 0); }},
  };
  for (const auto& [name, call] : calls) {
    const int status = status_of(call);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) << name << ": " << status;
  }
}

/// What the process does in the sandbox of a zygote whose model runs on a device with that profile.
int status_with(const SandboxProfile& profile, const std::function<int()>& call) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (!enter_loading_sandbox({}, {}, profile.device_nodes).ok() || !enter_sandbox(profile).ok()) ::_exit(99);
    ::_exit(call());
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return status;
}

TEST_F(SandboxTest, AProfileAllowsItsNodesAndIoctlsAndNothingElse) {
  const test::ScratchDirectory other;
  const std::string file = other.path() + "/file";
  std::ofstream(file) << "x";
  const SandboxProfile profile{.device_nodes = {"/dev/zero"}, .ioctls = {TIOCOUTQ}};
  const auto open_node = [] { return ::open("/dev/zero", O_RDWR) >= 0 ? 0 : errno; };
  const auto control = [] {
    int pair[2];
    if (::pipe(pair) != 0) return 1;
    int queued = 0;
    return ::ioctl(pair[0], TIOCOUTQ, &queued) == 0 ? 0 : errno;
  };
  EXPECT_EQ(status_with(profile, open_node), 0);
  EXPECT_EQ(WEXITSTATUS(status_with(profile, control)), ENOTTY) << "the kernel answers, not the filter";
  const int without = status_with({}, open_node);
  EXPECT_TRUE(WIFSIGNALED(without) && WTERMSIG(without) == SIGSYS) << without;
  EXPECT_EQ(WEXITSTATUS(status_with({}, control)), ENOSYS);
  const int creates = status_with(profile, [&] { return ::open((file + "2").c_str(), O_RDWR | O_CREAT, 0600) >= 0; });
  EXPECT_TRUE(WIFSIGNALED(creates) && WTERMSIG(creates) == SIGSYS) << creates;
  if (test::landlock_version() > 0) {
    EXPECT_EQ(WEXITSTATUS(status_with(profile, [&] { return ::open(file.c_str(), O_RDWR) >= 0 ? 0 : errno; })), EACCES);
  }
}

/// Makes, renames and removes a file and a directory there. 0, or the number of the step that failed.
int write_into(const std::string& directory) {
  const std::string made = directory + "/made", file = made + "/file", beside = made + "/beside";
  if (::mkdir(made.c_str(), 0700) != 0) return 1;
  const int opened = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0600);
  if (opened < 0 || ::write(opened, "x", 1) != 1) return 2;
  if (::rename(beside.c_str(), file.c_str()) != 0) return 3;
  return ::unlink(file.c_str()) == 0 ? 0 : 4;
}

TEST_F(SandboxTest, WhileAModelIsLoadedItsRecordIsWrittenAndNothingIsExecuted) {
  const test::ScratchDirectory cache;
  EXPECT_EQ(status_of([&] { return write_into(cache.path()); }, Who::kLoadingZygote, cache.path()), 0);
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

// The kernel takes 32 bits of a pid: a filter must not be misled by the others.
long with_high_bits(pid_t pid) { return static_cast<long>(std::uint64_t{1} << 32 | static_cast<std::uint32_t>(pid)); }

int control_socket() {
  int ends[2] = {-1, -1};
  (void)::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends);  // before the sandbox forbids it
  return ends[0];
}

constexpr int kNobody = 5'000'000;  // neither a process, nor a group, nor a user: a call that gets through does no harm

// Here the parent stands for the supervisor. Each of these calls signals it, arranges for a signal to it, or takes from it what
// it needs to run.
TEST_F(SandboxTest, NobodyCanSignalOrHinderItsSupervisor) {
  const int socket = control_socket();
  ASSERT_GE(socket, 0);
  const pid_t group = ::getpgrp();  // asked here: the sandbox does not allow getpgid()
  const auto scheduling = [](int call, pid_t pid, int policy) {
    sched_param parameter{};
    return static_cast<int>(::syscall(call, pid, policy, &parameter));
  };
  const std::pair<const char*, std::function<int()>> calls[] = {
      {"kill", [] { return ::kill(::getppid(), 0); }},
      {"kill, 32 bits", [] { return static_cast<int>(::syscall(SYS_kill, with_high_bits(::getppid()), 0)); }},
      {"kill, own group", [] { return ::kill(0, 0); }},
      {"kill, a group", [=] { return ::kill(-group, 0); }},
      {"kill, oneself", [] { return ::kill(::getpid(), 0); }},
      {"setpgid", [=] { return ::setpgid(0, group); }},
      {"kill, everybody", [] { return static_cast<int>(::syscall(SYS_kill, -1, 0)); }},
      {"tkill", [] { return static_cast<int>(::syscall(SYS_tkill, ::getppid(), 0)); }},
      {"tgkill", [] { return ::tgkill(::getppid(), ::getppid(), 0); }},
      {"tgkill, 32 bits", [] { return static_cast<int>(::syscall(SYS_tgkill, with_high_bits(::getppid()), ::getppid(), 0)); }},
      {"rt_sigqueueinfo", [] { return static_cast<int>(::syscall(SYS_rt_sigqueueinfo, ::getppid(), SIGTERM, nullptr)); }},
      {"rt_tgsigqueueinfo",
       [] { return static_cast<int>(::syscall(SYS_rt_tgsigqueueinfo, ::getppid(), ::getppid(), SIGTERM, nullptr)); }},
      {"pidfd_send_signal", [] { return static_cast<int>(::syscall(SYS_pidfd_send_signal, 0, 0, nullptr, 0)); }},
      {"F_SETOWN", [=] { return ::fcntl(socket, F_SETOWN, ::getppid()); }},
      {"F_SETOWN, 32 bits",
       [=] { return static_cast<int>(::syscall(SYS_fcntl, socket, with_high_bits(F_SETOWN), ::getppid())); }},
      {"F_SETOWN_EX",
       [=] {
         f_owner_ex owner{.type = F_OWNER_PID, .pid = ::getppid()};
         return ::fcntl(socket, F_SETOWN_EX, &owner);
       }},
      {"F_SETSIG", [=] { return ::fcntl(socket, F_SETSIG, SIGKILL); }},
      {"O_ASYNC", [=] { return ::fcntl(socket, F_SETFL, O_ASYNC | O_NONBLOCK); }},
      {"F_SETLEASE", [] { return ::fcntl(::open("/proc/self/exe", O_RDONLY), F_SETLEASE, F_RDLCK); }},
      {"F_NOTIFY", [] { return ::fcntl(::open("/tmp", O_RDONLY), F_NOTIFY, DN_CREATE); }},
      {"setpriority",
       [] {
         const auto parent = static_cast<id_t>(::getppid());
         return ::setpriority(PRIO_PROCESS, parent, ::getpriority(PRIO_PROCESS, parent));
       }},
      {"setpriority, a group", [] { return ::setpriority(PRIO_PGRP, kNobody, 0); }},
      {"setpriority, a user", [] { return ::setpriority(PRIO_USER, kNobody, 0); }},
      {"sched_setscheduler", [=] { return scheduling(SYS_sched_setscheduler, ::getppid(), SCHED_OTHER); }},
      {"sched_setscheduler, idle", [=] { return scheduling(SYS_sched_setscheduler, 0, SCHED_IDLE); }},
      {"ptrace", [] { return static_cast<int>(::ptrace(PTRACE_SEIZE, ::getppid(), nullptr, nullptr)); }},
      {"process_vm_writev",
       [] { return static_cast<int>(::syscall(SYS_process_vm_writev, ::getppid(), nullptr, 0, nullptr, 0, 0)); }},
      {"pidfd_getfd", [] { return static_cast<int>(::syscall(SYS_pidfd_getfd, 0, 0, 0)); }},
      {"prlimit64",
       [] {
         const rlimit none{0, 0};
         return ::prlimit(kNobody, RLIMIT_CPU, &none, nullptr);
       }},
      {"prctl(PR_SCHED_CORE)", [] { return ::prctl(62, 0, ::getppid(), 0, 0); }},
      {"kcmp", [] { return static_cast<int>(::syscall(SYS_kcmp, ::getppid(), ::getpid(), 0, 0, 0)); }},
      {"move_pages", [] { return static_cast<int>(::syscall(SYS_move_pages, ::getppid(), 0, nullptr, nullptr, nullptr, 0)); }},
      {"migrate_pages", [] { return static_cast<int>(::syscall(SYS_migrate_pages, ::getppid(), 0, nullptr, nullptr)); }},
      {"process_madvise", [] { return static_cast<int>(::syscall(SYS_process_madvise, 0, nullptr, 0, 0, 0)); }},
      {"ioprio_set", [] { return static_cast<int>(::syscall(SYS_ioprio_set, 1, ::getppid(), 0)); }},
  };
  for (const Who who : {Who::kLoadingZygote, Who::kZygote, Who::kWorker}) {
    for (const auto& [name, call] : calls) {
      const int status = status_of(call, who);
      EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) << name << " by " << static_cast<int>(who) << ": " << status;
    }
  }
  ::close(socket);
}

/// Another thread of this process, the parent of all sandboxes here, as libzmq's threads are in the supervisor.
class OtherThread {
 public:
  OtherThread() : thread_([this](std::stop_token stop) { wait(stop); }) { id.wait(0); }
  std::atomic<pid_t> id = 0;

 private:
  void wait(std::stop_token stop) {
    id = ::gettid();
    id.notify_all();
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any().wait(lock, stop, [] { return false; });
  }
  std::jthread thread_;
};

// kill() takes the id of any thread of a process.
TEST_F(SandboxTest, TheIdOfAThreadDoesNotReachItsProcess) {
  const OtherThread other;
  const pid_t id = other.id;
  cpu_set_t before, after, one;
  ASSERT_EQ(::sched_getaffinity(id, sizeof before, &before), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  for (const Who who : {Who::kLoadingZygote, Who::kZygote, Who::kWorker}) {
    for (const long named : {static_cast<long>(id), with_high_bits(id)}) {
      const int status = status_of([=] { return static_cast<int>(::syscall(SYS_kill, named, 0)); }, who);
      EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) << "kill by " << static_cast<int>(who) << ": " << status;
      EXPECT_EQ(status_of([&] { return static_cast<int>(::syscall(SYS_sched_setaffinity, named, sizeof one, &one)); }, who), 0);
    }
    ASSERT_EQ(::sched_getaffinity(id, sizeof after, &after), 0);
    EXPECT_TRUE(CPU_EQUAL(&before, &after)) << "processors of another process changed by " << static_cast<int>(who);
  }
}

// With OMP_PROC_BIND, libgomp makes its threads like this.
TEST_F(SandboxTest, AThreadWithAnAffinityIsMade) {
  for (const Who who : {Who::kLoadingZygote, Who::kZygote, Who::kWorker}) {
    EXPECT_EQ(status_of(
                  [] {
                    cpu_set_t own;
                    pthread_attr_t attributes;
                    pthread_t thread;
                    if (::sched_getaffinity(0, sizeof own, &own) != 0 || ::pthread_attr_init(&attributes) != 0) return 1;
                    if (::pthread_attr_setaffinity_np(&attributes, sizeof own, &own) != 0) return 2;
                    if (::pthread_create(
                            &thread, &attributes, [](void*) -> void* { return nullptr; }, nullptr) != 0)
                      return 3;
                    return ::pthread_join(thread, nullptr);
                  },
                  who),
              0)
        << static_cast<int>(who);
  }
}

// While a model is loaded, every other command of ioctl is allowed. After loading the same filter still holds.
TEST_F(SandboxTest, WhileAModelIsLoadedNobodyTypesAtTheTerminalOrOwnsADescriptor) {
  for (const unsigned command : {FIOASYNC, FIOSETOWN, SIOCSPGRP, TIOCSPGRP, TIOCSTI, TIOCLINUX, TIOCSETD}) {
    for (const Who who : {Who::kLoadingZygote, Who::kZygote}) {
      const int status = status_of([=] { return ::ioctl(-1, command, nullptr); }, who);
      EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) << command << ": " << status;
    }
  }
  for (const char* name : {"sched_setparam", "sched_setattr"}) {
    const int call = name == std::string_view("sched_setparam") ? SYS_sched_setparam : SYS_sched_setattr;
    const int status = status_of([=] { return static_cast<int>(::syscall(call, ::getppid(), nullptr, 0)); }, Who::kLoadingZygote);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) << name << ": " << status;
  }
}

// A filter cannot read the flags of clone3, so that new name spaces would get past it.
TEST_F(SandboxTest, WhatClone3IsAskedForIsSeen) {
  EXPECT_EQ(status_of([] { return ::syscall(SYS_clone3, nullptr, 0) == -1 && errno == ENOSYS ? 0 : 1; }, Who::kLoadingZygote), 0);
  const int status = status_of(
      [] { return static_cast<int>(::syscall(SYS_clone, CLONE_PARENT | SIGCHLD, nullptr, nullptr, nullptr, 0)); }, Who::kZygote);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) << status;
}

TEST_F(SandboxTest, NobodyReachesTheMemoryOfAProcessOutside) {
  if (test::landlock_version() < 1) GTEST_SKIP() << "this kernel has no Landlock";
  for (const Who who : {Who::kLoadingZygote, Who::kZygote, Who::kWorker}) {
    EXPECT_EQ(status_of(
                  [] {
                    const std::string file = "/proc/" + std::to_string(::getppid()) + "/mem";
                    return ::open(file.c_str(), O_RDONLY) < 0 && errno == EACCES ? 0 : 1;
                  },
                  who),
              0)
        << static_cast<int>(who);
  }
}

/// Is the call refused with EACCES?
bool is_denied(int result) { return result < 0 && errno == EACCES; }

TEST_F(SandboxTest, ALoadingZygoteWritesNoFileByItsPathButInItsCache) {
  if (test::landlock_version() < 1) GTEST_SKIP() << "this kernel has no Landlock";
  const test::ScratchDirectory cache, others;
  const std::string file = others.path("file"), made = others.path("made");
  std::ofstream(file) << "text";
  const std::string supervisor = "/proc/" + std::to_string(::getpid());
  const std::pair<const char*, std::function<int()>> calls[] = {
      {"open the supervisor's oom_score_adj", [&] { return ::open((supervisor + "/oom_score_adj").c_str(), O_WRONLY); }},
      {"open the supervisor's coredump_filter", [&] { return ::open((supervisor + "/coredump_filter").c_str(), O_RDWR); }},
      {"open its name", [&] { return ::open((supervisor + "/comm").c_str(), O_WRONLY); }},
      {"open to write", [&] { return ::open(file.c_str(), O_WRONLY); }},
      {"open to append", [&] { return ::open(file.c_str(), O_RDWR | O_APPEND); }},
      {"create", [&] { return ::open(made.c_str(), O_WRONLY | O_CREAT, 0600); }},
      {"create, only to read", [&] { return ::open(made.c_str(), O_RDONLY | O_CREAT, 0600); }},
      {"mkdir", [&] { return ::mkdir(made.c_str(), 0700); }},
      {"unlink", [&] { return ::unlink(file.c_str()); }},
      {"rmdir", [&] { return ::unlinkat(AT_FDCWD, others.path().c_str(), AT_REMOVEDIR); }},
      {"rename", [&] { return ::rename(file.c_str(), made.c_str()); }},
      {"move into the cache", [&] { return ::rename(file.c_str(), cache.path("file").c_str()) < 0 ? (errno = EACCES, -1) : 0; }},
  };
  for (const std::string& writable : {cache.path(), std::string()}) {
    for (const auto& [name, call] : calls)
      EXPECT_EQ(status_of([&call = call] { return is_denied(call()) ? 0 : 1; }, Who::kLoadingZygote, writable), 0) << name;
  }
  EXPECT_EQ(status_of([&] { return is_denied(::mkdir(cache.path("made").c_str(), 0700)) ? 0 : 1; }, Who::kLoadingZygote), 0)
      << "no cache is named";
  EXPECT_EQ(std::filesystem::file_size(file), 4u);
  EXPECT_EQ(status_of([&] { return ::open("/dev/null", O_WRONLY) >= 0 && ::open(file.c_str(), O_RDONLY) >= 0 ? 0 : 1; },
                      Who::kLoadingZygote, cache.path()),
            0);
}

// Linux 6.1 has a Landlock that does not know truncation, and none knows these changes.
TEST_F(SandboxTest, NobodyTruncatesOrGivesAwayAFile) {
  const test::ScratchDirectory others;
  const std::string file = others.path("file"), made = others.path("made");
  std::ofstream(file) << "text";
  const std::pair<const char*, std::function<int()>> calls[] = {
      {"truncate", [&] { return ::truncate(file.c_str(), 0); }},
      {"O_TRUNC", [&] { return ::open(file.c_str(), O_RDONLY | O_TRUNC); }},
      {"creat", [&] { return static_cast<int>(::syscall(SYS_creat, file.c_str(), 0600)); }},
      {"chmod", [&] { return ::chmod(file.c_str(), 0644); }},
      {"chown", [&] { return ::chown(file.c_str(), ::getuid(), ::getgid()); }},
      {"utimensat", [&] { return ::utimensat(AT_FDCWD, file.c_str(), nullptr, 0); }},
      {"setxattr", [&] { return ::setxattr(file.c_str(), "user.x", "x", 1, 0); }},
      {"link", [&] { return ::link(file.c_str(), made.c_str()); }},
      {"symlink", [&] { return ::symlink(file.c_str(), made.c_str()); }},
      {"mknod", [&] { return ::mknod(made.c_str(), S_IFIFO | 0600, 0); }},
  };
  for (const Who who : {Who::kLoadingZygote, Who::kZygote, Who::kWorker}) {
    for (const auto& [name, call] : calls) {
      const int status = status_of(call, who);
      EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) << name << " by " << static_cast<int>(who) << ": " << status;
      ::unlink(made.c_str());
    }
  }
  EXPECT_EQ(std::filesystem::file_size(file), 4u);
}

// Calls that the filter's author could not know. fchmodat2 (452), setxattrat (463), removexattrat (466) and file_setattr (469)
// change files, and Landlock does not know such changes.
TEST_F(SandboxTest, CallsThatAreNewerThanItsListsFailAsOnAnOlderKernel) {
  const test::ScratchDirectory others;
  const std::string file = others.path("file");
  std::ofstream(file) << "text";
  ASSERT_EQ(::chmod(file.c_str(), 0600), 0);
  const auto is_unknown = [](long number, const char* path) {
    return ::syscall(number, AT_FDCWD, path, 0666, 0, 0, 0) == -1 && errno == ENOSYS ? 0 : 1;
  };
  for (const Who who : {Who::kLoadingZygote, Who::kZygote, Who::kWorker}) {
    for (const long number : {451, 452, 463, 466, 467, 469, 500, 1023, 100'000}) {
      EXPECT_EQ(status_of([&] { return is_unknown(number, file.c_str()); }, who), 0) << number << " by " << static_cast<int>(who);
    }
  }
  EXPECT_EQ(std::filesystem::status(file).permissions(), std::filesystem::perms(0600));
}

TEST_F(SandboxTest, AZygoteSignalsNobodyOutside) {
  if (test::landlock_version() < 6) GTEST_SKIP() << "this kernel's Landlock knows no scopes";
  const pid_t stranger = test::start_child([] { return ::pause(); });
  for (const Who who : {Who::kLoadingZygote, Who::kZygote})
    EXPECT_EQ(status_of([=] { return ::tgkill(stranger, stranger, SIGKILL) == -1 && errno == EPERM ? 0 : 1; }, who), 0)
        << static_cast<int>(who);
  ::kill(stranger, SIGTERM);
  EXPECT_EQ(test::exit_code_of(stranger), 128 + SIGTERM);
}

TEST_F(SandboxTest, WhatServingNeedsGoesOn) {
  EXPECT_EQ(status_of([] {
              int ran = 0;
              std::thread([&] { ran = 1; }).join();
              const int file = ::open("/proc/self/status", O_RDONLY | O_CLOEXEC), socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
              void* memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
              const bool is_code = memory != MAP_FAILED && ::mprotect(memory, 4096, PROT_READ | PROT_EXEC) == 0;
              return ran == 1 && file >= 0 && socket >= 0 && is_code && ::tgkill(::getpid(), ::gettid(), 0) == 0 ? 0 : 1;
            }),
            0);
}

// As libzmq does to its threads, the C library for nice(), and a lane for its own memory.
TEST_F(SandboxTest, OwnPrioritiesAndLimitsAreForEverybody) {
  for (const Who who : {Who::kLoadingZygote, Who::kZygote, Who::kWorker}) {
    EXPECT_EQ(status_of(
                  [] {
                    sched_param parameter{};
                    rlimit data{};
                    int failed = 0;
                    std::thread([&] {
                      failed += ::sched_setscheduler(::gettid(), ::sched_getscheduler(0), &parameter) != 0;
                      failed += ::setpriority(PRIO_PROCESS, 0, 1) != 0;
                    }).join();
                    failed += ::getrlimit(RLIMIT_DATA, &data) != 0 || ::setrlimit(RLIMIT_DATA, &data) != 0;
                    failed += ::fcntl(0, F_GETFL) < 0 || ::fcntl(0, F_SETFL, ::fcntl(0, F_GETFL)) != 0;
                    return failed;
                  },
                  who),
              0)
        << static_cast<int>(who);
  }
}

TEST_F(SandboxTest, AbortIsASignalToOneself) {
  for (const Who who : {Who::kLoadingZygote, Who::kZygote, Who::kWorker}) {
    const int status = status_of([]() -> int { std::abort(); }, who);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) << static_cast<int>(who) << ": " << status;
  }
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

TEST_F(SandboxTest, UnneededCallsFailAsOnAnOlderKernel) {
  EXPECT_EQ(status_of([] { return ::syscall(SYS_mlockall, 0) == -1 && errno == ENOSYS ? 0 : 1; }), 0);
}

}  // namespace
}  // namespace shoal::worker

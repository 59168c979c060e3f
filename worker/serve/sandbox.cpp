#include "worker/serve/sandbox.hpp"

#include <fcntl.h>
#include <linux/landlock.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdint>
#include <vector>

#include "shm/base/errors.hpp"
#include "shm/sandbox/sandbox_parts.hpp"

namespace shoal::worker {
namespace {

using sandbox::Filter;
using sandbox::FilterProgram;

// The system calls that glibc, libgomp, libzmq, oneDNN and Shoal make once a model is loaded. Another version of these libraries
// may make more. Those fail with ENOSYS, as on an older kernel, and the libraries have fallbacks for that.
// clang-format off
constexpr const char* kServing[] = {
    // memory
    "brk", "madvise", "membarrier", "memfd_create", "mmap", "mprotect", "mremap", "munmap",
    // threads and time; clone and not clone3, whose flags lie in memory that a filter cannot read
    "arch_prctl", "clock_getres", "clock_gettime", "clock_nanosleep", "clone", "exit", "exit_group", "futex", "get_robust_list",
    "getcpu", "getpriority", "getrusage", "gettid", "gettimeofday", "nanosleep", "prctl", "restart_syscall", "rseq",
    "sched_get_priority_max", "sched_get_priority_min", "sched_getaffinity", "sched_getparam", "sched_getscheduler",
    "sched_setaffinity", "sched_setscheduler", "sched_yield", "seccomp", "set_robust_list", "set_tid_address",
    "setpriority", "sysinfo", "time", "times",
    // processes and signals; fork() is a clone
    "getegid", "geteuid", "getgid", "getpgrp", "getpid", "getppid", "getrlimit", "getuid", "pause", "pidfd_open",
    "prlimit64", "rt_sigaction", "rt_sigpending", "rt_sigprocmask", "rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait",
    "setrlimit", "sigaltstack", "signalfd4", "tgkill", "uname", "wait4", "waitid",
    // descriptors
    "access", "close", "close_range", "dup", "dup2", "dup3", "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_wait",
    "eventfd2", "faccessat", "faccessat2", "fallocate", "fcntl", "fstat", "fstatfs", "ftruncate", "getcwd", "getdents64",
    "getrandom", "lseek", "lstat", "newfstatat", "open", "openat", "pipe2", "poll", "ppoll", "pread64", "pselect6", "pwrite64",
    "read", "readlink", "readlinkat", "readv", "select", "stat", "statx", "timerfd_create", "timerfd_settime", "write", "writev",
    // sockets
    "accept", "accept4", "bind", "getpeername", "getsockname", "getsockopt", "listen", "recvfrom", "recvmsg", "sendmsg",
    "sendto", "setsockopt", "shutdown", "socket",
};
// clang-format on
constexpr unsigned kServingIoctls[] = {TCGETS, FIONREAD, FIONBIO};  // isatty(), and what libzmq sets

// Forbidden once the model is loaded. The record of its algorithms is written before.
constexpr const char* kChangingFiles[] = {"mkdir", "mkdirat", "rename", "renameat", "renameat2", "rmdir", "unlink", "unlinkat"};
constexpr const char* kForbiddenToWorkers[] = {"bind", "pidfd_open"};

const char* names[sandbox::kCallNumbers];     // by number; filled before the first filter is loaded
bool is_loading = false, is_serving = false;  // which sandboxes were entered
std::string no_domain;                        // why Landlock is missing from them

Result<FilterProgram> allow_what_serves(const SandboxProfile& profile) {
  Filter filter(sandbox::kUnknownCall);
  filter.set(SCMP_FLTATR_CTL_OPTIMIZE, 2);  // a binary tree: every system call searches some 120 names
  for (const char* name : kServing) filter.add(SCMP_ACT_ALLOW, name);
  for (const unsigned command : kServingIoctls) filter.add(SCMP_ACT_ALLOW, "ioctl", SCMP_A1_32(SCMP_CMP_EQ, command, 0));
  for (const unsigned command : profile.ioctls) filter.add(SCMP_ACT_ALLOW, "ioctl", SCMP_A1_32(SCMP_CMP_EQ, command, 0));
  // The kernel runs every filter and takes the strictest answer.
  for (const char* name : kChangingFiles) filter.add(SCMP_ACT_TRAP, name);
  return filter.to_program();
}

// Drivers open their nodes with O_RDWR. Which files these are, only Landlock can tell.
Result<FilterProgram> forbid_writing(const SandboxProfile& profile) {
  Filter filter(SCMP_ACT_ALLOW);
  for (const int flag : {O_WRONLY, O_RDWR, O_CREAT, O_TRUNC}) {
    if (flag == O_RDWR && !profile.device_nodes.empty()) continue;
    const auto bits = static_cast<std::uint32_t>(flag);
    filter.add(SCMP_ACT_TRAP, "open", SCMP_A1_32(SCMP_CMP_MASKED_EQ, bits, bits));
    filter.add(SCMP_ACT_TRAP, "openat", SCMP_A2_32(SCMP_CMP_MASKED_EQ, bits, bits));
  }
  return filter.to_program();
}

constexpr std::uint32_t kSelf = 0x7fffffff;  // stands for the process that loads the program; no pid is that large

Result<FilterProgram> confine_to_self() {
  Filter filter(SCMP_ACT_ALLOW);
  filter.add(SCMP_ACT_TRAP, "clone", SCMP_A0_32(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0));
  filter.add(SCMP_ACT_TRAP, "pidfd_open");
  filter.add(SCMP_ACT_TRAP, "bind");  // a socket that is not bound cannot listen
  filter.add(SCMP_ACT_TRAP, "tgkill", SCMP_A0_32(SCMP_CMP_NE, kSelf, 0));
  return filter.to_program();
}

struct Programs {
  FilterProgram leaving, self;
  FilterProgram writing, serving;  // without a device; models that have one make theirs when they are loaded
};

Result<Programs> make_programs() {
  Programs made;
  SHOAL_ASSIGN_OR_RETURN(made.leaving, sandbox::forbid_leaving());
  SHOAL_ASSIGN_OR_RETURN(made.writing, forbid_writing({}));
  SHOAL_ASSIGN_OR_RETURN(made.serving, allow_what_serves({}));
  SHOAL_ASSIGN_OR_RETURN(made.self, confine_to_self());
  return made;
}

const Result<Programs>& programs() {
  static const Result<Programs> made = make_programs();
  return made;
}

// What Landlock forbids outside the paths that are allowed.
constexpr std::uint64_t kMakeRecords = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_DIR |
                                       LANDLOCK_ACCESS_FS_REMOVE_FILE,
                        kWriteAccess = kMakeRecords | LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                                       LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
                                       LANDLOCK_ACCESS_FS_MAKE_SYM | LANDLOCK_ACCESS_FS_MAKE_SOCK;

// A second protection. Without Landlock only the filters protect.
std::string enter_domain(const std::string& writable, const std::string& sockets, const std::vector<std::string>& device_nodes) {
  std::vector<sandbox::PathRights> allowed{{"/dev/null", LANDLOCK_ACCESS_FS_WRITE_FILE}};
  if (!writable.empty()) allowed.push_back({writable, kMakeRecords});
  if (!sockets.empty()) allowed.push_back({sockets, LANDLOCK_ACCESS_FS_MAKE_SOCK});
  for (const std::string& node : device_nodes) allowed.push_back({node, LANDLOCK_ACCESS_FS_WRITE_FILE});
  return sandbox::enter_domain(kWriteAccess, allowed);
}

}  // namespace

const char* forbidden_call_name(int number) { return number >= 0 && number < sandbox::kCallNumbers ? names[number] : nullptr; }

Result<std::string> enter_loading_sandbox(const std::string& writable, const std::string& sockets,
                                          const std::vector<std::string>& device_nodes) {
  if (const std::string why_not = sandbox::why_none(); !why_not.empty()) return "no sandbox: " + why_not;
  if (is_loading) return no_domain;
  SHOAL_RETURN_IF_ERROR(programs().status());
  for (const auto calls : {sandbox::forbidden_calls(), sandbox::conditional_calls(), {kChangingFiles}, {kForbiddenToWorkers}}) {
    for (const char* name : calls) {
      if (const int number = sandbox::call_number(name); number >= 0) names[number] = name;
    }
  }
  no_domain = enter_domain(writable, sockets, device_nodes);
  SHOAL_RETURN_IF_ERROR(sandbox::load(programs()->leaving));
  is_loading = true;
  return no_domain;
}

Result<std::string> enter_sandbox(const SandboxProfile& profile) {
  SHOAL_ASSIGN_OR_RETURN(std::string missing, enter_loading_sandbox({}, {}, profile.device_nodes));
  if (!is_loading) return missing;
  FilterProgram writing = programs()->writing, serving = programs()->serving;
  if (!profile.device_nodes.empty() || !profile.ioctls.empty()) {
    SHOAL_ASSIGN_OR_RETURN(writing, forbid_writing(profile));
    SHOAL_ASSIGN_OR_RETURN(serving, allow_what_serves(profile));
  }
  SHOAL_RETURN_IF_ERROR(sandbox::load(writing));
  SHOAL_RETURN_IF_ERROR(sandbox::load(serving));
  is_serving = true;
  return missing;
}

Status enter_worker_sandbox() {
  if (!is_serving) return {};
  FilterProgram program = programs()->self;
  for (sock_filter& line : program) {
    if (line.k == kSelf) line.k = static_cast<std::uint32_t>(::getpid());
  }
  return sandbox::load(program);
}

}  // namespace shoal::worker

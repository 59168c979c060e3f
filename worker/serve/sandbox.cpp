#include "worker/serve/sandbox.hpp"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>
#include <vector>

#include "shm/base/errors.hpp"
#include "shm/base/unique_fd.hpp"

namespace shoal::worker {
namespace {

// What glibc, libgomp, libzmq, oneDNN and we ask for once a model is loaded. Another version of them may want more: it gets
// ENOSYS, which they take for an older kernel and do without.
// clang-format off
constexpr const char* kServing[] = {
    // memory
    "brk", "madvise", "membarrier", "memfd_create", "mmap", "mprotect", "mremap", "munmap",
    // threads and time; clone, because what clone3 is asked for lies in memory where a filter cannot look
    "arch_prctl", "clock_getres", "clock_gettime", "clock_nanosleep", "clone", "exit", "exit_group", "futex", "get_robust_list",
    "getcpu", "getpriority", "getrusage", "gettid", "gettimeofday", "nanosleep", "prctl", "restart_syscall", "rseq",
    "sched_get_priority_max", "sched_get_priority_min", "sched_getaffinity", "sched_getparam", "sched_getscheduler",
    "sched_setaffinity", "sched_setparam", "sched_setscheduler", "sched_yield", "seccomp", "set_robust_list", "set_tid_address",
    "setpriority", "sysinfo", "time", "times",
    // processes and signals; fork() is a clone
    "getegid", "geteuid", "getgid", "getpgrp", "getpid", "getppid", "getrlimit", "getuid", "kill", "pause", "pidfd_open",
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
constexpr unsigned kTerminalQuestions[] = {TCGETS, FIONREAD, FIONBIO};  // of ioctl: isatty(), and what libzmq sets

// What an intruder would want. Asking for it is the end: at all times,
// clang-format off
constexpr const char* kForbidden[] = {
    "acct", "add_key", "adjtimex", "bpf", "chroot", "clock_adjtime", "clock_settime", "connect", "delete_module", "execve",
    "execveat", "fanotify_init", "finit_module", "fork", "fsmount", "fsopen", "init_module", "io_uring_enter", "io_uring_register",
    "io_uring_setup", "ioperm", "iopl", "kcmp", "kexec_file_load", "kexec_load", "keyctl", "migrate_pages", "mount",
    "mount_setattr", "move_mount", "move_pages", "name_to_handle_at", "open_by_handle_at", "open_tree", "perf_event_open",
    "personality", "pidfd_getfd", "pidfd_send_signal", "pivot_root", "process_madvise", "process_vm_readv", "process_vm_writev",
    "ptrace", "quotactl", "reboot", "request_key", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "setdomainname", "setfsgid",
    "setfsuid", "setgid", "setgroups", "sethostname", "setns", "setregid", "setresgid", "setresuid", "setreuid", "setsid",
    "settimeofday", "setuid", "socketpair", "swapoff", "swapon", "syslog", "tkill", "umount2", "unshare", "userfaultfd", "vfork",
    "vhangup",
};
// and once the model is loaded: what is recorded of it is written by then.
constexpr const char* kChangingFiles[] = {
    "chmod", "chown", "creat", "fchmod", "fchmodat", "fchown", "fchownat", "fremovexattr", "fsetxattr", "futimesat", "lchown",
    "link", "linkat", "lremovexattr", "lsetxattr", "mkdir", "mkdirat", "mknod", "mknodat", "removexattr", "rename", "renameat",
    "renameat2", "rmdir", "setxattr", "symlink", "symlinkat", "truncate", "unlink", "unlinkat", "utime", "utimensat", "utimes",
};
// clang-format on
// Forbidden with some arguments only.
constexpr const char* kConditional[] = {"clone", "kill", "open", "openat", "prlimit64", "socket", "tgkill"};

constexpr int kCallNumbers = 1024;
const char* names[kCallNumbers];  // by number; complete before the first filter is there
bool is_loading = false, is_serving = false;  // what has been entered

int number_of(const char* name) {
  const int number = ::seccomp_syscall_resolve_name(name);
  return number >= 0 && number < kCallNumbers ? number : -1;  // not on this processor, or not known yet
}

using Program = std::vector<sock_filter>;

// The first failure of libseccomp's is kept: there is no program then.
class Filter {
 public:
  explicit Filter(std::uint32_t otherwise) : context_(::seccomp_init(otherwise)), error_(context_ ? 0 : -ENOMEM) {}
  ~Filter() {
    if (context_) ::seccomp_release(context_);
  }
  Filter(const Filter&) = delete;
  Filter& operator=(const Filter&) = delete;

  void set(scmp_filter_attr attribute, std::uint32_t value) { keep(::seccomp_attr_set(context_, attribute, value)); }
  /// All `conditions` together; several rules for one call are alternatives.
  template <typename... Conditions>
  void add(std::uint32_t action, const char* name, Conditions... conditions) {
    if (const int number = number_of(name); number >= 0)
      keep(::seccomp_rule_add(context_, action, number, sizeof...(conditions), conditions...));
  }
  Result<Program> to_program() {
    const UniqueFd file(::memfd_create("filter", MFD_CLOEXEC));
    if (error_ == 0) keep(file ? ::seccomp_export_bpf(context_, file.get()) : -errno);
    const auto bytes = static_cast<std::size_t>(std::max<off_t>(error_ == 0 ? ::lseek(file.get(), 0, SEEK_END) : 0, 0));
    Program program(bytes / sizeof(sock_filter));
    if (error_ == 0 && ::pread(file.get(), program.data(), bytes, 0) != static_cast<ssize_t>(bytes)) keep(-EIO);
    if (error_ != 0) return status_from_errno("make", "the sandbox's filter of system calls", -error_);
    return program;
  }

 private:
  void keep(int result) {
    if (error_ == 0) error_ = result;
  }
  scmp_filter_ctx context_;
  int error_;
};

Result<Program> allow_what_serves() {
  Filter filter(SCMP_ACT_ERRNO(ENOSYS));
  filter.set(SCMP_FLTATR_CTL_OPTIMIZE, 2);  // a binary tree: some 120 calls, asked at each
  for (const char* name : kServing) filter.add(SCMP_ACT_ALLOW, name);
  for (const unsigned question : kTerminalQuestions) filter.add(SCMP_ACT_ALLOW, "ioctl", SCMP_A1_32(SCMP_CMP_EQ, question, 0));
  // Each filter is asked, and the strictest answer holds.
  for (const char* name : kChangingFiles) filter.add(SCMP_ACT_TRAP, name);
  return filter.to_program();
}

Result<Program> forbid_writing() {
  Filter filter(SCMP_ACT_ALLOW);
  for (const int flag : {O_WRONLY, O_RDWR, O_CREAT, O_TRUNC}) {
    const auto bits = static_cast<std::uint32_t>(flag);
    filter.add(SCMP_ACT_TRAP, "open", SCMP_A1_32(SCMP_CMP_MASKED_EQ, bits, bits));
    filter.add(SCMP_ACT_TRAP, "openat", SCMP_A2_32(SCMP_CMP_MASKED_EQ, bits, bits));
  }
  return filter.to_program();
}

Result<Program> forbid_leaving() {
  Filter filter(SCMP_ACT_ALLOW);
  filter.set(SCMP_FLTATR_CTL_OPTIMIZE, 2);
  for (const char* name : kForbidden) filter.add(SCMP_ACT_TRAP, name);
  filter.add(SCMP_ACT_TRAP, "socket", SCMP_A0_32(SCMP_CMP_NE, AF_UNIX, 0));
  for (const unsigned space :
       {CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET})
    filter.add(SCMP_ACT_TRAP, "clone", SCMP_A0_32(SCMP_CMP_MASKED_EQ, space, space));
  return filter.to_program();
}

constexpr std::uint32_t kSelf = 0x7fffffff;  // stands for the process that loads the program; none has that number

Result<Program> confine_to_self() {
  Filter filter(SCMP_ACT_ALLOW);
  filter.add(SCMP_ACT_TRAP, "clone", SCMP_A0_32(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0));
  filter.add(SCMP_ACT_TRAP, "prlimit64", SCMP_A0_32(SCMP_CMP_NE, 0, 0));  // of another
  for (const char* name : {"kill", "tgkill"}) filter.add(SCMP_ACT_TRAP, name, SCMP_A0_32(SCMP_CMP_NE, kSelf, 0));
  return filter.to_program();
}

struct Programs {
  Program leaving, writing, serving, self;
};

Result<Programs> make_programs() {
  Programs made;
  SHOAL_ASSIGN_OR_RETURN(made.leaving, forbid_leaving());
  SHOAL_ASSIGN_OR_RETURN(made.writing, forbid_writing());
  SHOAL_ASSIGN_OR_RETURN(made.serving, allow_what_serves());
  SHOAL_ASSIGN_OR_RETURN(made.self, confine_to_self());
  return made;
}

const Result<Programs>& programs() {
  static const Result<Programs> made = make_programs();
  return made;
}

// Filters of one that has no secrets of others need not slow its speculation down. Where a filter above us forbids seccomp(), as
// service managers' do, there is still prctl(), which cannot say that.
Status load(const Program& program) {
  const sock_fprog given{static_cast<unsigned short>(program.size()), const_cast<sock_filter*>(program.data())};
  if (::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &given) == 0) return {};
  if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &given) == 0) return {};
  return status_from_errno("load", "the sandbox's filter of system calls", errno);
}

/// Empty: there can be one.
std::string why_no_sandbox() {
#ifdef SHOAL_NO_SANDBOX
  return SHOAL_NO_SANDBOX;
#endif
  const char* wish = std::getenv("SHOAL_SANDBOX");
  return wish && std::string_view(wish) == "off" ? "SHOAL_SANDBOX=off" : "";
}

}  // namespace

const char* forbidden_call_name(int number) { return number >= 0 && number < kCallNumbers ? names[number] : nullptr; }

Result<std::string> enter_loading_sandbox() {
  std::string why_not = why_no_sandbox();
  if (!why_not.empty() || is_loading) return why_not;
  SHOAL_RETURN_IF_ERROR(programs().status());
  for (const auto calls : {std::span<const char* const>(kForbidden), {kChangingFiles}, {kConditional}}) {
    for (const char* name : calls) {
      if (const int number = number_of(name); number >= 0) names[number] = name;
    }
  }
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return status_from_errno("give up", "new privileges", errno);
  SHOAL_RETURN_IF_ERROR(load(programs()->leaving));
  is_loading = true;
  return why_not;
}

Result<std::string> enter_sandbox() {
  SHOAL_ASSIGN_OR_RETURN(std::string why_not, enter_loading_sandbox());
  if (!why_not.empty()) return why_not;
  SHOAL_RETURN_IF_ERROR(load(programs()->writing));
  SHOAL_RETURN_IF_ERROR(load(programs()->serving));
  is_serving = true;
  return why_not;
}

Status enter_worker_sandbox() {
  if (!is_serving) return {};
  Program program = programs()->self;
  for (sock_filter& line : program) {
    if (line.k == kSelf) line.k = static_cast<std::uint32_t>(::getpid());
  }
  return load(program);
}

}  // namespace shoal::worker

#include "worker/serve/sandbox.hpp"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "shm/base/errors.hpp"
#include "shm/base/unique_fd.hpp"

namespace shoal::worker {
namespace {

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

// Only an intruder makes these calls, so they end the process (SIGSYS). These are forbidden at all times,
// clang-format off
constexpr const char* kForbidden[] = {
    "acct", "add_key", "adjtimex", "bpf", "chmod", "chown", "chroot", "clock_adjtime", "clock_settime", "connect", "creat",
    "delete_module", "execve", "execveat", "fanotify_init", "fchmod", "fchmodat", "fchown", "fchownat", "finit_module", "fork",
    "fremovexattr", "fsconfig", "fsetxattr", "fsmount", "fsopen", "fspick", "futimesat", "init_module", "io_uring_enter",
    "io_uring_register", "io_uring_setup", "ioperm", "iopl", "ioprio_set", "kcmp", "kexec_file_load", "kexec_load", "keyctl",
    "kill", "lchown", "link", "linkat", "lremovexattr", "lsetxattr", "migrate_pages", "mknod", "mknodat", "mount",
    "mount_setattr", "move_mount", "move_pages", "name_to_handle_at", "open_by_handle_at", "open_tree", "perf_event_open",
    "personality", "pidfd_getfd", "pidfd_send_signal", "pivot_root", "process_madvise", "process_vm_readv", "process_vm_writev",
    "ptrace", "quotactl", "quotactl_fd", "reboot", "removexattr", "request_key", "rt_sigqueueinfo", "rt_tgsigqueueinfo",
    "setdomainname", "setfsgid", "setfsuid", "setgid", "setgroups", "sethostname", "setns", "setpgid", "setregid", "setresgid",
    "setresuid", "setreuid", "setsid", "settimeofday", "setuid", "setxattr", "socketpair", "swapoff", "swapon", "symlink",
    "symlinkat", "syslog", "tkill", "truncate", "umount2", "unshare", "userfaultfd", "utime", "utimensat", "utimes", "vfork",
    "vhangup",
};
// and these once the model is loaded. The record of its algorithms is written before.
constexpr const char* kChangingFiles[] = {
    "mkdir", "mkdirat", "rename", "renameat", "renameat2", "rmdir", "unlink", "unlinkat",
};
// clang-format on
// Forbidden with some arguments, or to workers, only.
constexpr const char* kConditional[] = {"bind",        "clone",         "fcntl",          "ioctl",
                                        "open",        "openat",        "pidfd_open",     "prctl",
                                        "prlimit64",   "sched_setattr", "sched_setparam", "sched_setscheduler",
                                        "setpriority", "socket",        "tgkill"};
// These make the kernel signal a process that the caller chooses, or let the caller delay a process that opens a file.
constexpr unsigned kOwnerCommands[] = {F_SETOWN, F_SETOWN_EX, F_SETSIG, F_SETLEASE, F_NOTIFY};
// These do so, too, or type into the daemon's terminal, where ^C is a signal.
constexpr unsigned kOwnerIoctls[] = {FIOASYNC, FIOSETOWN, SIOCSPGRP, TIOCSPGRP, TIOCSCTTY,  TIOCNOTTY,
                                     TIOCSTI,  TIOCLINUX, TIOCCONS,  TIOCSETD,  TIOCSWINSZ, TIOCVHANGUP};
constexpr int kPolicies[] = {SCHED_FIFO, SCHED_RR, SCHED_BATCH, SCHED_IDLE, 6 /* SCHED_DEADLINE */, 7 /* SCHED_EXT */};
constexpr unsigned kSocketTypes = 0xf;  // the kernel's SOCK_TYPE_MASK; the other bits are SOCK_CLOEXEC and SOCK_NONBLOCK
constexpr unsigned kPrSchedCore = 62;   // of prctl; Debian 12's C library does not name it

// set_mempolicy_home_node of Linux 5.17, the last call that Linux 6.1 has. The lists above were made with all calls up to it.
// What a later call may do is not known here, so it fails with ENOSYS, as on an older kernel.
constexpr std::uint32_t kLastKnownCall = 450;
constexpr std::uint32_t kUnknownCall = SCMP_ACT_ERRNO(ENOSYS);

constexpr int kCallNumbers = 1024;
const char* names[kCallNumbers];              // by number; filled before the first filter is loaded
bool is_loading = false, is_serving = false;  // which sandboxes were entered
std::string no_domain;                        // why Landlock is missing from them

int number_of(const char* name) {
  const int number = ::seccomp_syscall_resolve_name(name);
  return number >= 0 && number < kCallNumbers ? number : -1;  // -1: this processor or this libseccomp does not have it
}

// The kernel reads 32 bits of a pid or command. A filter that compared 64 bits would miss one with other high bits.
scmp_arg_cmp low_bits_are(unsigned argument, std::uint32_t value) {
  return SCMP_CMP64(argument, SCMP_CMP_MASKED_EQ, 0xffffffffu, value);
}

using FilterProgram = std::vector<sock_filter>;

// Keeps the first error of libseccomp; to_program() returns it.
class Filter {
 public:
  explicit Filter(std::uint32_t otherwise) : context_(::seccomp_init(otherwise)), error_(context_ ? 0 : -ENOMEM) {}
  ~Filter() {
    if (context_) ::seccomp_release(context_);
  }
  Filter(const Filter&) = delete;
  Filter& operator=(const Filter&) = delete;

  void set(scmp_filter_attr attribute, std::uint32_t value) { keep(::seccomp_attr_set(context_, attribute, value)); }
  /// The rule holds when all `conditions` hold. Several rules for one call are alternatives.
  template <typename... Conditions>
  void add(std::uint32_t action, const char* name, Conditions... conditions) {
    if (const int number = number_of(name); number >= 0)
      keep(::seccomp_rule_add(context_, action, number, sizeof...(conditions), conditions...));
  }
  Result<FilterProgram> to_program() {
    const UniqueFd file(::memfd_create("filter", MFD_CLOEXEC));
    if (error_ == 0) keep(file ? ::seccomp_export_bpf(context_, file.get()) : -errno);
    const auto bytes = static_cast<std::size_t>(std::max<off_t>(error_ == 0 ? ::lseek(file.get(), 0, SEEK_END) : 0, 0));
    FilterProgram program(bytes / sizeof(sock_filter));
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

Result<FilterProgram> allow_what_serves(const SandboxProfile& profile) {
  Filter filter(kUnknownCall);
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

// A filter lasts over fork(), and a worker may signal itself: abort() does, by tgkill. So a zygote's filter cannot name the only
// process that may be signaled. It names the one that may not. tgkill takes the id of a process. kill takes the id of any of its
// threads, too, and those ids are not known here: it is forbidden altogether.
void spare_the_supervisor(Filter& filter) {
  const auto supervisor = static_cast<std::uint32_t>(::getppid());
  for (const char* name : {"tgkill", "sched_setscheduler"}) filter.add(SCMP_ACT_TRAP, name, low_bits_are(0, supervisor));
  // Of the caller only, too. But with OMP_PROC_BIND the C library names its new threads by their ids, and it makes no thread if
  // the kernel refuses that. So the call does nothing and returns 0.
  filter.add(SCMP_ACT_ERRNO(0), "sched_setaffinity", SCMP_A0_64(SCMP_CMP_NE, 0));
  // Limits and priorities may be changed only for the caller itself (pid 0). A soft RLIMIT_CPU of 1 s would end the supervisor.
  for (const char* name : {"prlimit64", "sched_setattr", "sched_setparam"})
    filter.add(SCMP_ACT_TRAP, name, SCMP_A0_64(SCMP_CMP_NE, 0));
  filter.add(SCMP_ACT_TRAP, "setpriority", SCMP_A0_64(SCMP_CMP_NE, PRIO_PROCESS));
  filter.add(SCMP_ACT_TRAP, "setpriority", SCMP_A1_64(SCMP_CMP_NE, 0));
  filter.add(SCMP_ACT_TRAP, "prctl", low_bits_are(0, kPrSchedCore));
  // libzmq sets the policy of each of its threads, by the thread's number, to the one that it has.
  const int own_policy = ::sched_getscheduler(0) & ~SCHED_RESET_ON_FORK;
  for (const int policy : kPolicies) {
    if (policy != own_policy)
      filter.add(SCMP_ACT_TRAP, "sched_setscheduler", SCMP_A1_64(SCMP_CMP_MASKED_EQ, 0xff, static_cast<scmp_datum_t>(policy)));
  }
}

// libseccomp has no rule for a range of numbers. `filter` decides about the calls that are known.
FilterProgram refuse_unknown_calls(const FilterProgram& filter) {
  FilterProgram program{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, kLastKnownCall, 0, 1), BPF_STMT(BPF_RET | BPF_K, kUnknownCall)};
  program.insert(program.end(), filter.begin(), filter.end());
  return program;
}

Result<FilterProgram> forbid_leaving() {
  Filter filter(SCMP_ACT_ALLOW);
  filter.set(SCMP_FLTATR_CTL_OPTIMIZE, 2);
  for (const char* name : kForbidden) filter.add(SCMP_ACT_TRAP, name);
  filter.add(SCMP_ACT_TRAP, "socket", SCMP_A0_32(SCMP_CMP_NE, AF_UNIX, 0));
  // A datagram reaches any socket without connect(). AF_UNIX takes SOCK_RAW for SOCK_DGRAM.
  for (const int type : {SOCK_DGRAM, SOCK_RAW})
    filter.add(SCMP_ACT_TRAP, "socket", SCMP_A1_64(SCMP_CMP_MASKED_EQ, kSocketTypes, static_cast<scmp_datum_t>(type)));
  // CLONE_PARENT would make a child of the supervisor.
  for (const unsigned flag :
       {CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET, CLONE_PARENT})
    filter.add(SCMP_ACT_TRAP, "clone", SCMP_A0_32(SCMP_CMP_MASKED_EQ, flag, flag));
  // The flags of these two cannot be seen. The C library then calls clone, and never openat2.
  for (const char* name : {"clone3", "openat2"}) filter.add(SCMP_ACT_ERRNO(ENOSYS), name);
  // Before Linux 6.2, Landlock lets O_TRUNC pass.
  filter.add(SCMP_ACT_TRAP, "open", SCMP_A1_32(SCMP_CMP_MASKED_EQ, O_TRUNC, O_TRUNC));
  filter.add(SCMP_ACT_TRAP, "openat", SCMP_A2_32(SCMP_CMP_MASKED_EQ, O_TRUNC, O_TRUNC));
  for (const unsigned command : kOwnerCommands) filter.add(SCMP_ACT_TRAP, "fcntl", low_bits_are(1, command));
  filter.add(SCMP_ACT_TRAP, "fcntl", low_bits_are(1, F_SETFL), SCMP_A2_64(SCMP_CMP_MASKED_EQ, O_ASYNC, O_ASYNC));
  for (const unsigned command : kOwnerIoctls) filter.add(SCMP_ACT_TRAP, "ioctl", low_bits_are(1, command));
  spare_the_supervisor(filter);
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
  SHOAL_ASSIGN_OR_RETURN(const FilterProgram leaving, forbid_leaving());
  made.leaving = refuse_unknown_calls(leaving);
  SHOAL_ASSIGN_OR_RETURN(made.writing, forbid_writing({}));
  SHOAL_ASSIGN_OR_RETURN(made.serving, allow_what_serves({}));
  SHOAL_ASSIGN_OR_RETURN(made.self, confine_to_self());
  return made;
}

const Result<Programs>& programs() {
  static const Result<Programs> made = make_programs();
  return made;
}

// SPEC_ALLOW: these processes hold no secrets of others, so the filter need not slow their speculation down. Service managers may
// forbid seccomp(); prctl() loads the filter then, without that flag.
Status load(const FilterProgram& program) {
  const sock_fprog given{static_cast<unsigned short>(program.size()), const_cast<sock_filter*>(program.data())};
  if (::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &given) == 0) return {};
  if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &given) == 0) return {};
  return status_from_errno("load", "the sandbox's filter of system calls", errno);
}

// What Landlock forbids outside the paths that are allowed.
constexpr std::uint64_t kMakeRecords = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_DIR |
                                       LANDLOCK_ACCESS_FS_REMOVE_FILE,
                        kWriteAccess = kMakeRecords | LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                                       LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
                                       LANDLOCK_ACCESS_FS_MAKE_SYM | LANDLOCK_ACCESS_FS_MAKE_SOCK;

void allow_below(int ruleset, const char* path, std::uint64_t access) {
  const UniqueFd place(::open(path, O_PATH | O_CLOEXEC));
  const landlock_path_beneath_attr rule{.allowed_access = access, .parent_fd = place.get()};
  if (place) (void)::syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
}

// A second protection, if the kernel has Landlock (5.13): a process in a domain writes no file, and binds no socket, by its path
// but those named here. It cannot read or write the memory of a process outside it (/proc/PID/mem), nor, from 6.12 on, send it a
// signal by any means. Without Landlock only the filters protect. Returns why there is none in a kernel that has it.
std::string enter_domain(const std::string& writable, const std::string& sockets, const std::vector<std::string>& device_nodes) {
  struct {
    std::uint64_t handled_access_fs, handled_access_net, scoped;
  } rules{};
  constexpr std::uint64_t kScopeSignals = 1u << 1;  // Debian 12's headers are older than scopes
  constexpr long kHasScopes = 6;
  const long version = ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  rules.handled_access_fs = kWriteAccess;
  if (version >= kHasScopes) rules.scoped = kScopeSignals;
  const UniqueFd ruleset(static_cast<int>(::syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0)));
  if (!ruleset) return errno == ENOSYS || errno == EOPNOTSUPP ? "" : format("no Landlock: {}", std::strerror(errno));
  allow_below(ruleset.get(), "/dev/null", LANDLOCK_ACCESS_FS_WRITE_FILE);
  if (!writable.empty()) allow_below(ruleset.get(), writable.c_str(), kMakeRecords);
  if (!sockets.empty()) allow_below(ruleset.get(), sockets.c_str(), LANDLOCK_ACCESS_FS_MAKE_SOCK);
  for (const std::string& node : device_nodes) allow_below(ruleset.get(), node.c_str(), LANDLOCK_ACCESS_FS_WRITE_FILE);
  return ::syscall(SYS_landlock_restrict_self, ruleset.get(), 0) == 0 ? "" : format("no Landlock: {}", std::strerror(errno));
}

/// Why there can be no sandbox; empty if there can.
std::string why_no_sandbox() {
#ifdef SHOAL_NO_SANDBOX
  return SHOAL_NO_SANDBOX;
#endif
  const char* wish = std::getenv("SHOAL_SANDBOX");
  return wish && std::string_view(wish) == "off" ? "SHOAL_SANDBOX=off" : "";
}

}  // namespace

const char* forbidden_call_name(int number) { return number >= 0 && number < kCallNumbers ? names[number] : nullptr; }

Result<std::string> enter_loading_sandbox(const std::string& writable, const std::string& sockets,
                                          const std::vector<std::string>& device_nodes) {
  if (const std::string why_not = why_no_sandbox(); !why_not.empty()) return "no sandbox: " + why_not;
  if (is_loading) return no_domain;
  SHOAL_RETURN_IF_ERROR(programs().status());
  for (const auto calls : {std::span<const char* const>(kForbidden), {kChangingFiles}, {kConditional}}) {
    for (const char* name : calls) {
      if (const int number = number_of(name); number >= 0) names[number] = name;
    }
  }
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return status_from_errno("give up", "new privileges", errno);
  no_domain = enter_domain(writable, sockets, device_nodes);
  SHOAL_RETURN_IF_ERROR(load(programs()->leaving));
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
  SHOAL_RETURN_IF_ERROR(load(writing));
  SHOAL_RETURN_IF_ERROR(load(serving));
  is_serving = true;
  return missing;
}

Status enter_worker_sandbox() {
  if (!is_serving) return {};
  FilterProgram program = programs()->self;
  for (sock_filter& line : program) {
    if (line.k == kSelf) line.k = static_cast<std::uint32_t>(::getpid());
  }
  return load(program);
}

}  // namespace shoal::worker

#include "shm/sandbox/sandbox_parts.hpp"

#include <fcntl.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "shm/base/errors.hpp"
#include "shm/base/unique_fd.hpp"

namespace shoal::sandbox {
namespace {

static_assert(kUnknownCall == SCMP_ACT_ERRNO(ENOSYS));

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
constexpr const char* kConditional[] = {"clone",       "fcntl",         "ioctl",          "open",
                                        "openat",      "prctl",         "prlimit64",      "sched_setattr",
                                        "sched_setparam", "sched_setscheduler", "setpriority", "socket", "tgkill"};
// clang-format on
// These make the kernel signal a process that the caller chooses, or let the caller delay a process that opens a file.
constexpr unsigned kOwnerCommands[] = {F_SETOWN, F_SETOWN_EX, F_SETSIG, F_SETLEASE, F_NOTIFY};
// These do so, too, or type into the daemon's terminal, where ^C is a signal.
constexpr unsigned kOwnerIoctls[] = {FIOASYNC, FIOSETOWN, SIOCSPGRP, TIOCSPGRP, TIOCSCTTY,  TIOCNOTTY,
                                     TIOCSTI,  TIOCLINUX, TIOCCONS,  TIOCSETD,  TIOCSWINSZ, TIOCVHANGUP};
constexpr int kPolicies[] = {SCHED_FIFO, SCHED_RR, SCHED_BATCH, SCHED_IDLE, 6 /* SCHED_DEADLINE */, 7 /* SCHED_EXT */};
constexpr unsigned kSocketTypes = 0xf;  // the kernel's SOCK_TYPE_MASK; the other bits are SOCK_CLOEXEC and SOCK_NONBLOCK
constexpr unsigned kPrSchedCore = 62;   // of prctl; Debian 12's C library does not name it

// set_mempolicy_home_node of Linux 5.17, the last call that Linux 6.1 has. The lists of calls were made with all calls up to it.
constexpr std::uint32_t kLastKnownCall = 450;

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

void forbid_sockets(Filter& filter, bool has_network) {
  if (!has_network) {
    filter.add(SCMP_ACT_TRAP, "socket", SCMP_A0_32(SCMP_CMP_NE, AF_UNIX, 0));
    // A datagram reaches any socket without connect(). AF_UNIX takes SOCK_RAW for SOCK_DGRAM.
    for (const int type : {SOCK_DGRAM, SOCK_RAW})
      filter.add(SCMP_ACT_TRAP, "socket", SCMP_A1_64(SCMP_CMP_MASKED_EQ, kSocketTypes, static_cast<scmp_datum_t>(type)));
    return;
  }
  // The numbers of families are small. Those between the allowed ones are named one by one.
  for (int family = 0; family < AF_NETLINK; ++family) {
    if (family != AF_UNIX && family != AF_INET && family != AF_INET6)
      filter.add(SCMP_ACT_TRAP, "socket", SCMP_A0_32(SCMP_CMP_EQ, static_cast<std::uint32_t>(family), 0));
  }
  filter.add(SCMP_ACT_TRAP, "socket", SCMP_A0_32(SCMP_CMP_GT, AF_NETLINK, 0));
}

// libseccomp has no rule for a range of numbers. `filter` decides about the calls that are known.
FilterProgram refuse_unknown_calls(const FilterProgram& filter) {
  FilterProgram program{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, kLastKnownCall, 0, 1), BPF_STMT(BPF_RET | BPF_K, kUnknownCall)};
  program.insert(program.end(), filter.begin(), filter.end());
  return program;
}

constexpr std::uint64_t kTruncate = std::uint64_t{1} << 14;  // Debian 12's headers are older
// A rule for a file must grant no others.
constexpr std::uint64_t kRightsToFiles =
    LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_READ_FILE | kTruncate;

// The rights that Landlock's first versions do not know.
std::uint64_t known_rights(std::uint64_t rights, long version) {
  if (version < 2) rights &= ~std::uint64_t{LANDLOCK_ACCESS_FS_REFER};
  if (version < 3) rights &= ~kTruncate;
  return rights;
}

}  // namespace

std::string why_none() {
#ifdef SHOAL_NO_SANDBOX
  return SHOAL_NO_SANDBOX;
#endif
  const char* wish = std::getenv("SHOAL_SANDBOX");
  return wish && std::string_view(wish) == "off" ? "SHOAL_SANDBOX=off" : "";
}

int call_number(const char* name) {
  const int number = ::seccomp_syscall_resolve_name(name);
  return number >= 0 && number < kCallNumbers ? number : -1;
}

std::span<const char* const> forbidden_calls() { return kForbidden; }
std::span<const char* const> conditional_calls() { return kConditional; }

Result<FilterProgram> Filter::to_program() {
  const UniqueFd file(::memfd_create("filter", MFD_CLOEXEC));
  if (error_ == 0) keep(file ? ::seccomp_export_bpf(context_, file.get()) : -errno);
  const auto bytes = static_cast<std::size_t>(std::max<off_t>(error_ == 0 ? ::lseek(file.get(), 0, SEEK_END) : 0, 0));
  FilterProgram program(bytes / sizeof(sock_filter));
  if (error_ == 0 && ::pread(file.get(), program.data(), bytes, 0) != static_cast<ssize_t>(bytes)) keep(-EIO);
  if (error_ != 0) return status_from_errno("make", "the sandbox's filter of system calls", -error_);
  return program;
}

Result<FilterProgram> forbid_leaving(const Leave& leave) {
  Filter filter(SCMP_ACT_ALLOW);
  filter.set(SCMP_FLTATR_CTL_OPTIMIZE, 2);
  const auto may_pass = [&](std::string_view name) { return std::ranges::count(leave.calls, name) > 0; };
  for (const char* name : kForbidden) {
    if (!may_pass(name)) filter.add(SCMP_ACT_TRAP, name);
  }
  forbid_sockets(filter, leave.network);
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
  SHOAL_ASSIGN_OR_RETURN(const FilterProgram program, filter.to_program());
  return refuse_unknown_calls(program);
}

// SPEC_ALLOW: these processes hold no secrets of others, so the filter need not slow their speculation down. Service managers may
// forbid seccomp(); prctl() loads the filter then, without that flag.
Status load(const FilterProgram& program) {
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return status_from_errno("give up", "new privileges", errno);
  const sock_fprog given{static_cast<unsigned short>(program.size()), const_cast<sock_filter*>(program.data())};
  if (::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &given) == 0) return {};
  if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &given) == 0) return {};
  return status_from_errno("load", "the sandbox's filter of system calls", errno);
}

std::string enter_domain(std::uint64_t handled, std::span<const PathRights> allowed) {
  struct {
    std::uint64_t handled_access_fs, handled_access_net, scoped;
  } rules{};
  constexpr std::uint64_t kScopeSignals = 1u << 1;  // Debian 12's headers are older than scopes
  constexpr long kHasScopes = 6;
  const auto why_not = [] {
    return errno == ENOSYS || errno == EOPNOTSUPP ? std::string() : format("no Landlock: {}", std::strerror(errno));
  };
  const long version = ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  rules.handled_access_fs = known_rights(handled, version);
  if (version >= kHasScopes) rules.scoped = kScopeSignals;
  const UniqueFd ruleset(static_cast<int>(::syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0)));
  if (!ruleset) return why_not();
  for (const PathRights& each : allowed) {
    const UniqueFd place(::open(each.path.c_str(), O_PATH | O_CLOEXEC));
    struct stat info {};
    const bool is_directory = place && ::fstat(place.get(), &info) == 0 && S_ISDIR(info.st_mode);
    const std::uint64_t rights = known_rights(is_directory ? each.rights : each.rights & kRightsToFiles, version);
    const landlock_path_beneath_attr rule{.allowed_access = rights, .parent_fd = place.get()};
    if (place) (void)::syscall(SYS_landlock_add_rule, ruleset.get(), LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
  }
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return format("no Landlock: {}", std::strerror(errno));
  return ::syscall(SYS_landlock_restrict_self, ruleset.get(), 0) == 0 ? "" : format("no Landlock: {}", std::strerror(errno));
}

}  // namespace shoal::sandbox

// What sandboxes are made of: filters of system calls (seccomp) and rules for paths (Landlock). Neither needs privileges, and
// both last until the process ends, also over fork() and exec().
#pragma once

#include <linux/filter.h>
#include <seccomp.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shoal/result.hpp"

namespace shoal::sandbox {

/// Why this process can have no sandbox: a build with a sanitizer, or SHOAL_SANDBOX=off. Empty if it can.
std::string why_none();

using FilterProgram = std::vector<sock_filter>;

/// The answer to a system call that is newer than Linux 6.1: it may do anything, so it fails as on an older kernel.
inline constexpr std::uint32_t kUnknownCall = SCMP_ACT_ERRNO(38 /* ENOSYS */);

/// The number of a system call; -1 if this processor or this libseccomp does not have it.
inline constexpr int kCallNumbers = 1024;
int call_number(const char* name);

/// Holds when the low 32 bits of an argument are `value`. The kernel reads 32 bits of a pid or command. A filter that compared 64
/// bits would miss one with other high bits.
inline scmp_arg_cmp low_bits_are(unsigned argument, std::uint32_t value) {
  return SCMP_CMP64(argument, SCMP_CMP_MASKED_EQ, 0xffffffffu, value);
}

/// Rules for system calls. Keeps the first error of libseccomp; to_program() returns it.
class Filter {
 public:
  /// `otherwise` is the action for calls without a rule.
  explicit Filter(std::uint32_t otherwise) : context_(::seccomp_init(otherwise)), error_(context_ ? 0 : -12 /* ENOMEM */) {}
  ~Filter() {
    if (context_) ::seccomp_release(context_);
  }
  Filter(const Filter&) = delete;
  Filter& operator=(const Filter&) = delete;

  void set(scmp_filter_attr attribute, std::uint32_t value) { keep(::seccomp_attr_set(context_, attribute, value)); }
  /// The rule holds when all `conditions` hold. Several rules for one call are alternatives.
  template <typename... Conditions>
  void add(std::uint32_t action, const char* name, Conditions... conditions) {
    if (const int number = call_number(name); number >= 0)
      keep(::seccomp_rule_add(context_, action, number, sizeof...(conditions), conditions...));
  }
  Result<FilterProgram> to_program();

 private:
  void keep(int result) {
    if (error_ == 0) error_ = result;
  }
  scmp_filter_ctx context_;
  int error_;
};

/// What forbid_leaving() lets pass.
struct Leave {
  std::vector<const char*> calls = {};  ///< of forbidden_calls()
  /// TCP and UDP, and the sockets that name services and the list of network interfaces need. Otherwise a socket is a local one
  /// that sends no datagrams.
  bool network = false;
};

/// Only an intruder makes these calls in a process that reads what strangers wrote.
std::span<const char* const> forbidden_calls();
/// Calls that forbid_leaving() forbids with some arguments.
std::span<const char* const> conditional_calls();

/// Ends the process, and all that it forks, with SIGSYS when it makes a call of forbidden_calls() or a socket that `leave` does
/// not allow, enters a namespace, truncates a file by its path, or signals, delays or limits its parent in any way. Calls that
/// are newer than Linux 6.1 fail with ENOSYS.
Result<FilterProgram> forbid_leaving(const Leave& leave = {});

/// From now on the kernel asks this filter, too, and takes the strictest answer of all. Sets PR_SET_NO_NEW_PRIVS.
Status load(const FilterProgram& program);

/// Rights to files, as LANDLOCK_ACCESS_FS_* has them, below a path.
struct PathRights {
  std::string path;  ///< a directory or a file; if it does not exist, the rule does nothing
  std::uint64_t rights = 0;
};
/// If the kernel has Landlock (5.13): this process has no right of `handled` but where `allowed` grants it, cannot reach the
/// memory of a process outside (/proc/PID/mem), nor, from Linux 6.12 on, send it a signal by any means.
///   Returns  empty, or why there is no domain in a kernel that has Landlock: "no Landlock: ..."
std::string enter_domain(std::uint64_t handled, std::span<const PathRights> allowed);

}  // namespace shoal::sandbox

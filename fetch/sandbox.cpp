#include "fetch/sandbox.hpp"

#include <linux/landlock.h>
#include <sched.h>
#include <sys/resource.h>

#include <cerrno>

#include "shm/base/errors.hpp"
#include "shm/sandbox/sandbox_parts.hpp"

namespace shoal::fetch {
namespace {

constexpr std::uint64_t kRead = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
constexpr std::uint64_t kWrite = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_DIR |
                                 LANDLOCK_ACCESS_FS_MAKE_SYM | LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
                                 LANDLOCK_ACCESS_FS_REFER;
constexpr std::uint64_t kNever = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_BLOCK |
                                 LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_SOCK;
// Certificates, resolv.conf, hosts, libraries of name services, the sockets of their daemons, the number of this boot.
constexpr const char* kReadable[] = {
    "/etc", "/usr", "/lib", "/lib64", "/run", "/var/lib/ca-certificates", "/proc/sys/kernel/random", "/etc/resolv.conf"};
// A list of a server takes most: one of 8 MiB, as objects. Beyond it, allocations fail.
constexpr rlim_t kMostMemoryBytes = rlim_t{512} << 20;

}  // namespace

Status enter_sandbox(const std::filesystem::path& writable, const std::vector<std::filesystem::path>& readable) {
  if (!sandbox::why_none().empty()) return {};
  std::vector<sandbox::PathRights> allowed{{"/dev/null", kRead | LANDLOCK_ACCESS_FS_WRITE_FILE}};
  if (!writable.empty()) allowed.push_back({writable.string(), kRead | kWrite});
  for (const char* const path : kReadable) allowed.push_back({path, kRead});
  for (const auto& path : readable) allowed.push_back({path.string(), kRead});
  rlimit memory{kMostMemoryBytes, kMostMemoryBytes};
  if (rlimit now{}; ::getrlimit(RLIMIT_DATA, &now) == 0 && now.rlim_max < memory.rlim_max) memory = now;
  if (::setrlimit(RLIMIT_DATA, &memory) != 0) return status_from_errno("limit", "the memory of this process", errno);
  // Filters protect even without Landlock, as in zygotes.
  (void)sandbox::enter_domain(kRead | kWrite | kNever, allowed);
  SHOAL_ASSIGN_OR_RETURN(
      const auto leaving,
      sandbox::forbid_leaving({.calls = {"connect", "link", "linkat", "symlink", "symlinkat", "socketpair"}, .network = true}));
  SHOAL_RETURN_IF_ERROR(sandbox::load(leaving));
  sandbox::Filter no_children(SCMP_ACT_ALLOW);  // threads look up names
  no_children.add(SCMP_ACT_TRAP, "clone", SCMP_A0_32(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0));
  for (const char* const name : {"listen", "pidfd_open"}) no_children.add(SCMP_ACT_TRAP, name);
  SHOAL_ASSIGN_OR_RETURN(const auto program, no_children.to_program());
  return sandbox::load(program);
}

}  // namespace shoal::fetch

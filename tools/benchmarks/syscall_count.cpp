#include "tools/benchmarks/syscall_count.hpp"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "shm/base/errors.hpp"

namespace shoal::bench {

Result<SyscallCount> SyscallCount::of(pid_t process) {
  constexpr char kTracepoint[] = "/sys/kernel/tracing/events/raw_syscalls/sys_enter/id";
  perf_event_attr what{};
  what.type = PERF_TYPE_TRACEPOINT;
  what.size = sizeof what;
  what.inherit = 1;
  if (!(std::ifstream(kTracepoint) >> what.config))
    return failed_precondition("count system calls: cannot read {}: mount tracefs there, and run as root", kTracepoint);
  SyscallCount count;
  std::error_code error;
  for (std::filesystem::directory_iterator each("/proc/" + std::to_string(process) + "/task", error), end; !error && each != end;
       each.increment(error)) {
    const pid_t thread = std::atoi(each->path().filename().c_str());
    count.threads_.emplace_back(static_cast<int>(::syscall(SYS_perf_event_open, &what, thread, -1, -1, PERF_FLAG_FD_CLOEXEC)));
    if (!count.threads_.back() && errno != ESRCH)
      return failed_precondition("count system calls of process {}: {}: run as root, or lower kernel.perf_event_paranoid",
                                 process, status_from_errno("open", "a counter", errno).message());
  }
  if (count.threads_.empty()) return not_found("count system calls: there is no process {}", process);
  return count;
}

std::uint64_t SyscallCount::value() const {
  std::uint64_t sum = 0, each = 0;
  for (const UniqueFd& thread : threads_) {
    if (thread && ::read(thread.get(), &each, sizeof each) == sizeof each) sum += each;
  }
  return sum;
}

}  // namespace shoal::bench

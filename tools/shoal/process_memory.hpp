// The memory of a process, as the kernel counts it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace shoal::tool {

/// Sums of /proc/PID/smaps_rollup.
struct ProcessMemory {
  std::uint64_t rss_bytes = 0;
  std::uint64_t pss_bytes = 0;      ///< each page divided by the number of processes that map it
  std::uint64_t private_bytes = 0;  ///< clean and dirty
  std::uint64_t shared_bytes = 0;   ///< clean and dirty
};

/// Nothing if the process is gone or belongs to another user.
std::optional<ProcessMemory> read_process_memory(pid_t pid);
/// Parses the text of an smaps_rollup file.
ProcessMemory parse_smaps_rollup(std::string_view text);

}  // namespace shoal::tool

// What a process costs, as the kernel counts it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace shoal::tool {

/// Sums of /proc/PID/smaps_rollup.
struct ProcessMemory {
  std::uint64_t rss_bytes = 0;
  std::uint64_t pss_bytes = 0;      ///< each page divided by the number of processes that have it mapped
  std::uint64_t private_bytes = 0;  ///< clean and dirty
  std::uint64_t shared_bytes = 0;   ///< clean and dirty
};

/// Nothing when the process is gone or belongs to somebody else.
std::optional<ProcessMemory> read_process_memory(pid_t pid);
/// The text of an smaps_rollup file.
ProcessMemory parse_smaps_rollup(std::string_view text);

}  // namespace shoal::tool

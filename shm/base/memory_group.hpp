// The memory cgroup of this process (version 2 or 1), and how much memory the cgroup and the machine have left.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace shoal {

/// Reads the number of `wanted` from a file of lines "key number ...". Nothing if there is no such file or line.
std::optional<std::uint64_t> read_key(const std::filesystem::path& file, const std::string& wanted);

/// A directory that may be that of our cgroup. Readers try its files to find out.
struct MemoryGroup {
  std::filesystem::path directory;
  bool is_version_1 = false;
};
/// Candidates, the likeliest first.
///   root  the directory that holds proc/ and sys/
std::vector<MemoryGroup> memory_groups(const std::filesystem::path& root = "/");

/// The memory that can be allocated before the kernel kills a process: the least of MemAvailable in /proc/meminfo and what the
/// limits of our cgroup and its parents leave. Inactive file pages count as free. The largest number if nothing can be read.
std::uint64_t available_memory_bytes(const std::filesystem::path& root = "/");

}  // namespace shoal

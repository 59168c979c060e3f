// The memory cgroup of this process, version 2 or 1, and how much memory it and the machine have left.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace shoal::supervisor {

/// Of a file of lines "key number", and whatever follows; nothing when it is not there or has no such line.
std::optional<std::uint64_t> read_key(const std::filesystem::path& file, const std::string& wanted);

/// A directory that may be that of our group. Which ones there are is found out by reading their files.
struct MemoryGroup {
  std::filesystem::path directory;
  bool is_version_1 = false;
};
/// The likeliest first. `root` is what /proc and /sys lie under.
std::vector<MemoryGroup> memory_groups(const std::filesystem::path& root = "/");

/// What can be had without anybody being killed for it: MemAvailable of /proc/meminfo, or what the limits of our group and of
/// those around it leave, file pages that nobody needs counted as free. The largest number when nothing can be read.
std::uint64_t available_memory_bytes(const std::filesystem::path& root = "/");

}  // namespace shoal::supervisor

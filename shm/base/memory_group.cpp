#include "shm/base/memory_group.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

namespace shoal {
namespace {

namespace fs = std::filesystem;
constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

// Returns nothing if there is no such file, or if it contains "max".
std::optional<std::uint64_t> read_number(const fs::path& file) {
  std::ifstream stream(file);
  std::uint64_t number = 0;
  return stream >> number ? std::optional(number) : std::nullopt;
}

std::uint64_t left_in(const MemoryGroup& group) {
  const bool is_1 = group.is_version_1;
  const auto limit = read_number(group.directory / (is_1 ? "memory.limit_in_bytes" : "memory.max"));
  const auto used = read_number(group.directory / (is_1 ? "memory.usage_in_bytes" : "memory.current"));
  if (!limit || !used) return kNoLimit;
  const std::uint64_t reclaimed =
      read_key(group.directory / "memory.stat", is_1 ? "total_inactive_file" : "inactive_file").value_or(0);
  const std::uint64_t needed = *used - std::min(*used, reclaimed);
  return *limit - std::min(*limit, needed);
}

}  // namespace

std::optional<std::uint64_t> read_key(const fs::path& file, const std::string& wanted) {
  std::ifstream stream(file);
  for (std::string key; stream >> key; stream.ignore(std::numeric_limits<std::streamsize>::max(), '\n')) {
    if (std::uint64_t number = 0; key == wanted && stream >> number) return number;
  }
  return std::nullopt;
}

// In a container, the root of the mount may be our cgroup itself, even if /proc names another path.
std::vector<MemoryGroup> memory_groups(const fs::path& root) {
  std::vector<MemoryGroup> groups;
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "4:memory:/path", "0::/path"
    std::istringstream fields(line);
    std::string number, controllers, path;
    if (!std::getline(fields, number, ':') || !std::getline(fields, controllers, ':') || !std::getline(fields, path)) continue;
    const fs::path inside = fs::path(path).relative_path();
    const fs::path mounted = root / "sys/fs/cgroup";
    if (controllers.empty()) {
      for (const fs::path& at : {mounted / inside, mounted, mounted / "unified" / inside}) groups.push_back({at, false});
    } else if (controllers == "memory") {
      for (const fs::path& at : {mounted / "memory" / inside, mounted / "memory"}) groups.push_back({at, true});
    }
  }
  return groups;
}

std::uint64_t available_memory_bytes(const fs::path& root) {
  const auto kib = read_key(root / "proc/meminfo", "MemAvailable:");
  std::uint64_t available = kib ? *kib * 1024 : kNoLimit;
  for (MemoryGroup group : memory_groups(root)) {
    for (; group.directory != root / "sys/fs" && group.directory.has_relative_path();
         group.directory = group.directory.parent_path())
      available = std::min(available, left_in(group));
  }
  return available;
}

}  // namespace shoal

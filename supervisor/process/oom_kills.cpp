#include "supervisor/process/oom_kills.hpp"

#include <algorithm>
#include <vector>

#include "shm/base/memory_group.hpp"

namespace shoal::supervisor {
namespace {

namespace fs = std::filesystem;

std::optional<std::uint64_t> read_count(const fs::path& file) { return read_key(file, "oom_kill"); }

std::vector<fs::path> candidates(const fs::path& root) {
  std::vector<fs::path> files;
  for (const MemoryGroup& group : memory_groups(root))
    files.push_back(group.directory / (group.is_version_1 ? "memory.oom_control" : "memory.events"));
  files.push_back(root / "proc/vmstat");
  return files;
}

}  // namespace

OomKills::OomKills(fs::path root) {
  const auto files = candidates(root);
  const auto found = std::ranges::find_if(files, [](const fs::path& file) { return read_count(file).has_value(); });
  if (found != files.end()) file_ = *found;
  older_ = newer_ = read().value_or(0);
}

std::optional<std::uint64_t> OomKills::read() const { return file_.empty() ? std::nullopt : read_count(file_); }

void OomKills::count(std::uint64_t now_ns) {
  if (now_ns < counted_ns_ + kRecentNs) return;
  counted_ns_ = now_ns;
  older_ = std::max(older_, newer_);  // take_recent() may have counted on
  newer_ = read().value_or(newer_);
}

bool OomKills::take_recent(std::uint64_t now_ns) {
  if (now_ns >= counted_ns_ + 2 * kRecentNs) older_ = std::max(older_, newer_);
  if (read().value_or(0) <= older_) return false;
  ++older_;
  return true;
}

}  // namespace shoal::supervisor

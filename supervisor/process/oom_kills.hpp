// Whether the kernel has killed a process for memory lately.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace shoal::supervisor {

/// Reads the count of OOM kills: of this process's memory cgroup (version 2 or 1), else of the machine.
/// A kill is told from others of before by its time: count() is called now and then while nothing happens.
///   Threads  thread-bound
class OomKills {
 public:
  static constexpr std::uint64_t kRecentNs = 1'000'000'000;

  /// `root` is what /proc and /sys lie under.
  explicit OomKills(std::filesystem::path root = "/");

  /// Remembers how many there were by now; cheap when the last call was less than kRecentNs ago.
  void count(std::uint64_t now_ns);
  /// True once for each kill that was counted within the last two kRecentNs, or not at all yet.
  bool take_recent(std::uint64_t now_ns);
  /// Where the count is read; empty when nowhere.
  const std::filesystem::path& file() const { return file_; }

 private:
  std::optional<std::uint64_t> read() const;
  std::filesystem::path file_;
  std::uint64_t older_ = 0, newer_ = 0;  // what is known to be older than the last call of count(), and as of it
  std::uint64_t counted_ns_ = 0;
};

}  // namespace shoal::supervisor

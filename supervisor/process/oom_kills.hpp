// Whether the kernel has killed a process for memory recently.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace shoal::supervisor {

/// Reads the number of OOM kills of this process's memory cgroup (version 2 or 1), or of the machine if the cgroup has none.
/// Older kills must not be mistaken for a new one. So count() is also called from time to time while nothing happens, to remember
/// the current number.
///   Threads  thread-bound
class OomKills {
 public:
  static constexpr std::uint64_t kRecentNs = 1'000'000'000;

  ///   root  the directory that holds proc/ and sys/
  explicit OomKills(std::filesystem::path root = "/");

  /// Remembers the current number. Does nothing if the last call was less than kRecentNs ago.
  void count(std::uint64_t now_ns);
  /// Returns true once per kill. A kill counts as new if it happened less than 2 * kRecentNs ago or was never counted.
  bool take_recent(std::uint64_t now_ns);
  /// The file with the number; empty if there is none.
  const std::filesystem::path& file() const { return file_; }

 private:
  std::optional<std::uint64_t> read() const;
  std::filesystem::path file_;
  std::uint64_t older_ = 0, newer_ = 0;  // the numbers at the last two calls of count()
  std::uint64_t counted_ns_ = 0;
};

}  // namespace shoal::supervisor

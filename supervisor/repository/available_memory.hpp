// How much memory is left, for all versions that wait for some.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "shm/base/memory_group.hpp"

namespace shoal::supervisor {

/// Reading it takes some files of /proc and of the cgroups. So all who wait look at the same times, and each time it is read
/// once.
///   Threads  thread-bound
class AvailableMemory {
 public:
  static constexpr std::uint64_t kLookAgainNs = 100'000'000;

  explicit AvailableMemory(std::function<std::uint64_t()> read = [] { return available_memory_bytes(); })
      : read_(std::move(read)) {}

  /// In bytes; read again when the time has changed.
  std::uint64_t bytes(std::uint64_t now_ns) {
    if (now_ns != read_ns_) bytes_ = read_();
    read_ns_ = now_ns;
    return bytes_;
  }
  /// When to look again: at most kLookAgainNs later.
  static std::uint64_t next_look_ns(std::uint64_t now_ns) { return (now_ns / kLookAgainNs + 1) * kLookAgainNs; }

 private:
  std::function<std::uint64_t()> read_;
  std::optional<std::uint64_t> read_ns_;
  std::uint64_t bytes_ = 0;
};

}  // namespace shoal::supervisor

// Deadlines of many requests: a wheel of buckets, so that adding and removing a deadline is O(1).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "supervisor/route/slot_list.hpp"

namespace shoal::supervisor {

/// Fires at most kTickNs late. A deadline that is more than one turn away is checked once per turn.
///   Threads  thread-compatible
class DeadlineWheel {
 public:
  static constexpr std::uint64_t kTickNs = 4'000'000;
  static constexpr std::size_t kBuckets = 512;

  void add(std::uint32_t slot, std::uint64_t deadline_ns);
  void remove(std::uint32_t slot);  ///< nothing happens if it was never added
  /// Clears `due` and moves the due slots from the wheel into it.
  void advance(std::uint64_t now_ns, std::vector<std::uint32_t>& due);
  /// The next time at which calling advance() is useful; nullopt when the wheel is empty.
  std::optional<std::uint64_t> next_ns(std::uint64_t now_ns) const;
  std::size_t size() const { return size_; }

 private:
  static std::size_t bucket_of(std::uint64_t time_ns) { return static_cast<std::size_t>(time_ns / kTickNs % kBuckets); }

  std::array<SlotList, kBuckets> buckets_;
  SlotLinkTable links_;
  std::vector<std::uint64_t> deadlines_;  // by slot; 0 = not in the wheel
  std::uint64_t last_tick_ = 0;
  std::size_t size_ = 0;
};

}  // namespace shoal::supervisor

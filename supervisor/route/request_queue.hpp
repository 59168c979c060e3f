// The requests of one model that wait for a lane: highest priority first, then arrival.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "supervisor/route/slot_list.hpp"

namespace shoal::supervisor {

/// One list per priority and a bitmap of those that hold something: O(1), whatever strangers ask for.
///   Threads  thread-compatible
class RequestQueue {
 public:
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  void push_back(SlotLinkTable& table, std::uint32_t slot, std::int8_t priority) { added(priority).push_back(table, slot); }
  /// Before all others of its priority: for what a dead worker held.
  void push_front(SlotLinkTable& table, std::uint32_t slot, std::int8_t priority) { added(priority).push_front(table, slot); }
  void remove(SlotLinkTable& table, std::uint32_t slot, std::int8_t priority) {
    const std::size_t level = level_of(priority);
    lists_[level].remove(table, slot);
    if (lists_[level].empty()) occupied_[level / 64] &= ~(std::uint64_t{1} << level % 64);
    --size_;
  }
  /// The next to run; kNoSlot when empty.
  std::uint32_t front() const {
    for (std::size_t word = 0; word < occupied_.size(); ++word) {
      if (occupied_[word]) return lists_[word * 64 + static_cast<std::size_t>(std::countr_zero(occupied_[word]))].front();
    }
    return kNoSlot;
  }

 private:
  static std::size_t level_of(std::int8_t priority) { return static_cast<std::size_t>(127 - priority); }
  SlotList& added(std::int8_t priority) {
    const std::size_t level = level_of(priority);
    occupied_[level / 64] |= std::uint64_t{1} << level % 64;
    ++size_;
    return lists_[level];
  }

  std::array<SlotList, 256> lists_;
  std::array<std::uint64_t, 4> occupied_{};  // bit = level: 0 is priority 127
  std::size_t size_ = 0;
};

}  // namespace shoal::supervisor

// Doubly linked lists of slot numbers, linked through one table. Nothing is allocated, and every operation is O(1).
#pragma once

#include <cstdint>
#include <vector>

namespace shoal::supervisor {

inline constexpr std::uint32_t kNoSlot = 0xffffffff;

struct SlotLinks {
  std::uint32_t previous = kNoSlot, next = kNoSlot;
};
using SlotLinkTable = std::vector<SlotLinks>;

/// A list of slots. A slot is in at most one list of a table at a time.
///   Threads  thread-compatible
class SlotList {
 public:
  bool empty() const { return head_ == kNoSlot; }
  std::uint32_t front() const { return head_; }
  std::uint32_t back() const { return tail_; }

  void push_back(SlotLinkTable& table, std::uint32_t slot) { link(table, tail_, slot, kNoSlot); }
  void push_front(SlotLinkTable& table, std::uint32_t slot) { link(table, kNoSlot, slot, head_); }

  void remove(SlotLinkTable& table, std::uint32_t slot) {
    const SlotLinks links = table[slot];
    (links.previous == kNoSlot ? head_ : table[links.previous].next) = links.next;
    (links.next == kNoSlot ? tail_ : table[links.next].previous) = links.previous;
    table[slot] = {};
  }

 private:
  void link(SlotLinkTable& table, std::uint32_t previous, std::uint32_t slot, std::uint32_t next) {
    table[slot] = {previous, next};
    (previous == kNoSlot ? head_ : table[previous].next) = slot;
    (next == kNoSlot ? tail_ : table[next].previous) = slot;
  }

  std::uint32_t head_ = kNoSlot, tail_ = kNoSlot;
};

}  // namespace shoal::supervisor

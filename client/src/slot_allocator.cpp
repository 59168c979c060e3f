#include "client/src/slot_allocator.hpp"

#include <algorithm>

#include "shm/base/check.hpp"
#include "shm/base/ranges.hpp"
#include "shm/wire/messages.hpp"

namespace shoal::client {

SlotAllocator::SlotAllocator(std::uint64_t arena_bytes) : free_bytes_(arena_bytes & ~(wire::kSlotAlignment - 1)) {
  if (free_bytes_ > 0) free_.push_back({0, free_bytes_});
}

std::optional<SlotAllocator::Range> SlotAllocator::allocate(std::uint64_t size_bytes) {
  if (size_bytes > free_bytes_) return std::nullopt;  // also keeps align_up from overflowing
  const std::uint64_t rounded = align_up(std::max<std::uint64_t>(size_bytes, 1), wire::kSlotAlignment);
  const auto found = std::ranges::find_if(free_, [&](const Range& range) { return range.size_bytes >= rounded; });
  if (found == free_.end()) return std::nullopt;
  const Range slot{found->offset, rounded};
  found->offset += rounded;
  found->size_bytes -= rounded;
  if (found->size_bytes == 0) free_.erase(found);
  free_bytes_ -= rounded;
  return slot;
}

void SlotAllocator::free(Range range) {
  const auto next = std::ranges::upper_bound(free_, range.offset, {}, &Range::offset);
  const bool joins_next = next != free_.end() && range.offset + range.size_bytes == next->offset;
  SHOAL_CHECK(next == free_.end() || range.offset + range.size_bytes <= next->offset);
  const auto previous = next == free_.begin() ? free_.end() : std::prev(next);
  const bool joins_previous = previous != free_.end() && previous->offset + previous->size_bytes == range.offset;
  SHOAL_CHECK(previous == free_.end() || previous->offset + previous->size_bytes <= range.offset);

  free_bytes_ += range.size_bytes;
  if (joins_previous && joins_next) {
    previous->size_bytes += range.size_bytes + next->size_bytes;
    free_.erase(next);
  } else if (joins_previous) {
    previous->size_bytes += range.size_bytes;
  } else if (joins_next) {
    next->offset = range.offset;
    next->size_bytes += range.size_bytes;
  } else {
    free_.insert(next, range);
  }
}

}  // namespace shoal::client

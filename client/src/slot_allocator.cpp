#include "client/src/slot_allocator.hpp"

#include <algorithm>

#include "shm/base/check.hpp"
#include "shm/base/ranges.hpp"
#include "shm/wire/messages.hpp"

namespace shoal::client {

void SlotAllocator::extend(std::uint64_t size_bytes) {
  const std::uint64_t rounded = size_bytes & ~(wire::kSlotAlignment - 1);
  if (rounded == 0) return;
  const Range added{size_bytes_, rounded};
  size_bytes_ += rounded;
  add_free(added);
}

std::uint64_t SlotAllocator::tail_bytes() const {
  if (free_.empty() || free_.back().offset + free_.back().size_bytes != size_bytes_) return 0;
  return free_.back().size_bytes;
}

std::uint64_t SlotAllocator::cut(std::uint64_t keep_bytes, std::uint64_t alignment_bytes) {
  const std::uint64_t least = std::max(size_bytes_ - tail_bytes(), std::min(keep_bytes, size_bytes_));
  const std::uint64_t left = std::min(align_up(least, alignment_bytes), size_bytes_);
  const std::uint64_t taken = size_bytes_ - left;
  if (taken == 0) return left;
  free_.back().size_bytes -= taken;
  if (free_.back().size_bytes == 0) free_.pop_back();
  free_bytes_ -= taken;
  size_bytes_ = left;
  return left;
}

std::optional<SlotAllocator::Range> SlotAllocator::allocate(std::uint64_t size_bytes) {
  if (size_bytes > free_bytes_) return std::nullopt;  // also keeps align_up from overflowing
  // Between slots there are at most as many free ranges, one behind them, and one that is being added.
  if (free_.capacity() < slot_count_ + 3) free_.reserve(2 * (slot_count_ + 3));
  const std::uint64_t rounded = align_up(std::max<std::uint64_t>(size_bytes, 1), wire::kSlotAlignment);
  const auto found = std::ranges::find_if(free_, [&](const Range& range) { return range.size_bytes >= rounded; });
  if (found == free_.end()) return std::nullopt;
  const Range slot{found->offset, rounded};
  found->offset += rounded;
  found->size_bytes -= rounded;
  if (found->size_bytes == 0) free_.erase(found);
  free_bytes_ -= rounded;
  ++slot_count_;
  return slot;
}

void SlotAllocator::free(Range range) {
  add_free(range);
  --slot_count_;
}

void SlotAllocator::add_free(Range range) {
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

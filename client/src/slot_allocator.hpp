// SlotAllocator: which ranges of an arena are free. Lives in its owner's heap, never in the arena.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace shoal::client {

/// First fit in the order of offsets, so that few low slots are used again and again and stay in the cache.
/// Every range starts at a multiple of kSlotAlignment; neighbours are joined when they are freed.
///   Threads  thread-bound
class SlotAllocator {
 public:
  explicit SlotAllocator(std::uint64_t arena_bytes);

  struct Range {
    std::uint64_t offset = 0, size_bytes = 0;
  };
  /// At least `size_bytes` (a slot of 0 bytes takes one alignment unit), or nothing when no free range is large enough.
  std::optional<Range> allocate(std::uint64_t size_bytes);
  /// `range` as allocate() gave it. Aborts when any of it is free already.
  void free(Range range);

  std::uint64_t free_bytes() const { return free_bytes_; }
  std::size_t free_range_count() const { return free_.size(); }

 private:
  std::vector<Range> free_;  // by offset, never adjacent; a vector, so that a busy arena allocates nothing in the long run
  std::uint64_t free_bytes_ = 0;
};

}  // namespace shoal::client

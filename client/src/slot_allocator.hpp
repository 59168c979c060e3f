// SlotAllocator: the free ranges of an arena. It is in its owner's heap, never in the arena.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace shoal::client {

/// First fit in the order of offsets, so that a few low slots are used again and again and stay in the cache. Every range starts
/// at a multiple of kSlotAlignment. Adjacent free ranges are joined.
///   Threads  thread-bound
class SlotAllocator {
 public:
  explicit SlotAllocator(std::uint64_t arena_bytes);

  struct Range {
    std::uint64_t offset = 0, size_bytes = 0;
  };
  /// A range of at least `size_bytes`, or nothing if no free range is large enough. A slot of 0 bytes takes one alignment unit.
  std::optional<Range> allocate(std::uint64_t size_bytes);
  /// `range` as allocate() returned it. Aborts if a part of it is free already.
  void free(Range range);

  std::uint64_t free_bytes() const { return free_bytes_; }
  std::size_t free_range_count() const { return free_.size(); }

 private:
  std::vector<Range> free_;  // by offset, never adjacent; a vector, which does not allocate in the long run
  std::uint64_t free_bytes_ = 0;
};

}  // namespace shoal::client

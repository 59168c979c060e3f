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
  explicit SlotAllocator(std::uint64_t arena_bytes = 0) { extend(arena_bytes); }

  struct Range {
    std::uint64_t offset = 0, size_bytes = 0;
  };
  /// A range of at least `size_bytes`, or nothing if no free range is large enough. A slot of 0 bytes takes one alignment unit.
  std::optional<Range> allocate(std::uint64_t size_bytes);
  /// `range` as allocate() returned it. Allocates nothing. Aborts if a part of it is free already.
  void free(Range range);

  /// Adds free bytes at the end. `size_bytes` is rounded down to whole alignment units.
  void extend(std::uint64_t size_bytes);
  /// Takes free bytes away from the end, so that `keep_bytes` are left, or as many more as slots need. Returns how many are left.
  ///   alignment_bytes  a power of two, of which the result is a multiple
  std::uint64_t cut(std::uint64_t keep_bytes, std::uint64_t alignment_bytes);

  std::uint64_t size_bytes() const { return size_bytes_; }
  std::uint64_t used_bytes() const { return size_bytes_ - free_bytes_; }
  std::uint64_t free_bytes() const { return free_bytes_; }
  /// Free bytes at the end: a slot that needs more room than there is begins there if the arena is extended.
  std::uint64_t tail_bytes() const;
  std::size_t free_range_count() const { return free_.size(); }

 private:
  void add_free(Range range);

  std::vector<Range> free_;  // by offset, never adjacent; a vector, which does not allocate in the long run
  std::uint64_t size_bytes_ = 0, free_bytes_ = 0;
  std::size_t slot_count_ = 0;
};

}  // namespace shoal::client

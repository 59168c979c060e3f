// Arena: a memfd of this client. Its slots hold tensors that workers read and write without a copy.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "client/src/fork_guard.hpp"
#include "client/src/slot_allocator.hpp"
#include "shm/base/mutex.hpp"
#include "shm/base/unique_fd.hpp"
#include "shm/segment/segment.hpp"
#include "shoal/result.hpp"
#include "shoal/tensor.hpp"

namespace shoal::client {

class Arena;

/// A range of an arena, which becomes free when the last holder is gone. Holders are the user's tensors and the request. The
/// request holds it until the daemon releases it, because a worker may read or write the slot until then.
///   Threads  immutable
class Slot {
 public:
  Slot(std::shared_ptr<Arena> arena, SlotAllocator::Range range) : arena_(std::move(arena)), range_(range) {}
  ~Slot();
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  std::uint64_t offset() const { return range_.offset; }
  std::uint64_t capacity_bytes() const { return range_.size_bytes; }
  std::byte* data() const;

 private:
  std::shared_ptr<Arena> arena_;  // keeps the mapping alive
  SlotAllocator::Range range_;
};

///   Threads  thread-safe
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  /// Creates a sealed memfd, maps it and populates its pages, because a page fault costs far more than the copy that causes it.
  ///   Errors  kFailedPrecondition (no memory; names the size)
  static Result<std::shared_ptr<Arena>> create(const std::string& label, std::uint64_t size_bytes, Seals seals);

  /// Returns a slot of at least `size_bytes`, or null if there is no room.
  std::shared_ptr<Slot> allocate(std::uint64_t size_bytes) SHOAL_EXCLUDES(mutex_);
  /// The offset of `tensor` if workers can read it without a copy: it lies in this arena and is aligned to 64 bytes.
  std::optional<std::uint64_t> offset_of(const TensorView& tensor) const;

  const UniqueFd& fd() const { return fd_; }
  std::uint64_t size_bytes() const { return segment_.size_bytes(); }
  std::uint64_t free_bytes() const SHOAL_EXCLUDES(mutex_);

 private:
  friend class Slot;
  Arena(UniqueFd fd, Segment segment);
  void free(SlotAllocator::Range range) SHOAL_EXCLUDES(mutex_);

  UniqueFd fd_;
  Segment segment_;
  std::byte* base_;
  ForkGuard fork_guard_;
  mutable Mutex mutex_;
  SlotAllocator slots_ SHOAL_GUARDED_BY(mutex_);
};

}  // namespace shoal::client

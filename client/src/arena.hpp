// Arena: a memfd of this client. Its slots hold tensors that workers read and write without a copy.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "client/src/slot_allocator.hpp"
#include "shm/base/fork_guard.hpp"
#include "shm/base/memory_group.hpp"
#include "shm/base/mutex.hpp"
#include "shm/base/unique_fd.hpp"
#include "shm/segment/segment.hpp"
#include "shoal/result.hpp"
#include "shoal/tensor.hpp"

namespace shoal::client {

class Arena;

/// The addresses of a whole memfd, of which no part can be used until it is opened. If they could be used, the kernel would
/// allocate all memory behind them at once in a process that has called mlockall(MCL_FUTURE).
///   Threads  thread-compatible
class Reservation {
 public:
  /// `fd` must not be sealed yet. Aligned to 2 MB if `size_bytes` is a multiple of that, so that huge pages can be used.
  ///   Errors  kFailedPrecondition (no addresses), kInternal
  static Result<Reservation> map(const UniqueFd& fd, std::uint64_t size_bytes);
  Reservation(Reservation&& other) noexcept { *this = std::move(other); }
  Reservation& operator=(Reservation&& other) noexcept {
    std::swap(begin_, other.begin_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
  }
  ~Reservation();

  /// Lets a part be read and written. Whole pages.
  Status open(std::uint64_t offset, std::uint64_t size_bytes);
  /// As Segment::populate(), of a part that is open.
  void populate(std::uint64_t offset, std::uint64_t size_bytes);
  std::byte* begin() const { return begin_; }
  std::uint64_t size_bytes() const { return size_bytes_; }

 private:
  Reservation(std::byte* begin, std::uint64_t size_bytes) : begin_(begin), size_bytes_(size_bytes) {}
  std::byte* begin_ = nullptr;
  std::uint64_t size_bytes_ = 0;
};

/// A range of an arena, which becomes free when the last holder is gone. Holders are the user's tensors and the request. The
/// request holds it until the daemon releases it, because a worker may read or write the slot until then.
///   Threads  immutable
class Slot {
 public:
  Slot(std::shared_ptr<Arena> arena, SlotAllocator::Range range, bool is_loan)
      : arena_(std::move(arena)), range_(range), is_loan_(is_loan) {}
  ~Slot();
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  std::uint64_t offset() const { return range_.offset; }
  std::uint64_t capacity_bytes() const { return range_.size_bytes; }
  std::byte* data() const;

 private:
  std::shared_ptr<Arena> arena_;  // keeps the mapping alive
  SlotAllocator::Range range_;
  bool is_loan_;
};

/// Its addresses are reserved at once, and never change. Memory is allocated from the beginning, in steps: a step doubles the
/// arena, but is at least kLeastStep and at most kMostStep. So there are few steps, and little memory is allocated in vain.
///   Threads  thread-safe
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  static constexpr std::uint64_t kLeastStep = 256 << 10, kMostStep = 64 << 20, kMostGivenBack = 4 << 20;
  static constexpr std::uint64_t kUnchecked = 1 << 20;          ///< steps up to here are not compared with the available memory
  static constexpr std::uint64_t kGrowAgainNs = 1'000'000'000;  ///< after a step that failed

  /// Creates a sealed memfd, maps it and allocates the first step.
  ///   limit_bytes  at least 1; what is reserved, rounded up to 4 KiB: less if this process has no room for it (ulimit -v, -f)
  ///   available    memory that can be allocated before the kernel kills a process. A step takes at most half of it: the kernel
  ///                kills processes rather than refuse memory
  ///   Errors  kFailedPrecondition (no memory; names the size)
  static Result<std::shared_ptr<Arena>> create(
      const std::string& label, std::uint64_t limit_bytes, Seals seals,
      std::function<std::uint64_t()> available = [] { return available_memory_bytes(); });

  /// Returns a slot of at least `size_bytes`, or null if there is no room: the arena is at its limit, or memory is short.
  std::shared_ptr<Slot> allocate(std::uint64_t size_bytes, bool is_loan = false) SHOAL_EXCLUDES(mutex_, growth_mutex_);
  /// Gives memory at the end back, so that `keep_bytes` are left, or as many more as slots need: kMostGivenBack at once, which
  /// takes a millisecond or two. Does nothing while another thread adds memory, and does not wait for it. True if it is to be
  /// called again. Only if the seals allow it.
  bool shrink(std::uint64_t keep_bytes) SHOAL_EXCLUDES(mutex_, growth_mutex_);
  /// The offset of `tensor` if workers can read it without a copy: it lies in this arena and is aligned to 64 bytes.
  std::optional<std::uint64_t> offset_of(const TensorView& tensor) const;

  const UniqueFd& fd() const { return fd_; }
  std::uint64_t reserved_bytes() const { return reservation_.size_bytes(); }
  struct Use {
    std::uint64_t allocated_bytes = 0, used_bytes = 0;
    std::uint64_t peak_bytes = 0;  ///< the most that was used since the last forget_peak()
    std::uint64_t loans = 0;       ///< slots that were allocated as loans
  };
  Use use() const SHOAL_EXCLUDES(mutex_);
  void forget_peak() SHOAL_EXCLUDES(mutex_);

 private:
  friend class Slot;
  Arena(UniqueFd fd, Reservation reservation, std::function<std::uint64_t()> available);
  void free(SlotAllocator::Range range, bool is_loan) SHOAL_EXCLUDES(mutex_);
  std::optional<SlotAllocator::Range> take(std::uint64_t size_bytes, bool is_loan) SHOAL_REQUIRES(mutex_);
  std::optional<SlotAllocator::Range> grow_and_take(std::uint64_t size_bytes, bool is_loan) SHOAL_EXCLUDES(mutex_, growth_mutex_);
  Status add_step(std::uint64_t offset, std::uint64_t size_bytes) SHOAL_REQUIRES(growth_mutex_);

  UniqueFd fd_;
  Reservation reservation_;
  std::function<std::uint64_t()> available_;
  ForkGuard fork_guard_;
  Mutex growth_mutex_;  ///< held while memory is allocated, which takes long; slots can be freed meanwhile
  std::uint64_t grow_again_ns_ SHOAL_GUARDED_BY(growth_mutex_) = 0;
  mutable Mutex mutex_;
  SlotAllocator slots_ SHOAL_GUARDED_BY(mutex_);  ///< of what is allocated
  std::uint64_t peak_bytes_ SHOAL_GUARDED_BY(mutex_) = 0;
  std::uint64_t loans_ SHOAL_GUARDED_BY(mutex_) = 0;
};

}  // namespace shoal::client

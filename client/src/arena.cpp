#include "client/src/arena.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "client/src/used_again.hpp"
#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/ranges.hpp"
#include "shm/segment/pages.hpp"
#include "shm/wire/messages.hpp"

namespace shoal::client {
namespace {

struct Reserved {
  UniqueFd fd;
  Reservation reservation;
};

Result<Reserved> reserve(const std::string& label, std::uint64_t size_bytes) {
  SHOAL_ASSIGN_OR_RETURN(UniqueFd fd, reserve_memfd(label, size_bytes));
  // Now, because the seal forbids it later. What is mapped may be opened afterwards.
  SHOAL_ASSIGN_OR_RETURN(Reservation reservation, Reservation::map(fd, align_up(size_bytes, kPageBytes)));
  return Reserved{std::move(fd), std::move(reservation)};
}

}  // namespace

Result<Reservation> Reservation::map(const UniqueFd& fd, std::uint64_t size_bytes) {
  void* const begin = ::mmap(find_huge_aligned_room(size_bytes), size_bytes, PROT_NONE, MAP_SHARED, fd.get(), 0);
  if (begin == MAP_FAILED)
    return status_from_errno("map", format("{} bytes of shared memory{}", size_bytes, errno == ENOMEM ? " (ulimit -v)" : ""),
                             errno);
  return Reservation(static_cast<std::byte*>(begin), size_bytes);
}

Reservation::~Reservation() {
  if (begin_) ::munmap(begin_, size_bytes_);
}

Status Reservation::open(std::uint64_t offset, std::uint64_t size_bytes) {
  if (::mprotect(begin_ + offset, size_bytes, PROT_READ | PROT_WRITE) == 0) return {};
  return status_from_errno("open", format("{} bytes more of an arena", size_bytes), errno);
}

void Reservation::populate(std::uint64_t offset, std::uint64_t size_bytes) { populate_pages(begin_ + offset, size_bytes); }

Slot::~Slot() { arena_->free(range_, is_loan_); }

std::byte* Slot::data() const { return arena_->reservation_.begin() + range_.offset; }

Result<std::shared_ptr<Arena>> Arena::create(const std::string& label, std::uint64_t limit_bytes, Seals seals,
                                             std::function<std::uint64_t()> available) {
  auto reserved = reserve(label, limit_bytes);
  for (std::uint64_t less = limit_bytes / 4; !reserved.ok() && less >= kLeastStep; less /= 4) reserved = reserve(label, less);
  if (!reserved.ok()) return reserved.status();
  SHOAL_RETURN_IF_ERROR(seal(reserved->fd, seals));
  std::shared_ptr<Arena> arena(new Arena(std::move(reserved->fd), std::move(reserved->reservation), std::move(available)));
  const std::uint64_t first = std::min(kLeastStep, arena->reserved_bytes());
  const MutexLock growing(arena->growth_mutex_);
  SHOAL_RETURN_IF_ERROR(arena->add_step(0, first));
  return arena;
}

Arena::Arena(UniqueFd fd, Reservation reservation, std::function<std::uint64_t()> available)
    : fd_(std::move(fd)), reservation_(std::move(reservation)), available_(std::move(available)) {}

std::shared_ptr<Slot> Arena::allocate(std::uint64_t size_bytes, bool is_loan) {
  std::optional<SlotAllocator::Range> range;
  {
    const MutexLock lock(mutex_);
    range = take(size_bytes, is_loan);
  }
  if (!range) range = grow_and_take(size_bytes, is_loan);
  if (!range) return nullptr;
  try {
    return std::allocate_shared<Slot>(UsedAgain<Slot>(), shared_from_this(), *range, is_loan);
  } catch (...) {  // std::bad_alloc
    free(*range, is_loan);
    throw;
  }
}

std::optional<SlotAllocator::Range> Arena::take(std::uint64_t size_bytes, bool is_loan) {
  const auto range = slots_.allocate(size_bytes);
  if (!range) return range;
  peak_bytes_ = std::max(peak_bytes_, slots_.used_bytes());
  if (is_loan) ++loans_;
  return range;
}

std::optional<SlotAllocator::Range> Arena::grow_and_take(std::uint64_t size_bytes, bool is_loan) {
  if (size_bytes > reserved_bytes()) return std::nullopt;  // also keeps align_up from overflowing
  const MutexLock growing(growth_mutex_);
  std::uint64_t allocated = 0, needed = 0;
  {
    const MutexLock lock(mutex_);
    if (const auto range = take(size_bytes, is_loan)) return range;  // another thread has added a step
    allocated = slots_.size_bytes();
    needed = align_up(align_up(std::max<std::uint64_t>(size_bytes, 1), wire::kSlotAlignment) - slots_.tail_bytes(), kPageBytes);
  }
  const std::uint64_t room = reserved_bytes() - allocated;
  if (needed > room) return std::nullopt;
  const std::uint64_t now_ns = monotonic_now_ns();
  if (now_ns < grow_again_ns_) return std::nullopt;
  const std::uint64_t step = std::min(room, std::max(needed, std::clamp(allocated, kLeastStep, kMostStep)));
  if (!add_step(allocated, step).ok() && (needed == step || !add_step(allocated, needed).ok())) {
    grow_again_ns_ = now_ns + kGrowAgainNs;
    return std::nullopt;
  }
  const MutexLock lock(mutex_);
  return take(size_bytes, is_loan);
}

Status Arena::add_step(std::uint64_t offset, std::uint64_t size_bytes) {
  if (size_bytes > kUnchecked) {
    if (const std::uint64_t available = available_(); size_bytes > available / 2)
      return failed_precondition("{} bytes more for an arena: only {} are available", size_bytes, available);
  }
  SHOAL_RETURN_IF_ERROR(reservation_.open(offset, size_bytes));
  SHOAL_RETURN_IF_ERROR(shoal::allocate(fd_, offset, size_bytes));
  reservation_.populate(offset, size_bytes);
  const MutexLock lock(mutex_);
  slots_.extend(size_bytes);
  return {};
}

// What is cut off belongs to nobody until growth_mutex_ is released.
bool Arena::shrink(std::uint64_t keep_bytes) {
  if (!growth_mutex_.try_lock()) return true;
  const MutexLock growing(growth_mutex_, std::adopt_lock);
  std::uint64_t before = 0, after = 0;
  const std::uint64_t least = std::max(keep_bytes, kLeastStep);
  {
    const MutexLock lock(mutex_);
    before = slots_.size_bytes();
    after = slots_.cut(std::max(least, before - std::min(before, kMostGivenBack)), kPageBytes);
  }
  if (after == before) return false;
  if (punch_hole(fd_, after, before - after).ok()) return before - after == kMostGivenBack && after > least;
  const MutexLock lock(mutex_);
  slots_.extend(before - after);
  return false;
}

void Arena::free(SlotAllocator::Range range, bool is_loan) {
  if (fork_guard_.in_child()) return;  // the slot is the parent's, and no thread of the child can unlock the mutex
  const MutexLock lock(mutex_);
  slots_.free(range);
  if (is_loan) --loans_;
}

std::optional<std::uint64_t> Arena::offset_of(const TensorView& tensor) const {
  const auto base = reinterpret_cast<std::uintptr_t>(reservation_.begin()), data = reinterpret_cast<std::uintptr_t>(tensor.data);
  if (data < base || !fits(data - base, tensor.size_bytes(), reserved_bytes())) return std::nullopt;
  if ((data - base) % wire::kSlotAlignment != 0) return std::nullopt;
  return data - base;
}

Arena::Use Arena::use() const {
  const MutexLock lock(mutex_);
  return {slots_.size_bytes(), slots_.used_bytes(), peak_bytes_, loans_};
}

void Arena::forget_peak() {
  const MutexLock lock(mutex_);
  peak_bytes_ = slots_.used_bytes();
}

}  // namespace shoal::client

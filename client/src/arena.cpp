#include "client/src/arena.hpp"

#include <sys/mman.h>

#include "shm/base/errors.hpp"
#include "shm/base/ranges.hpp"
#include "shm/wire/messages.hpp"

namespace shoal::client {

Slot::~Slot() { arena_->free(range_); }

std::byte* Slot::data() const { return arena_->base_ + range_.offset; }

Result<std::shared_ptr<Arena>> Arena::create(const std::string& label, std::uint64_t size_bytes, Seals seals) {
  SHOAL_ASSIGN_OR_RETURN(UniqueFd fd, create_memfd(label, size_bytes));
  SHOAL_ASSIGN_OR_RETURN(Segment segment, Segment::map(fd, Segment::Access::kReadWrite));  // the seal forbids it later
  SHOAL_RETURN_IF_ERROR(seal(fd, seals));
#ifdef MADV_POPULATE_WRITE
  // Best effort: kernels before 5.14 do not have it.
  (void)::madvise(segment.mutable_bytes().data(), segment.size_bytes(), MADV_POPULATE_WRITE);
#endif
  return std::shared_ptr<Arena>(new Arena(std::move(fd), std::move(segment)));
}

Arena::Arena(UniqueFd fd, Segment segment)
    : fd_(std::move(fd)), segment_(std::move(segment)), base_(segment_.mutable_bytes().data()), slots_(segment_.size_bytes()) {}

std::shared_ptr<Slot> Arena::allocate(std::uint64_t size_bytes) {
  const MutexLock lock(mutex_);
  const auto range = slots_.allocate(size_bytes);
  return range ? std::make_shared<Slot>(shared_from_this(), *range) : nullptr;
}

void Arena::free(SlotAllocator::Range range) {
  if (fork_guard_.in_child()) return;  // the slot is the parent's, and no thread of the child can unlock the mutex
  const MutexLock lock(mutex_);
  slots_.free(range);
}

std::optional<std::uint64_t> Arena::offset_of(const TensorView& tensor) const {
  const auto base = reinterpret_cast<std::uintptr_t>(base_), data = reinterpret_cast<std::uintptr_t>(tensor.data);
  if (data < base || !fits(data - base, tensor.size_bytes(), size_bytes())) return std::nullopt;
  if ((data - base) % wire::kSlotAlignment != 0) return std::nullopt;
  return data - base;
}

std::uint64_t Arena::free_bytes() const {
  const MutexLock lock(mutex_);
  return slots_.free_bytes();
}

}  // namespace shoal::client

#include "shm/segment/pages.hpp"

#include <sys/mman.h>

#include "shm/base/ranges.hpp"
#include "shm/segment/segment.hpp"

namespace shoal {

void* find_huge_aligned_room(std::uint64_t size) {
  if (size % kHugePageBytes != 0) return nullptr;
  const std::size_t room = size + kHugePageBytes;
  void* const found = ::mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return nullptr;
  ::munmap(found, room);
  return reinterpret_cast<void*>(align_up(reinterpret_cast<std::uintptr_t>(found), kHugePageBytes));
}

void populate_pages(std::byte* begin, std::uint64_t size_bytes) {
#ifdef MADV_POPULATE_WRITE
  if (::madvise(begin, size_bytes, MADV_POPULATE_WRITE) == 0) return;
#endif
  for (std::uint64_t at = 0; at < size_bytes; at += kPageBytes) *static_cast<volatile std::byte*>(begin + at) = std::byte{0};
}

}  // namespace shoal

// Where shared memory is mapped, and that its pages are there before they are used.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shoal {

inline constexpr std::uint64_t kHugePageBytes = std::uint64_t{2} << 20;

/// A 2 MB aligned address that has `size` free bytes behind it at this moment. Null if `size` is not a multiple of 2 MB.
void* find_huge_aligned_room(std::uint64_t size);
/// Writes the first byte of each page of writable memory that is allocated and not used yet.
void populate_pages(std::byte* begin, std::uint64_t size_bytes);

}  // namespace shoal

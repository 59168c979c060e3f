// Segments: shared memory as sealed memfds, mapped through boost::interprocess::mapped_region.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "shm/base/unique_fd.hpp"
#include "shoal/result.hpp"

namespace shoal {

/// Memory is allocated, and looked at, in units of this size.
inline constexpr std::uint64_t kPageBytes = 4096;

/// A mapping of a whole memfd; unmapped when destroyed. Copies of a shared_ptr<Segment> keep it alive.
///   Threads  thread-compatible
class Segment {
 public:
  enum class Access { kReadOnly, kReadWrite };
  /// Maps all of `fd`. kReadOnly maps through a descriptor that is re-opened O_RDONLY, because kernels before 6.7 refuse to map a
  /// write-sealed memfd otherwise. A segment whose size is a multiple of 2 MB is aligned to 2 MB, so that huge pages can be used.
  ///   Errors  kInvalidArgument (not a memfd, or size 0), kPermissionDenied, kInternal
  static Result<Segment> map(const UniqueFd& fd, Access access);

  Segment(Segment&&) noexcept;
  Segment& operator=(Segment&&) noexcept;
  ~Segment();

  std::span<const std::byte> bytes() const;
  std::span<std::byte> mutable_bytes();  ///< aborts unless the mapping is kReadWrite
  std::size_t size_bytes() const { return bytes().size(); }
  /// Asks the kernel to copy the memory into 2 MB pages, for all processes that map it. Reading all of it is then up to twice as
  /// fast. Does nothing if the kernel refuses (before 6.1, no huge page free, forbidden by `shmem_enabled`).
  void gather_into_huge_pages() const;
  /// Processes that are forked while this is mapped do not have it: a writable mapping of theirs would keep the memory from being
  /// sealed.
  void hide_from_children() const;
  /// Writes the first byte of each page of a part that was allocate()d and not used yet, so that its pages are in memory: a page
  /// fault costs far more than the copy that causes it, and HoleFinder believes only what was written.
  void populate(std::uint64_t offset, std::uint64_t size_bytes);

 private:
  struct Mapping;
  explicit Segment(std::unique_ptr<Mapping> mapping, Access access);
  std::unique_ptr<Mapping> mapping_;
  Access access_ = Access::kReadOnly;
};

/// Sets of seals, one per kind of segment (docs/design.md, "Shared memory").
enum class Seals : std::uint8_t {
  kFixedSize,  ///< SHRINK, GROW, SEAL: output arenas, status pages
  kOneWriter,  ///< SHRINK, GROW, FUTURE_WRITE, SEAL: input arenas; the maker's mapping stays writable
  kReadOnly,   ///< SHRINK, GROW, WRITE, SEAL: packed weights
};

/// Creates and fallocates a memfd of `size_bytes`, rounded up to 4 KiB, or to 2 MB if `huge_aligned`. /proc shows it as
/// "shoal:<label>". It is not sealed.
///   Errors  kFailedPrecondition (no memory, or above RLIMIT_FSIZE; names the size), kInvalidArgument (size 0, or above 64 TiB),
///           kInternal
Result<UniqueFd> create_memfd(const std::string& label, std::uint64_t size_bytes, bool huge_aligned = false);
/// Creates a memfd of `size_bytes`, rounded up to 4 KiB, of which nothing is allocated: it takes addresses of those who map it,
/// and no memory. It is not sealed.
///   Errors  kInvalidArgument (size 0, or above 64 TiB), kFailedPrecondition (above RLIMIT_FSIZE), kInternal
Result<UniqueFd> reserve_memfd(const std::string& label, std::uint64_t size_bytes);
/// Allocates a part of a memfd, all of it or nothing. The seals of arenas allow it. Bytes that are there stay.
/// The calling thread blocks all signals meanwhile.
///   Errors  kFailedPrecondition (no memory; names the size), kInternal
Status allocate(const UniqueFd& fd, std::uint64_t offset, std::uint64_t size_bytes);
/// Frees the pages of a part of a memfd, which reads as zeros then. The seals WRITE and FUTURE_WRITE forbid it.
///   Errors  kPermissionDenied (sealed), kInternal
Status punch_hole(const UniqueFd& fd, std::uint64_t offset, std::uint64_t size_bytes);
/// Adds the seals. kReadOnly fails while a writable mapping exists. It waits at most 5 s while the kernel or a pipe holds pages.
Status seal(const UniqueFd& fd, Seals seals);
/// Checks that a descriptor from a stranger is a memfd with at least these seals, and returns its size. Never reads its bytes.
///   Errors  kInvalidArgument (names what is missing)
Result<std::uint64_t> check_sealed(const UniqueFd& fd, Seals at_least);
/// Checks that others can map the memfd for writing: its descriptor was opened for that, and no seal forbids it.
///   Errors  kInvalidArgument (names what is wrong)
Status check_writable(const UniqueFd& fd);
/// Opens the same memory again, O_RDONLY. Never waits.
///   Errors  kInvalidArgument (another process holds a lease on it), kPermissionDenied, kInternal
Result<UniqueFd> reopen_read_only(const UniqueFd& fd);
Result<UniqueFd> duplicate_fd(int fd);

}  // namespace shoal

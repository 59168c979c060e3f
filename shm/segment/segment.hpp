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

/// A mapping of a whole memfd; unmapped when destroyed. Copies of a shared_ptr<Segment> keep it alive.
///   Threads  thread-compatible
class Segment {
 public:
  enum class Access { kReadOnly, kReadWrite };
  /// Maps all of `fd`. Read-only maps through a descriptor re-opened O_RDONLY (kernels before 6.7 refuse otherwise once
  /// write-sealed). What is a multiple of 2 MB is mapped on such a border, where huge pages can serve it.
  ///   Errors  kInvalidArgument (not a memfd-like file, size 0), kPermissionDenied, kInternal
  static Result<Segment> map(const UniqueFd& fd, Access access);

  Segment(Segment&&) noexcept;
  Segment& operator=(Segment&&) noexcept;
  ~Segment();

  std::span<const std::byte> bytes() const;
  std::span<std::byte> mutable_bytes();  ///< only of a kReadWrite mapping: aborts otherwise
  std::size_t size_bytes() const { return bytes().size(); }
  /// Has the kernel copy the memory into pages of 2 MB, for everybody who maps it: what is read from end to end again and again
  /// is then read up to twice as fast. Where the kernel will not (before 6.1, none free, forbidden by `shmem_enabled`), nothing
  /// changes.
  void gather_into_huge_pages() const;

 private:
  struct Mapping;
  explicit Segment(std::unique_ptr<Mapping> mapping, Access access);
  std::unique_ptr<Mapping> mapping_;
  Access access_ = Access::kReadOnly;
};

/// Seals of the segments of design.md section 3.
enum class Seals : std::uint8_t {
  kFixedSize,  ///< SHRINK, GROW, SEAL: output arenas, status pages
  kOneWriter,  ///< SHRINK, GROW, FUTURE_WRITE, SEAL: input arenas; the maker's mapping writes on
  kReadOnly,   ///< SHRINK, GROW, WRITE, SEAL: packed weights
};

/// A new memfd of `size_bytes` (rounded up to pages, 2 MB when `huge_aligned`), fallocated, label "shoal:<label>" in /proc. Not
/// sealed yet.
///   Errors  kInternal: no memory, named with the size
Result<UniqueFd> create_memfd(const std::string& label, std::uint64_t size_bytes, bool huge_aligned = false);
/// Adds the seals. kReadOnly fails while a writable mapping exists, and waits, 5 s at most, while the kernel or a pipe holds
/// pages.
Status seal(const UniqueFd& fd, Seals seals);
/// What a stranger sent: is it a memfd with at least these seals, and how large. Never touches its bytes.
///   Errors  kInvalidArgument: names what is missing
Result<std::uint64_t> check_sealed(const UniqueFd& fd, Seals at_least);
/// Another descriptor of the same memory, opened O_RDONLY.
Result<UniqueFd> reopen_read_only(const UniqueFd& fd);
Result<UniqueFd> duplicate_fd(int fd);

}  // namespace shoal

#include "shm/segment/segment.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <boost/interprocess/mapped_region.hpp>
#include <cerrno>

#include "shm/base/blocked_signals.hpp"
#include "shm/base/check.hpp"
#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/ranges.hpp"
#include "shm/segment/pages.hpp"

namespace shoal {
namespace {

namespace bip = boost::interprocess;

// mapped_region calls only this method of a memory object.
struct MemfdHandle {
  int fd;
  bip::mapping_handle_t get_mapping_handle() const { return {fd, false}; }
};

int seal_bits(Seals seals) {
  const int fixed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  switch (seals) {
    case Seals::kFixedSize:
      return fixed;
    case Seals::kOneWriter:
      return fixed | F_SEAL_FUTURE_WRITE;
    case Seals::kReadOnly:
      return fixed | F_SEAL_WRITE;
  }
  return fixed;
}

Result<std::uint64_t> file_size(const UniqueFd& fd) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return status_from_errno("stat", "a shared memory segment", errno);
  if (!S_ISREG(info.st_mode))
    return invalid_argument("the descriptor is not a shared memory segment (file mode {})", info.st_mode);
  return static_cast<std::uint64_t>(info.st_size);
}

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25  // Linux 6.1
#endif

Result<UniqueFd> make_memfd(const std::string& label, std::uint64_t size_bytes) {
  const std::string name = "shoal:" + label;
  UniqueFd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return status_from_errno("create shared memory segment", name, errno);
  if (size_bytes == 0 || size_bytes > (std::uint64_t{1} << 46)) {
    return invalid_argument("shared memory segment {} of {} bytes: the size must be 1 byte to 64 TiB", name, size_bytes);
  }
  return fd;
}

bip::mapped_region map_region(const MemfdHandle& handle, bip::mode_t mode, std::uint64_t size) {
  if (const void* const address = find_huge_aligned_room(size)) {
    try {
      return {handle, mode, 0, size, address};
    } catch (const bip::interprocess_exception&) {  // another thread took the place: map anywhere
    }
  }
  return {handle, mode, 0, size};
}

}  // namespace

struct Segment::Mapping {
  bip::mapped_region region;
};

Segment::Segment(std::unique_ptr<Mapping> mapping, Access access) : mapping_(std::move(mapping)), access_(access) {}
Segment::Segment(Segment&&) noexcept = default;
Segment& Segment::operator=(Segment&&) noexcept = default;
Segment::~Segment() = default;

Result<Segment> Segment::map(const UniqueFd& fd, Access access) {
  SHOAL_ASSIGN_OR_RETURN(const std::uint64_t size, file_size(fd));
  if (size == 0) return invalid_argument("a shared memory segment of 0 bytes cannot be mapped");
  UniqueFd read_only;
  if (access == Access::kReadOnly) {
    SHOAL_ASSIGN_OR_RETURN(read_only, reopen_read_only(fd));
  }
  const MemfdHandle handle{read_only ? read_only.get() : fd.get()};
  const auto mode = access == Access::kReadOnly ? bip::read_only : bip::read_write;
  try {
    return Segment(std::make_unique<Mapping>(Mapping{map_region(handle, mode, size)}), access);
  } catch (const bip::interprocess_exception& error) {
    const int why = error.get_native_error();
    return status_from_errno("map", format("{} bytes of shared memory{}", size, why == ENOMEM ? " (ulimit -v)" : ""), why);
  }
}

std::span<const std::byte> Segment::bytes() const {
  return {static_cast<const std::byte*>(mapping_->region.get_address()), mapping_->region.get_size()};
}

std::span<std::byte> Segment::mutable_bytes() {
  SHOAL_CHECK(access_ == Access::kReadWrite);
  return {static_cast<std::byte*>(mapping_->region.get_address()), mapping_->region.get_size()};
}

void Segment::gather_into_huge_pages() const {
  const std::size_t whole = mapping_->region.get_size() / kHugePageBytes * kHugePageBytes;
  if (whole > 0) ::madvise(mapping_->region.get_address(), whole, MADV_COLLAPSE);
}

void Segment::hide_from_children() const {
  ::madvise(mapping_->region.get_address(), mapping_->region.get_size(), MADV_DONTFORK);
}

void Segment::populate(std::uint64_t offset, std::uint64_t size_bytes) {
  populate_pages(mutable_bytes().subspan(offset, size_bytes).data(), size_bytes);
}

namespace {

// Above the limit the kernel would send SIGXFSZ.
Status check_file_size(const std::string& label, std::uint64_t bytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || bytes <= limit.rlim_cur) return {};
  return failed_precondition("shared memory segment {} of {} bytes: this process may make files of {} (RLIMIT_FSIZE)", label,
                             bytes, limit.rlim_cur);
}

}  // namespace

Result<UniqueFd> create_memfd(const std::string& label, std::uint64_t size_bytes, bool huge_aligned) {
  SHOAL_ASSIGN_OR_RETURN(UniqueFd fd, make_memfd(label, size_bytes));
  const std::uint64_t rounded = align_up(size_bytes, huge_aligned ? kHugePageBytes : kPageBytes);
  SHOAL_RETURN_IF_ERROR(check_file_size(label, rounded));
  SHOAL_RETURN_IF_ERROR(allocate(fd, 0, rounded).with_context(label));
  return fd;
}

Result<UniqueFd> reserve_memfd(const std::string& label, std::uint64_t size_bytes) {
  SHOAL_ASSIGN_OR_RETURN(UniqueFd fd, make_memfd(label, size_bytes));
  const std::uint64_t rounded = align_up(size_bytes, kPageBytes);
  SHOAL_RETURN_IF_ERROR(check_file_size(label, rounded));
  if (::ftruncate(fd.get(), static_cast<off_t>(rounded)) != 0)
    return status_from_errno(format("reserve {} bytes for shared memory segment", rounded), label, errno);
  return fd;
}

// fallocate, not ftruncate: a lack of memory is an error here, not a SIGBUS later.
Status allocate(const UniqueFd& fd, std::uint64_t offset, std::uint64_t size_bytes) {
  // Before Linux 6.11 a signal interrupts it and undoes all of it. With the signals of a profiler a large one would never end.
  const BlockedSignals signals;
  int error = 0;
  do {
    error = ::fallocate(fd.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(size_bytes)) == 0 ? 0 : errno;
  } while (error == EINTR);
  if (error == 0) return {};
  return status_from_errno(format("allocate {} bytes for", size_bytes), "a shared memory segment", error);
}

Status punch_hole(const UniqueFd& fd, std::uint64_t offset, std::uint64_t size_bytes) {
  const int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  while (::fallocate(fd.get(), mode, static_cast<off_t>(offset), static_cast<off_t>(size_bytes)) != 0) {
    if (errno == EINTR) continue;
    return status_from_errno(format("free {} bytes of", size_bytes), "a shared memory segment", errno);
  }
  return {};
}

Status seal(const UniqueFd& fd, Seals seals) {
  constexpr std::uint64_t kWaitedNs = 50'000'000, kMostNs = 5'000'000'000;
  const std::uint64_t start_ns = monotonic_now_ns();
  for (std::uint64_t begin_ns = start_ns; ::fcntl(fd.get(), F_ADD_SEALS, seal_bits(seals)) != 0; begin_ns = monotonic_now_ns()) {
    if (errno != EBUSY) return status_from_errno("seal", "a shared memory segment", errno);
    // If a writable mapping exists, fcntl fails with EBUSY at once. If the kernel itself holds pages for a moment, for example
    // while it compacts memory, fcntl waits 150 ms before it fails with EBUSY. That passes, so it is tried again.
    const std::uint64_t now_ns = monotonic_now_ns();
    if (now_ns - begin_ns < kWaitedNs)
      return status_from_errno("seal", "a shared memory segment that is still mapped writable", EBUSY);
    if (now_ns - start_ns > kMostNs) return status_from_errno("seal", "a shared memory segment whose pages are held", EBUSY);
  }
  return {};
}

Result<std::uint64_t> check_sealed(const UniqueFd& fd, Seals at_least) {
  // Ask for the seals first. The kernel answers that at once for any descriptor. A stat of a stranger's FUSE file, or of its file
  // system, could make this process wait for the stranger.
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0) return invalid_argument("the descriptor does not support seals: it is not a memfd");
  const auto missing = [&](int bit) { return (seal_bits(at_least) & bit) != 0 && (seals & bit) == 0; };
  if (missing(F_SEAL_SHRINK)) return invalid_argument("a memfd without F_SEAL_SHRINK");
  if (missing(F_SEAL_GROW)) return invalid_argument("a memfd without F_SEAL_GROW");
  if (missing(F_SEAL_SEAL)) return invalid_argument("a memfd without F_SEAL_SEAL");
  if (missing(F_SEAL_WRITE)) return invalid_argument("a memfd without F_SEAL_WRITE");
  if (missing(F_SEAL_FUTURE_WRITE) && (seals & F_SEAL_WRITE) == 0) return invalid_argument("a memfd without F_SEAL_FUTURE_WRITE");
  struct statfs system {};
  if (::fstatfs(fd.get(), &system) != 0) return status_from_errno("stat file system of", "a shared memory segment", errno);
  if (system.f_type != TMPFS_MAGIC) return invalid_argument("the descriptor is not a memfd (file system type {})", system.f_type);
  return file_size(fd);
}

Status check_writable(const UniqueFd& fd) {
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0)
    return invalid_argument("a memfd that is sealed against writing");
  const int flags = ::fcntl(fd.get(), F_GETFL);
  if (flags < 0 || (flags & O_ACCMODE) != O_RDWR) return invalid_argument("a memfd whose descriptor cannot be written");
  return {};
}

Result<UniqueFd> reopen_read_only(const UniqueFd& fd) {
  const std::string path = format("/proc/self/fd/{}", fd.get());
  // O_NONBLOCK, because another process can hold a lease on the file. Then open() would wait for it up to 45 s. The flag changes
  // nothing for the maps of the descriptor.
  UniqueFd copy(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!copy && errno == EWOULDBLOCK)
    return invalid_argument("re-open read-only {}: a process holds a lease on it (F_SETLEASE): give up the lease", path);
  if (!copy) return status_from_errno("re-open read-only", path, errno);
  return copy;
}

Result<UniqueFd> duplicate_fd(int fd) {
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (!copy) return status_from_errno("duplicate", format("descriptor {}", fd), errno);
  return copy;
}

}  // namespace shoal

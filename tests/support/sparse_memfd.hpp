// Memory that is not there: addresses without pages.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "shm/base/unique_fd.hpp"

namespace shoal::test {

/// A memfd of that size, not sealed, without a page. Holds nothing when that failed (errno).
inline UniqueFd sparse_memfd(std::uint64_t bytes) {
  UniqueFd fd(::memfd_create("sparse", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd && ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) fd.reset();
  return fd;
}

}  // namespace shoal::test

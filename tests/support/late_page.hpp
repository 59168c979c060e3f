// A page of memory that makes whoever touches it wait.
#pragma once

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "shm/base/unique_fd.hpp"

namespace shoal::test {

/// A page that is not there before give(). The kernel waits for it while it holds the locks of what reads or writes there.
///   Threads  thread-safe
class LatePage {
 public:
  static constexpr std::size_t kBytes = 4096;

  LatePage()
      : faults_(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC))),
        page_(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    uffdio_api api{.api = UFFD_API, .features = 0, .ioctls = 0};
    uffdio_register missing{.range = range(), .mode = UFFDIO_REGISTER_MODE_MISSING, .ioctls = 0};
    is_late_ = faults_ && page_ != MAP_FAILED && ::ioctl(faults_.get(), UFFDIO_API, &api) == 0 &&
               ::ioctl(faults_.get(), UFFDIO_REGISTER, &missing) == 0;
  }
  ~LatePage() { ::munmap(page_, kBytes); }
  LatePage(const LatePage&) = delete;
  LatePage& operator=(const LatePage&) = delete;

  /// False if this process may have no such page.
  bool is_late() const { return is_late_; }
  void* bytes() const { return page_; }
  /// Returns when somebody waits for it. Returns false if that cannot be known.
  bool await_waiter() const {
    uffd_msg fault{};
    return ::read(faults_.get(), &fault, sizeof fault) == static_cast<ssize_t>(sizeof fault);
  }
  /// From now on the page is there, and holds zeros.
  bool give() const {
    uffdio_zeropage zero{.range = range(), .mode = 0, .zeropage = 0};
    return ::ioctl(faults_.get(), UFFDIO_ZEROPAGE, &zero) == 0;
  }

 private:
  uffdio_range range() const { return {.start = reinterpret_cast<std::uintptr_t>(page_), .len = kBytes}; }

  UniqueFd faults_;
  void* page_;
  bool is_late_ = false;
};

}  // namespace shoal::test

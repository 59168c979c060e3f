#include "worker/serve/memory_limit.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <new>

#include "shm/base/errors.hpp"
#include "shm/base/unique_fd.hpp"

namespace shoal::worker {
namespace {

constexpr const char* kStatm = "/proc/self/statm";

// What RLIMIT_DATA counts: writable private memory, touched or not.
Result<std::uint64_t> data_bytes(const UniqueFd& statm) {
  char text[256];  // nothing on the heap: it may be used up
  const ssize_t size = ::pread(statm.get(), text, sizeof text - 1, 0);
  if (size < 0) return status_from_errno("read", kStatm, errno);
  text[size] = '\0';
  unsigned long long pages = 0;  // the sixth number
  if (std::sscanf(text, "%*u %*u %*u %*u %*u %llu", &pages) != 1) return internal_error("{} has no six numbers", kStatm);
  return static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::uint64_t stack_bytes() {
  pthread_attr_t attributes;
  std::size_t stack = 0, guard = 0;
  if (::pthread_getattr_default_np(&attributes) != 0) return 0;
  ::pthread_attr_getstacksize(&attributes, &stack);
  ::pthread_attr_getguardsize(&attributes, &guard);
  ::pthread_attr_destroy(&attributes);
  return stack + guard;
}

}  // namespace

Result<MemoryLimit> MemoryLimit::set(int memory_mb, std::size_t threads_to_come) {
  if (memory_mb == 0) return MemoryLimit();
  MemoryLimit made(memory_mb, UniqueFd(::open(kStatm, O_RDONLY | O_CLOEXEC)));
  if (!made.statm_) return status_from_errno("open", kStatm, errno);
  SHOAL_ASSIGN_OR_RETURN(made.base_bytes_, data_bytes(made.statm_));
  made.base_bytes_ += threads_to_come * stack_bytes();
  const rlim_t limit = made.base_bytes_ + (static_cast<std::uint64_t>(memory_mb) << 20);
  const rlimit both{limit, limit};
  if (::setrlimit(RLIMIT_DATA, &both) != 0) return status_from_errno("set", "RLIMIT_DATA", errno);
  return made;
}

Status MemoryLimit::exceeded(std::string_view what) const noexcept try {
  if (memory_mb_ == 0) return out_of_memory(what);
  return failed_precondition(
      "out of memory: {} needs more than what is left of the {} MiB that a worker of this model may take (memory_mb): raise "
      "memory_mb, or send smaller inputs",
      what, memory_mb_);
} catch (const std::bad_alloc&) {
  return out_of_memory(what);
}

bool MemoryLimit::uses_more_than(std::uint64_t bytes) const {
  const auto now_bytes = data_bytes(statm_);
  return now_bytes.ok() && *now_bytes > base_bytes_ + bytes;
}

bool MemoryLimit::is_spent(std::uint64_t message_bytes) const {
  return is_limited() && uses_more_than(bytes() / 8 * 7 + message_bytes);
}

bool MemoryLimit::leaves_room_to_receive(std::uint64_t message_bytes) const {
  return !is_limited() || !uses_more_than(bytes() / 2 + message_bytes);
}

}  // namespace shoal::worker

// UsedAgain: an allocator of single objects that keeps some memory for the next ones.
#pragma once

#include <cstddef>
#include <vector>

#include "shm/base/fork_guard.hpp"
#include "shm/base/mutex.hpp"

namespace shoal::client {

/// For std::allocate_shared(), so that in the long run objects that come and go allocate nothing. A forked child allocates and
/// frees without the lock, which a thread of its parent may hold.
///   Threads  thread-safe
template <typename T>
class UsedAgain {
 public:
  using value_type = T;
  UsedAgain() = default;
  template <typename U>
  UsedAgain(const UsedAgain<U>&) {}  // NOLINT(google-explicit-constructor): allocators are rebound

  T* allocate(std::size_t count) {
    Kept& kept = kept_ones();
    if (count == 1 && !kept.fork_guard.in_child()) {
      const MutexLock lock(kept.mutex);
      if (!kept.blocks.empty()) {
        void* const block = kept.blocks.back();
        kept.blocks.pop_back();
        return static_cast<T*>(block);
      }
    }
    return static_cast<T*>(::operator new(count * sizeof(T)));
  }
  void deallocate(T* block, std::size_t count) noexcept {
    Kept& kept = kept_ones();
    if (count == 1 && !kept.fork_guard.in_child()) {
      const MutexLock lock(kept.mutex);
      if (kept.blocks.size() < kMostKept) return kept.blocks.push_back(block);  // it has the room
    }
    ::operator delete(block);
  }
  friend bool operator==(const UsedAgain&, const UsedAgain&) { return true; }

 private:
  static constexpr std::size_t kMostKept = 1024;
  struct Kept {
    Kept() { blocks.reserve(kMostKept); }
    ForkGuard fork_guard;
    Mutex mutex;
    std::vector<void*> blocks SHOAL_GUARDED_BY(mutex);
  };
  static Kept& kept_ones() {
    static Kept& kept = *new Kept;  // never destroyed: tensors may outlive main()
    return kept;
  }
};

}  // namespace shoal::client

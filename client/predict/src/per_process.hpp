// per_process: an object that each process has one of.
#pragma once

#include <atomic>
#include <memory>

#include "shm/base/fork_guard.hpp"

namespace shoal::predict {

/// The process's T. What a forked child has of its parent's may be locked for ever, so it makes one of its own. Never destroyed:
/// threads may use it while the program ends.
///   Threads  thread-safe
template <typename T>
T& per_process() {
  struct Own {
    explicit Own(const Own* other) : of_parent(other) {}
    const ForkGuard fork_guard;
    [[maybe_unused]] const Own* const of_parent;  // never touched
    T value;
  };
  static std::atomic<Own*> current{nullptr};
  Own* known = current.load();
  while (known == nullptr || known->fork_guard.in_child()) {
    auto fresh = std::make_unique<Own>(known);
    if (current.compare_exchange_strong(known, fresh.get())) return fresh.release()->value;
  }
  return known->value;
}

}  // namespace shoal::predict

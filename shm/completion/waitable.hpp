// Waitable: what a thread of a client waits for.
#pragma once

#include <atomic>

namespace shoal::completion {

/// Is done or not. A thread that has seen is_done() (acquire; pairs with the release in set_done()) may read the result.
///   Threads  thread-safe
class Waitable {
 public:
  bool is_done() const { return done_.load(std::memory_order_acquire); }

 protected:
  void set_done(bool done = true) { done_.store(done, std::memory_order_release); }

 private:
  std::atomic<bool> done_{false};
};

}  // namespace shoal::completion

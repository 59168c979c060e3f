// CancelledRequests: requests that a lane need not begin or finish.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

namespace shoal::worker {

/// The latest cancellations. Older ones are forgotten; the only cost is that such a request runs.
///   Threads  one thread adds, any number ask
class CancelledRequests {
 public:
  void add(std::uint64_t request_id) {
    const std::uint64_t count = count_.load(std::memory_order_relaxed);
    ids_[count % ids_.size()].store(request_id, std::memory_order_relaxed);
    count_.store(count + 1, std::memory_order_release);  // pairs with count()'s acquire
  }
  /// Cancellations so far. While it does not change, contains() gives the same answers.
  std::uint64_t count() const { return count_.load(std::memory_order_acquire); }
  bool contains(std::uint64_t request_id) const {
    const auto known = static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(count(), ids_.size()));
    return std::any_of(ids_.begin(), ids_.begin() + known,
                       [&](const auto& id) { return id.load(std::memory_order_relaxed) == request_id; });
  }

 private:
  std::array<std::atomic<std::uint64_t>, 256> ids_{};
  std::atomic<std::uint64_t> count_{0};
};

}  // namespace shoal::worker

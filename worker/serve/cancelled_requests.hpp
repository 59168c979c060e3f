// CancelledRequests: which requests a lane need not begin any more.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

namespace shoal::worker {

/// The latest cancellations; older ones are forgotten, which costs a needless run and nothing else.
///   Threads  one thread adds, any number ask
class CancelledRequests {
 public:
  void add(std::uint64_t request_id) { ids_[next_++ % ids_.size()].store(request_id, std::memory_order_relaxed); }
  bool contains(std::uint64_t request_id) const {
    return std::ranges::any_of(ids_, [&](const auto& id) { return id.load(std::memory_order_relaxed) == request_id; });
  }

 private:
  std::array<std::atomic<std::uint64_t>, 64> ids_{};  // 0 is no request
  std::size_t next_ = 0;
};

}  // namespace shoal::worker

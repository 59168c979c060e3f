// What each flow of a model version asked for, and how long its requests took.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "supervisor/route/askers.hpp"
#include "supervisor/route/histogram.hpp"

namespace shoal::supervisor {

/// Keeps a row for each of the kMostFlows flows that were used last. A flow that must make room, or whose client is gone, is
/// added to the row of the others, so every sum stays right. Each row has 6 KB. Nothing is allocated before the first request
/// with a flow, nor once all rows are in use: 0.4 MB for each version at most.
///   Threads  thread-compatible. Copies are independent
class FlowStatistics {
 public:
  static constexpr std::size_t kMostFlows = 64;

  struct Row {
    ClientId client = 0;  // 0 = the others
    std::uint64_t flow = 0;
    std::uint64_t requests = 0;  // admitted
    std::uint64_t refused = 0;
    CoarseHistogram queue_ns, compute_ns, total_ns;
  };

  /// The row of a flow, which is not 0. It is valid until the next call.
  Row& of(ClientId client, std::uint64_t flow);
  void client_gone(ClientId client);
  /// All rows. The first one, if there is any, is that of the others.
  std::span<const Row> rows() const { return rows_; }

 private:
  struct Key {
    ClientId client = 0;
    std::uint64_t flow = 0;
    std::uint64_t used = 0;  // a later use has a larger number
  };

  std::size_t place_for_another();
  void fold(std::size_t at);

  std::vector<Row> rows_;
  std::vector<Key> keys_;  // of rows_, for fast search
  std::uint64_t uses_ = 0;
};

}  // namespace shoal::supervisor

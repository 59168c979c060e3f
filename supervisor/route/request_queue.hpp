// The requests of one model that wait for a lane.
//
//   level (priority) ──▶ flows, one per client, in a ring ──▶ heap: re-runs, then earliest deadline, then arrival
//
// The highest level goes first. Within a level clients take turns by deficit round robin: each is given the same predicted time
// per round, so that one that floods delays another's request by its share and no more. Every 16th turn belongs to the level
// whose first request has waited longest, so that no level starves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "supervisor/route/slot_list.hpp"

namespace shoal::supervisor {

inline constexpr std::uint64_t kNoDeadline = ~std::uint64_t{0};

/// What decides whose turn it is; the queue's owner fills it in.
struct Waiting {
  std::uint32_t client = 0;  // a small number: tables are indexed by it
  std::int8_t priority = 0;  // higher goes first
  bool rerun = false;        // before all others of its client
  std::uint64_t deadline_ns = kNoDeadline;
  std::uint64_t arrival = 0;  // grows
  std::uint64_t cost_ns = 1;  // predicted time of a lane
};

/// One request, by slot; one table for all queues.
struct WaitingEntry : Waiting {
 private:
  friend class RequestQueue;
  std::uint32_t flow = kNoSlot;
  std::uint32_t place = 0;  // in the flow's heap
};
using WaitingTable = std::vector<WaitingEntry>;

/// O(log n) for everything but a turn, which looks at each client of its level until one can pay (at once where their costs are
/// alike), and the rare 16th one, which looks at every level in use. Nothing is allocated in the long run: flows and their heaps
/// are kept for the next client.
///   Threads  thread-compatible
class RequestQueue {
 public:
  static constexpr std::uint32_t kOldestTurn = 16;
  static constexpr std::uint64_t kMostCostNs = 3'600'000'000'000;  // that a prediction is believed
  static constexpr std::size_t kMostFlows = 64, kMostOfFlow = 16;  // that next_like() looks at

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  /// How many requests of the client wait.
  std::size_t waiting_of(std::uint32_t client) const;
  /// Predicted time of everything that waits.
  std::uint64_t work_ns() const;

  void push(WaitingTable& table, std::uint32_t slot);
  /// It waits no more.
  void remove(WaitingTable& table, std::uint32_t slot);
  /// Whose turn it is; kNoSlot when empty. Stays the same until something else is called.
  std::uint32_t next(const WaitingTable& table);
  /// It runs: its client pays, and the next turn begins.
  void take(WaitingTable& table, std::uint32_t slot);
  /// Another to run beside the one just taken, or while next() waits for others: of the first flow, in order of turns, that has
  /// one for which `joins(slot)` holds the first such request; kNoSlot when there is none. Its client is the last to be asked
  /// again. Not all are looked at, but the first of each flow is.
  template <class Joins>
  std::uint32_t next_like(const WaitingTable& table, const Joins& joins);
  /// It runs beside another: its client pays.
  void take_along(WaitingTable& table, std::uint32_t slot);

  /// Predicted time of what runs before `newcomer`, were it pushed now. Its client's own requests count in full, or, `exact`,
  /// only those before it: O(number of them).
  std::uint64_t work_before_ns(const WaitingTable& table, const Waiting& newcomer, bool exact) const;

 private:
  friend struct LedgerState;  // tests/unit/supervisor/route
  struct Flow {
    std::uint32_t client = 0;
    std::int8_t priority = 0;
    std::int64_t deficit_ns = 0;
    std::uint64_t work_ns = 0;
    std::vector<std::uint32_t> heap;         // slots
    std::uint32_t next_of_client = kNoSlot;  // its flow in another level
  };
  struct Level {
    std::int8_t priority = 0;
    std::uint32_t flows = 0;
    SlotList ring;    // of flows
    SlotList by_age;  // of slots: re-runs, then by arrival
    std::uint64_t work_ns = 0;
    std::uint64_t quantum_ns = 0;             // the cheapest first request of the last round
    std::uint64_t cheapest_ns = kNoDeadline;  // of this round
    bool somebody_paid = false;               // in this round
    std::uint32_t left_in_round = 0;
  };

  static bool before(const Waiting& a, const Waiting& b);
  Level& level_of(std::int8_t priority);
  std::uint32_t flow_of(std::uint32_t client, std::int8_t priority) const;
  std::uint32_t new_flow(const Waiting& waiting);
  void drop_flow(std::uint32_t flow);
  std::uint32_t turn_within(const WaitingTable& table, Level& level);
  void sift_up(WaitingTable& table, std::vector<std::uint32_t>& heap, std::size_t place);
  void sift_down(WaitingTable& table, std::vector<std::uint32_t>& heap, std::size_t place);

  std::vector<Level> levels_;  // those in use, highest first
  std::vector<Flow> flows_;
  std::vector<std::uint32_t> free_flows_;
  SlotLinkTable ring_links_;                   // by flow
  SlotLinkTable age_links_;                    // by slot
  std::vector<std::uint32_t> flow_of_client_;  // the first of its flows
  std::size_t size_ = 0;
  std::uint32_t turns_ = 0;
};

template <class Joins>
std::uint32_t RequestQueue::next_like(const WaitingTable& table, const Joins& joins) {
  std::size_t looked = 0;
  for (Level& level : levels_) {
    for (std::uint32_t flow = level.ring.front(); flow != kNoSlot; flow = ring_links_[flow].next) {
      if (++looked > kMostFlows) return kNoSlot;
      const std::vector<std::uint32_t>& heap = flows_[flow].heap;
      std::uint32_t first = kNoSlot;
      for (std::size_t place = 0; place < heap.size() && place < kMostOfFlow; ++place) {
        if (first != kNoSlot && !before(table[heap[place]], table[first])) continue;
        if (joins(heap[place])) first = heap[place];
        if (place == 0 && first != kNoSlot) break;
      }
      if (first == kNoSlot) continue;
      level.ring.remove(ring_links_, flow);
      level.ring.push_back(ring_links_, flow);
      return first;
    }
  }
  return kNoSlot;
}

}  // namespace shoal::supervisor

// The requests of one model that wait for a lane.
//
//   lines, one per asker, in a ring ──▶ heap: highest priority, then re-runs, then earliest deadline, then arrival
//
// An asker is a client, or one flow of a gateway (askers.hpp). Askers take turns by deficit round robin: each asker is given the
// same predicted time per round, so an asker that floods the queue delays another asker's request only by its own share. An asker
// whose requests took longer than predicted owes the difference and pays it from its next rounds. If they took less, the
// difference pays for its next turns. A priority orders the requests of one asker; it takes no turn from another asker. Every
// 16th turn of an asker goes to its request that has waited longest, so that none starves. An asker that is held has no turns:
// its line is not in the ring.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "supervisor/route/slot_list.hpp"

namespace shoal::supervisor {

inline constexpr std::uint64_t kNoDeadline = ~std::uint64_t{0};

/// The properties of a request that decide whose turn it is. The owner of the queue fills them in.
struct Waiting {
  std::uint32_t asker = 0;    // its place, a small number: tables are indexed by it
  std::int8_t priority = 0;   // higher goes before the others of its asker
  bool rerun = false;         // goes before the other requests of its asker and priority
  std::uint8_t halvings = 0;  // how often doubt halves the price of its turn
  std::uint64_t deadline_ns = kNoDeadline;
  std::uint64_t arrival = 0;  // a later request has a larger number
  std::uint64_t cost_ns = 1;  // predicted time that it uses a lane

  /// What its asker pays when it is taken. The rest is paid when its run has ended.
  std::uint64_t price_ns() const { return std::max<std::uint64_t>(cost_ns >> halvings, 1); }
};

/// A request in the table that all queues share; its slot is the index.
struct WaitingEntry : Waiting {
 private:
  friend class RequestQueue;
  std::uint32_t line = kNoSlot;
  std::uint32_t place = 0;  // in the line's heap
};
using WaitingTable = std::vector<WaitingEntry>;

/// Every operation is O(log n), except for these: next() visits the askers until one can pay, which is the first one if their
/// costs are alike, and the operation after it goes through the same visits again if the turn was not taken. next_like() is
/// bounded by its two limits. youngest_apart() and work_before_ns() say what they take. In the long run nothing is allocated,
/// because lines and their heaps are kept for the next asker.
///   Threads  thread-compatible
class RequestQueue {
 public:
  static constexpr std::uint32_t kOldestTurn = 16;
  static constexpr std::uint64_t kMostCostNs = 3'600'000'000'000;  // upper limit of predictions
  static constexpr std::size_t kMostLines = 64, kMostOfLine = 16;  // how many lines, and requests of each, next_like() visits

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  /// The number of requests that wait, of askers that are apart.
  std::size_t apart() const { return apart_; }
  /// The number of requests of the asker that wait.
  std::size_t waiting_of(std::uint32_t asker) const;

  void push(WaitingTable& table, std::uint32_t slot);
  /// Takes the request out of the queue. Its asker does not pay.
  void remove(WaitingTable& table, std::uint32_t slot);
  /// Returns the request whose turn it is, or kNoSlot when no request waits but those of askers that are held. The result stays
  /// the same until another function is called. Only take() makes the turn count: if the request is not taken, no debt is paid
  /// and no order changes.
  std::uint32_t next(const WaitingTable& table);
  /// Takes the request that runs out of the queue: its asker pays, and the next turn begins.
  void take(WaitingTable& table, std::uint32_t slot);
  /// Returns a second request: one that can run in the same batch as the request just taken, or instead of the request of next()
  /// while that waits for others. The request is the first one for which `joins(slot)` holds, in the first line, in order of
  /// turns, that has one; kNoSlot if there is none. Its asker then comes last. The search is limited, but the first request of
  /// every visited line is always tried.
  template <class Joins>
  std::uint32_t next_like(const WaitingTable& table, const Joins& joins);
  /// Takes a request that runs in the batch of another one out of the queue: its asker pays, but no new turn begins.
  void take_along(WaitingTable& table, std::uint32_t slot);
  /// A request that was taken has used a lane for `took_ns`. If that is more than its asker paid, the asker owes the difference
  /// and pays it from its next rounds; the debt ends when nothing waits but what is held. If it is less, the difference pays for
  /// the next turns of the asker, but for no more turns per round than the others have.
  void settle(const Waiting& request, std::uint64_t took_ns);
  /// The same for a request that has used a lane and did not wait for its turn, so that its asker has not paid for it.
  void charge(const Waiting& request, std::uint64_t took_ns);
  /// Forgets the debts of the asker, because its place goes to another one.
  void forget(std::uint32_t asker);
  /// The asker has no turns until release(): its requests wait, delay nobody, and are not found by next() and next_like().
  void hold(const WaitingTable& table, std::uint32_t asker) { set_held(table, asker, true); }
  void release(const WaitingTable& table, std::uint32_t asker) { set_held(table, asker, false); }

  bool is_held_asker(std::uint32_t asker) const { return asker < askers_.size() && askers_[asker].is_held; }
  /// Whether the asker is held, or was held and some of its requests wait ever since.
  bool is_apart(std::uint32_t asker) const { return asker < askers_.size() && askers_[asker].is_apart; }
  /// Who makes room: `count` times the request that came last of the asker that has most requests waiting, among those that are
  /// apart, each without those that were named before. Re-runs are passed over, so there may be fewer. Takes O(number of askers)
  /// once, and O(log of it) for each.
  std::vector<std::uint32_t> youngest_apart(const WaitingTable& table, std::size_t count) const;

  /// The predicted time of all requests that would run before `newcomer` if it were pushed now, without those of other askers
  /// that are held. Counts all waiting requests of its asker or, if `exact`, only those that go before it, which takes O(number
  /// of them).
  std::uint64_t work_before_ns(const WaitingTable& table, const Waiting& newcomer, bool exact) const;

 private:
  friend struct LedgerState;  // tests/unit/supervisor/route
  struct Line {
    std::uint32_t asker = 0;
    std::uint32_t turns = 0;
    std::int64_t deficit_ns = 0;
    std::uint64_t work_ns = 0;
    std::vector<std::uint32_t> heap;  // slots
    SlotList by_age;                  // of slots: re-runs first, then by arrival
  };
  struct Round {
    std::uint64_t quantum_ns = 0;        // time per asker and round: last_cheapest_ns or, if nobody could pay then, needed_ns
    std::uint64_t last_cheapest_ns = 0;  // price of the cheapest first request of the last round
    std::uint64_t cheapest_ns = kNoDeadline;  // the same for the current round
    std::uint64_t needed_ns = kNoDeadline;    // the least that a line still needs to pay, in the current round
    std::uint32_t left = 0;                   // lines that the current round has not visited yet
  };
  struct Visit {  // what a line and its asker had before
    std::uint32_t line;
    std::int64_t deficit_ns, owed_ns;
  };

  struct Asker {
    std::uint32_t line = kNoSlot;
    std::int64_t owed_ns = 0;  // time that its requests used beyond what they paid for; negative if they used less
    std::uint64_t period = 0;  // owed_ns counts only in this period
    bool is_held = false, is_apart = false;
  };

  static bool before(const Waiting& a, const Waiting& b);
  static std::uint32_t first_of(const Line& line);
  std::uint32_t line_of(std::uint32_t asker) const { return asker < askers_.size() ? askers_[asker].line : kNoSlot; }
  std::uint32_t new_line(const Waiting& waiting);
  void enter_ring(std::uint32_t line, const Waiting& first);
  void leave_ring(std::uint32_t line);
  void set_held(const WaitingTable& table, std::uint32_t place, bool is_held);
  bool is_held(std::uint32_t line) const { return askers_[lines_[line].asker].is_held; }
  void add_debt(std::uint32_t asker, std::int64_t ns);
  std::int64_t owed_by(std::uint32_t asker) const;
  void give_quantum(Line& line, std::int64_t price_ns);
  void undo_turn();
  void sift_up(WaitingTable& table, std::vector<std::uint32_t>& heap, std::size_t place);
  void sift_down(WaitingTable& table, std::vector<std::uint32_t>& heap, std::size_t place);

  SlotList ring_;                    // of lines
  std::uint32_t waiting_lines_ = 0;  // in the ring
  std::uint64_t work_ns_ = 0;        // theirs
  std::size_t apart_ = 0;            // requests of askers that are apart
  Round round_;
  // The turn that next() gave and nobody has taken.
  bool is_asked_ = false;
  Round round_before_;
  std::vector<Visit> visits_;
  std::vector<Line> lines_;
  std::vector<std::uint32_t> free_lines_;
  SlotLinkTable ring_links_;  // by line
  SlotLinkTable age_links_;   // by slot
  std::vector<Asker> askers_;
  std::uint64_t period_ = 0;  // a new period begins when the ring is empty: then no earlier run keeps anybody from a turn
  std::size_t size_ = 0;
};

template <class Joins>
std::uint32_t RequestQueue::next_like(const WaitingTable& table, const Joins& joins) {
  undo_turn();
  std::size_t looked = 0;
  for (std::uint32_t line = ring_.front(); line != kNoSlot; line = ring_links_[line].next) {
    if (++looked > kMostLines) return kNoSlot;
    const std::vector<std::uint32_t>& heap = lines_[line].heap;
    std::uint32_t first = kNoSlot;
    for (std::size_t place = 0; place < heap.size() && place < kMostOfLine; ++place) {
      if (first != kNoSlot && !before(table[heap[place]], table[first])) continue;
      if (joins(heap[place])) first = heap[place];
      if (place == 0 && first != kNoSlot) break;
    }
    if (first == kNoSlot) continue;
    ring_.remove(ring_links_, line);
    ring_.push_back(ring_links_, line);
    return first;
  }
  return kNoSlot;
}

}  // namespace shoal::supervisor

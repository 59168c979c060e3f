#include "supervisor/route/request_queue.hpp"

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>

namespace shoal::supervisor {

bool RequestQueue::before(const Waiting& a, const Waiting& b) {
  return std::tuple(!a.rerun, a.deadline_ns, a.arrival) < std::tuple(!b.rerun, b.deadline_ns, b.arrival);
}

std::size_t RequestQueue::waiting_of(std::uint32_t client) const {
  std::size_t waiting = 0;
  if (client >= flow_of_client_.size()) return 0;
  for (std::uint32_t flow = flow_of_client_[client]; flow != kNoSlot; flow = flows_[flow].next_of_client)
    waiting += flows_[flow].heap.size();
  return waiting;
}

std::uint64_t RequestQueue::work_ns() const {
  std::uint64_t work_ns = 0;
  for (const Level& level : levels_) work_ns += level.work_ns;
  return work_ns;
}

void RequestQueue::push(WaitingTable& table, std::uint32_t slot) {
  WaitingEntry& entry = table[slot];
  entry.cost_ns = std::clamp<std::uint64_t>(entry.cost_ns, 1, kMostCostNs);
  entry.flow = flow_of(entry.client, entry.priority);
  if (entry.flow == kNoSlot) entry.flow = new_flow(entry);
  Flow& flow = flows_[entry.flow];
  Level& level = level_of(entry.priority);
  flow.work_ns += entry.cost_ns;
  level.work_ns += entry.cost_ns;
  flow.heap.push_back(slot);
  sift_up(table, flow.heap, flow.heap.size() - 1);
  if (slot >= age_links_.size()) age_links_.resize(slot + 1);
  entry.rerun ? level.by_age.push_front(age_links_, slot) : level.by_age.push_back(age_links_, slot);
  ++size_;
}

void RequestQueue::remove(WaitingTable& table, std::uint32_t slot) {
  WaitingEntry& entry = table[slot];
  Flow& flow = flows_[entry.flow];
  Level& level = level_of(entry.priority);
  flow.work_ns -= entry.cost_ns;
  level.work_ns -= entry.cost_ns;
  level.by_age.remove(age_links_, slot);
  const std::size_t place = entry.place;
  const std::uint32_t last = flow.heap.back();
  flow.heap.pop_back();
  if (last != slot) {
    flow.heap[place] = last;
    table[last].place = static_cast<std::uint32_t>(place);
    sift_up(table, flow.heap, place);
    sift_down(table, flow.heap, table[last].place);
  }
  if (flow.heap.empty()) drop_flow(entry.flow);
  entry.flow = kNoSlot;
  --size_;
}

std::uint32_t RequestQueue::next(const WaitingTable& table) {
  if (levels_.empty()) return kNoSlot;
  if (turns_ % kOldestTurn != kOldestTurn - 1) return turn_within(table, levels_.front());
  return turn_within(
      table, *std::ranges::min_element(levels_, {}, [&](const Level& level) { return table[level.by_age.front()].arrival; }));
}

// Deficit round robin. The quantum is what the cheapest first request of the last round costs, so that none has more turns in a
// row than it must have; while nobody can pay it doubles.
std::uint32_t RequestQueue::turn_within(const WaitingTable& table, Level& level) {
  for (;;) {
    const std::uint32_t at = level.ring.front();
    Flow& flow = flows_[at];
    const std::uint64_t cost_ns = table[flow.heap.front()].cost_ns;
    if (flow.deficit_ns >= static_cast<std::int64_t>(cost_ns)) {
      level.somebody_paid = true;
      return flow.heap.front();
    }
    level.cheapest_ns = std::min(level.cheapest_ns, cost_ns);
    flow.deficit_ns =  // what its first request costs at most: a large quantum is no credit for later
        std::min(flow.deficit_ns + static_cast<std::int64_t>(level.quantum_ns), static_cast<std::int64_t>(cost_ns));
    level.ring.remove(ring_links_, at);
    level.ring.push_back(ring_links_, at);
    if (level.left_in_round > 1) {
      --level.left_in_round;
      continue;
    }
    const std::uint64_t cheapest_ns = std::exchange(level.cheapest_ns, kNoDeadline);
    level.quantum_ns = std::exchange(level.somebody_paid, false) ? cheapest_ns : level.quantum_ns * 2;
    level.left_in_round = level.flows;
  }
}

void RequestQueue::take(WaitingTable& table, std::uint32_t slot) {
  ++turns_;
  take_along(table, slot);
}

void RequestQueue::take_along(WaitingTable& table, std::uint32_t slot) {
  flows_[table[slot].flow].deficit_ns -= static_cast<std::int64_t>(table[slot].cost_ns);
  remove(table, slot);
}

std::uint64_t RequestQueue::work_before_ns(const WaitingTable& table, const Waiting& newcomer, bool exact) const {
  std::uint64_t work_ns = 0;
  for (const Level& level : levels_) {
    if (level.priority < newcomer.priority) break;
    if (level.priority > newcomer.priority) {
      work_ns += level.work_ns;
      continue;
    }
    const std::uint32_t at = flow_of(newcomer.client, newcomer.priority);
    std::uint64_t own_ns = 0, others_ns = level.work_ns;
    if (at != kNoSlot) {
      const Flow& flow = flows_[at];
      own_ns = flow.work_ns;
      others_ns -= flow.work_ns;
      if (exact) {
        own_ns = 0;
        for (const std::uint32_t slot : flow.heap) own_ns += before(newcomer, table[slot]) ? 0 : table[slot].cost_ns;
      }
    }
    // Until it can pay each other client is given as much as its own, which is a quantum at least.
    const std::uint64_t others = level.flows - (at != kNoSlot);
    work_ns += own_ns + std::min(others_ns, others * (own_ns + std::max(newcomer.cost_ns, level.quantum_ns)));
  }
  return work_ns;
}

RequestQueue::Level& RequestQueue::level_of(std::int8_t priority) {
  return *std::ranges::lower_bound(levels_, priority, std::greater(), &Level::priority);
}

std::uint32_t RequestQueue::flow_of(std::uint32_t client, std::int8_t priority) const {
  if (client >= flow_of_client_.size()) return kNoSlot;
  std::uint32_t flow = flow_of_client_[client];
  while (flow != kNoSlot && flows_[flow].priority != priority) flow = flows_[flow].next_of_client;
  return flow;
}

std::uint32_t RequestQueue::new_flow(const Waiting& waiting) {
  if (free_flows_.empty()) {
    free_flows_.push_back(static_cast<std::uint32_t>(flows_.size()));
    flows_.emplace_back();
    ring_links_.emplace_back();
  }
  if (waiting.client >= flow_of_client_.size()) flow_of_client_.resize(waiting.client + 1, kNoSlot);
  const std::uint32_t at = free_flows_.back();
  free_flows_.pop_back();
  auto level = std::ranges::lower_bound(levels_, waiting.priority, std::greater(), &Level::priority);
  if (level == levels_.end() || level->priority != waiting.priority)
    level = levels_.insert(level, {.priority = waiting.priority, .quantum_ns = waiting.cost_ns});
  level->quantum_ns = std::min(level->quantum_ns, waiting.cost_ns);
  Flow& flow = flows_[at];
  flow.client = waiting.client;
  flow.priority = waiting.priority;
  flow.deficit_ns = static_cast<std::int64_t>(level->quantum_ns);  // it comes last in the ring, and need not wait another round
  flow.next_of_client = std::exchange(flow_of_client_[waiting.client], at);
  level->ring.push_back(ring_links_, at);
  ++level->flows;
  ++level->left_in_round;
  return at;
}

void RequestQueue::drop_flow(std::uint32_t at) {
  Flow& flow = flows_[at];
  std::uint32_t* link = &flow_of_client_[flow.client];
  while (*link != at) link = &flows_[*link].next_of_client;
  *link = flow.next_of_client;
  Level& level = level_of(flow.priority);
  level.ring.remove(ring_links_, at);
  level.left_in_round = std::min(level.left_in_round, --level.flows);
  if (level.flows == 0) levels_.erase(levels_.begin() + (&level - levels_.data()));
  free_flows_.push_back(at);
}

void RequestQueue::sift_up(WaitingTable& table, std::vector<std::uint32_t>& heap, std::size_t place) {
  const std::uint32_t slot = heap[place];
  for (; place > 0 && before(table[slot], table[heap[(place - 1) / 2]]); place = (place - 1) / 2) {
    heap[place] = heap[(place - 1) / 2];
    table[heap[place]].place = static_cast<std::uint32_t>(place);
  }
  heap[place] = slot;
  table[slot].place = static_cast<std::uint32_t>(place);
}

void RequestQueue::sift_down(WaitingTable& table, std::vector<std::uint32_t>& heap, std::size_t place) {
  const std::uint32_t slot = heap[place];
  for (std::size_t child = 0; (child = place * 2 + 1) < heap.size(); place = child) {
    if (child + 1 < heap.size() && before(table[heap[child + 1]], table[heap[child]])) ++child;
    if (!before(table[heap[child]], table[slot])) break;
    heap[place] = heap[child];
    table[heap[place]].place = static_cast<std::uint32_t>(place);
  }
  heap[place] = slot;
  table[slot].place = static_cast<std::uint32_t>(place);
}

}  // namespace shoal::supervisor

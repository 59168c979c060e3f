#include "supervisor/route/request_queue.hpp"

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>

namespace shoal::supervisor {

bool RequestQueue::before(const Waiting& a, const Waiting& b) {
  return std::tuple(-a.priority, !a.rerun, a.deadline_ns, a.arrival) <
         std::tuple(-b.priority, !b.rerun, b.deadline_ns, b.arrival);
}

std::uint32_t RequestQueue::first_of(const Flow& flow) {
  return flow.turns % kOldestTurn == kOldestTurn - 1 ? flow.by_age.front() : flow.heap.front();
}

std::size_t RequestQueue::waiting_of(std::uint32_t client) const {
  const std::uint32_t flow = flow_of(client);
  return flow == kNoSlot ? 0 : flows_[flow].heap.size();
}

std::uint32_t RequestQueue::youngest_apart(const WaitingTable& table) const {
  std::uint32_t youngest = kNoSlot;
  std::size_t most = 0;
  for (const Client& client : clients_) {
    if (!client.is_apart || client.flow == kNoSlot) continue;
    const Flow& flow = flows_[client.flow];
    if (flow.heap.size() <= most || table[flow.by_age.back()].rerun) continue;
    most = flow.heap.size();
    youngest = flow.by_age.back();
  }
  return youngest;
}

void RequestQueue::push(WaitingTable& table, std::uint32_t slot) {
  undo_turn();
  WaitingEntry& entry = table[slot];
  entry.cost_ns = std::clamp<std::uint64_t>(entry.cost_ns, 1, kMostCostNs);
  entry.flow = flow_of(entry.client);
  if (entry.flow == kNoSlot) entry.flow = new_flow(entry);
  Flow& flow = flows_[entry.flow];
  flow.work_ns += entry.cost_ns;
  if (!is_held(entry.flow)) work_ns_ += entry.cost_ns;
  apart_ += clients_[entry.client].is_apart;
  flow.heap.push_back(slot);
  sift_up(table, flow.heap, flow.heap.size() - 1);
  if (slot >= age_links_.size()) age_links_.resize(slot + 1);
  entry.rerun ? flow.by_age.push_front(age_links_, slot) : flow.by_age.push_back(age_links_, slot);
  ++size_;
}

void RequestQueue::remove(WaitingTable& table, std::uint32_t slot) {
  undo_turn();
  WaitingEntry& entry = table[slot];
  Flow& flow = flows_[entry.flow];
  flow.work_ns -= entry.cost_ns;
  if (!is_held(entry.flow)) work_ns_ -= entry.cost_ns;
  apart_ -= clients_[entry.client].is_apart;
  flow.by_age.remove(age_links_, slot);
  const std::size_t place = entry.place;
  const std::uint32_t last = flow.heap.back();
  flow.heap.pop_back();
  if (last != slot) {
    flow.heap[place] = last;
    table[last].place = static_cast<std::uint32_t>(place);
    sift_up(table, flow.heap, place);
    sift_down(table, flow.heap, table[last].place);
  }
  if (flow.heap.empty()) {
    if (!is_held(entry.flow)) leave_ring(entry.flow);
    Client& client = clients_[flow.client];
    client.flow = kNoSlot;
    client.is_apart = client.is_held;
    free_flows_.push_back(entry.flow);
  }
  entry.flow = kNoSlot;
  if (--size_ == 0) ++period_;
}

// Deficit round robin. The quantum is the price of the cheapest first request of the last round, so that no client gets more
// turns in a row than necessary. If nobody can pay after a round, the next quantum is the least that somebody still needs.
std::uint32_t RequestQueue::next(const WaitingTable& table) {
  if (waiting_flows_ == 0) return kNoSlot;
  if (!std::exchange(is_asked_, true)) round_before_ = round_;
  for (;;) {
    const std::uint32_t at = ring_.front();
    Flow& flow = flows_[at];
    const std::uint32_t slot = first_of(flow);
    const std::uint64_t price_ns = table[slot].price_ns();
    round_.cheapest_ns = std::min(round_.cheapest_ns, price_ns);
    if (flow.deficit_ns >= static_cast<std::int64_t>(price_ns)) {
      round_.needed_ns = 0;
      return slot;
    }
    visits_.push_back({at, flow.deficit_ns, clients_[flow.client].owed_ns});
    give_quantum(flow, static_cast<std::int64_t>(price_ns));
    round_.needed_ns =
        std::min(round_.needed_ns,
                 price_ns + static_cast<std::uint64_t>(std::max<std::int64_t>(owed_by(flow.client), 0) - flow.deficit_ns));
    ring_.remove(ring_links_, at);
    ring_.push_back(ring_links_, at);
    if (round_.left > 1) {
      --round_.left;
      continue;
    }
    round_.last_cheapest_ns = std::exchange(round_.cheapest_ns, kNoDeadline);
    const std::uint64_t needed_ns = std::exchange(round_.needed_ns, kNoDeadline);
    round_.quantum_ns = needed_ns > 0 ? needed_ns : round_.last_cheapest_ns;
    round_.left = waiting_flows_;
  }
}

// The rounds that next() made do not count, because nobody took the request: other clients may come until somebody does.
void RequestQueue::undo_turn() {
  if (!std::exchange(is_asked_, false)) return;
  for (; !visits_.empty(); visits_.pop_back()) {
    const Visit& visit = visits_.back();
    ring_.remove(ring_links_, visit.flow);
    ring_.push_front(ring_links_, visit.flow);
    flows_[visit.flow].deficit_ns = visit.deficit_ns;
    clients_[flows_[visit.flow].client].owed_ns = visit.owed_ns;
  }
  round_ = round_before_;
}

void RequestQueue::take(WaitingTable& table, std::uint32_t slot) {
  Flow& flow = flows_[table[slot].flow];
  if (is_asked_ && table[slot].flow == ring_.front() && slot == first_of(flow)) {
    is_asked_ = false;
    visits_.clear();
  }
  ++flow.turns;
  take_along(table, slot);
}

void RequestQueue::take_along(WaitingTable& table, std::uint32_t slot) {
  undo_turn();
  flows_[table[slot].flow].deficit_ns -= static_cast<std::int64_t>(table[slot].price_ns());
  remove(table, slot);
}

void RequestQueue::settle(const Waiting& request, std::uint64_t took_ns) {
  if (size_ == 0) return;  // the run kept nobody waiting
  undo_turn();
  const auto paid_ns = static_cast<std::int64_t>(request.price_ns());
  add_debt(request.client, static_cast<std::int64_t>(std::min(took_ns, kMostCostNs)) - paid_ns);
  clients_[request.client].owed_ns = std::max(clients_[request.client].owed_ns, -paid_ns);
}

void RequestQueue::charge(const Waiting& request, std::uint64_t took_ns) {
  if (size_ == 0) return;
  undo_turn();
  add_debt(request.client, static_cast<std::int64_t>(std::min(took_ns, kMostCostNs)));
}

void RequestQueue::add_debt(std::uint32_t at, std::int64_t ns) {
  Client& client = clients_[at];
  if (std::exchange(client.period, period_) != period_) client.owed_ns = 0;
  client.owed_ns = std::min(client.owed_ns + ns, static_cast<std::int64_t>(kMostCostNs));
}

void RequestQueue::forget_client(std::uint32_t client) {
  undo_turn();
  if (client < clients_.size()) clients_[client].owed_ns = 0;
}

std::int64_t RequestQueue::owed_by(std::uint32_t client) const {
  return client < clients_.size() && clients_[client].period == period_ ? clients_[client].owed_ns : 0;
}

// The quantum pays the client's debts first. The rest, and what the client has paid too much, is for its first request, but not
// more than that one's price: a large quantum gives no credit for later.
void RequestQueue::give_quantum(Flow& flow, std::int64_t price_ns) {
  const auto quantum_ns = static_cast<std::int64_t>(round_.quantum_ns);
  const std::int64_t owed_ns = owed_by(flow.client);
  const std::int64_t paid_ns = owed_ns > 0
                                   ? std::min(owed_ns, quantum_ns)
                                   : std::max(owed_ns, std::min<std::int64_t>(flow.deficit_ns + quantum_ns - price_ns, 0));
  if (paid_ns != 0) clients_[flow.client].owed_ns -= paid_ns;
  flow.deficit_ns = std::min(flow.deficit_ns + quantum_ns - paid_ns, price_ns);
}

std::uint64_t RequestQueue::work_before_ns(const WaitingTable& table, const Waiting& newcomer, bool exact) const {
  const std::uint32_t at = flow_of(newcomer.client);
  std::uint64_t own_ns = 0, others_ns = work_ns_;
  if (at != kNoSlot) {
    const Flow& flow = flows_[at];
    own_ns = flow.work_ns;
    if (!is_held(at)) others_ns -= flow.work_ns;
    if (exact) {
      own_ns = 0;
      for (const std::uint32_t slot : flow.heap) own_ns += before(newcomer, table[slot]) ? 0 : table[slot].cost_ns;
    }
  }
  // Until this client can pay, every other client is given as much time as this one, and at least one quantum.
  const std::uint64_t others = waiting_flows_ - (at != kNoSlot && !is_held(at));
  const auto needs_ns = static_cast<std::int64_t>(own_ns + std::max(newcomer.price_ns(), round_.last_cheapest_ns));
  const auto share_ns = static_cast<std::uint64_t>(
      std::max(needs_ns + owed_by(newcomer.client), static_cast<std::int64_t>(round_.last_cheapest_ns)));
  return own_ns + (others > 0 && share_ns < others_ns / others ? others * share_ns : others_ns);
}

std::uint32_t RequestQueue::new_flow(const Waiting& waiting) {
  if (free_flows_.empty()) {
    free_flows_.push_back(static_cast<std::uint32_t>(flows_.size()));
    flows_.emplace_back();
    ring_links_.emplace_back();
  }
  if (waiting.client >= clients_.size()) clients_.resize(waiting.client + 1);
  const std::uint32_t at = free_flows_.back();
  free_flows_.pop_back();
  flows_[at].client = waiting.client;
  flows_[at].turns = 0;
  clients_[waiting.client].flow = at;
  if (!is_held(at)) enter_ring(at, waiting);
  return at;
}

void RequestQueue::enter_ring(std::uint32_t at, const Waiting& first) {
  const std::uint64_t price_ns = first.price_ns();
  if (waiting_flows_ == 0) round_ = {.quantum_ns = price_ns, .last_cheapest_ns = price_ns};
  round_.quantum_ns = std::min(round_.quantum_ns, price_ns);
  round_.last_cheapest_ns = std::min(round_.last_cheapest_ns, price_ns);
  Flow& flow = flows_[at];
  // The flow comes last in the ring, so it gets its first quantum at once. If its client has debts, it gets nothing: only rounds
  // pay debts.
  flow.deficit_ns = 0;
  if (owed_by(flow.client) <= 0) give_quantum(flow, static_cast<std::int64_t>(price_ns));
  ring_.push_back(ring_links_, at);
  ++waiting_flows_;
  ++round_.left;
}

void RequestQueue::leave_ring(std::uint32_t at) {
  const Flow& flow = flows_[at];
  if (flow.deficit_ns < 0) add_debt(flow.client, -flow.deficit_ns);  // its requests ran in batches of others
  ring_.remove(ring_links_, at);
  round_.left = std::min(round_.left, --waiting_flows_);
}

void RequestQueue::set_held(const WaitingTable& table, std::uint32_t place, bool is_held) {
  undo_turn();
  if (place >= clients_.size()) clients_.resize(place + 1);
  Client& client = clients_[place];
  if (std::exchange(client.is_held, is_held) == is_held) return;
  const std::uint32_t at = client.flow;
  if (is_held && !client.is_apart) apart_ += waiting_of(place);
  client.is_apart = is_held || at != kNoSlot;
  if (at == kNoSlot) return;
  if (is_held) {
    leave_ring(at);
    work_ns_ -= flows_[at].work_ns;
  } else {
    enter_ring(at, table[first_of(flows_[at])]);
    work_ns_ += flows_[at].work_ns;
  }
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

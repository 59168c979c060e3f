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

std::uint32_t RequestQueue::first_of(const Line& line) {
  return line.turns % kOldestTurn == kOldestTurn - 1 ? line.by_age.front() : line.heap.front();
}

std::size_t RequestQueue::waiting_of(std::uint32_t asker) const {
  const std::uint32_t line = line_of(asker);
  return line == kNoSlot ? 0 : lines_[line].heap.size();
}

std::vector<std::uint32_t> RequestQueue::youngest_apart(const WaitingTable& table, std::size_t count) const {
  struct Candidate {
    std::size_t waiting;
    std::uint32_t asker, youngest;
  };
  const auto has_less = [](const Candidate& a, const Candidate& b) {
    return std::tuple(a.waiting, b.asker) < std::tuple(b.waiting, a.asker);
  };
  const auto may_go = [&](std::uint32_t slot) { return slot != kNoSlot && !table[slot].rerun; };
  std::vector<Candidate> heap;
  for (std::uint32_t place = 0; place < askers_.size(); ++place) {
    const Asker& asker = askers_[place];
    if (!asker.is_apart || asker.line == kNoSlot) continue;
    const Line& line = lines_[asker.line];
    if (may_go(line.by_age.back())) heap.push_back({line.heap.size(), place, line.by_age.back()});
  }
  std::ranges::make_heap(heap, has_less);
  std::vector<std::uint32_t> youngest;
  while (youngest.size() < count && !heap.empty()) {
    std::ranges::pop_heap(heap, has_less);
    Candidate& most = heap.back();
    youngest.push_back(most.youngest);
    most.youngest = age_links_[most.youngest].previous;
    --most.waiting;
    if (may_go(most.youngest))
      std::ranges::push_heap(heap, has_less);
    else
      heap.pop_back();
  }
  return youngest;
}

void RequestQueue::push(WaitingTable& table, std::uint32_t slot) {
  undo_turn();
  WaitingEntry& entry = table[slot];
  entry.cost_ns = std::clamp<std::uint64_t>(entry.cost_ns, 1, kMostCostNs);
  entry.line = line_of(entry.asker);
  if (entry.line == kNoSlot) entry.line = new_line(entry);
  Line& line = lines_[entry.line];
  line.work_ns += entry.cost_ns;
  if (!is_held(entry.line)) work_ns_ += entry.cost_ns;
  apart_ += askers_[entry.asker].is_apart;
  line.heap.push_back(slot);
  sift_up(table, line.heap, line.heap.size() - 1);
  if (slot >= age_links_.size()) age_links_.resize(slot + 1);
  entry.rerun ? line.by_age.push_front(age_links_, slot) : line.by_age.push_back(age_links_, slot);
  ++size_;
}

void RequestQueue::remove(WaitingTable& table, std::uint32_t slot) {
  undo_turn();
  WaitingEntry& entry = table[slot];
  Line& line = lines_[entry.line];
  line.work_ns -= entry.cost_ns;
  if (!is_held(entry.line)) work_ns_ -= entry.cost_ns;
  apart_ -= askers_[entry.asker].is_apart;
  line.by_age.remove(age_links_, slot);
  const std::size_t place = entry.place;
  const std::uint32_t last = line.heap.back();
  line.heap.pop_back();
  if (last != slot) {
    line.heap[place] = last;
    table[last].place = static_cast<std::uint32_t>(place);
    sift_up(table, line.heap, place);
    sift_down(table, line.heap, table[last].place);
  }
  if (line.heap.empty()) {
    if (!is_held(entry.line)) leave_ring(entry.line);
    Asker& asker = askers_[line.asker];
    asker.line = kNoSlot;
    asker.is_apart = asker.is_held;
    free_lines_.push_back(entry.line);
  }
  entry.line = kNoSlot;
  --size_;
}

// Deficit round robin. The quantum is the price of the cheapest first request of the last round, so that no asker gets more
// turns in a row than necessary. If nobody can pay after a round, the next quantum is the least that somebody still needs.
std::uint32_t RequestQueue::next(const WaitingTable& table) {
  if (waiting_lines_ == 0) return kNoSlot;
  if (!std::exchange(is_asked_, true)) round_before_ = round_;
  for (;;) {
    const std::uint32_t at = ring_.front();
    Line& line = lines_[at];
    const std::uint32_t slot = first_of(line);
    const std::uint64_t price_ns = table[slot].price_ns();
    round_.cheapest_ns = std::min(round_.cheapest_ns, price_ns);
    if (line.deficit_ns >= static_cast<std::int64_t>(price_ns)) {
      round_.needed_ns = 0;
      return slot;
    }
    visits_.push_back({at, line.deficit_ns, askers_[line.asker].owed_ns});
    give_quantum(line, static_cast<std::int64_t>(price_ns));
    round_.needed_ns =
        std::min(round_.needed_ns,
                 price_ns + static_cast<std::uint64_t>(std::max<std::int64_t>(owed_by(line.asker), 0) - line.deficit_ns));
    ring_.remove(ring_links_, at);
    ring_.push_back(ring_links_, at);
    if (round_.left > 1) {
      --round_.left;
      continue;
    }
    round_.last_cheapest_ns = std::exchange(round_.cheapest_ns, kNoDeadline);
    const std::uint64_t needed_ns = std::exchange(round_.needed_ns, kNoDeadline);
    round_.quantum_ns = needed_ns > 0 ? needed_ns : round_.last_cheapest_ns;
    round_.left = waiting_lines_;
  }
}

// The rounds that next() made do not count, because nobody took the request: other askers may come until somebody does.
void RequestQueue::undo_turn() {
  if (!std::exchange(is_asked_, false)) return;
  for (; !visits_.empty(); visits_.pop_back()) {
    const Visit& visit = visits_.back();
    ring_.remove(ring_links_, visit.line);
    ring_.push_front(ring_links_, visit.line);
    lines_[visit.line].deficit_ns = visit.deficit_ns;
    askers_[lines_[visit.line].asker].owed_ns = visit.owed_ns;
  }
  round_ = round_before_;
}

void RequestQueue::take(WaitingTable& table, std::uint32_t slot) {
  Line& line = lines_[table[slot].line];
  if (is_asked_ && table[slot].line == ring_.front() && slot == first_of(line)) {
    is_asked_ = false;
    visits_.clear();
  }
  ++line.turns;
  take_along(table, slot);
}

void RequestQueue::take_along(WaitingTable& table, std::uint32_t slot) {
  undo_turn();
  lines_[table[slot].line].deficit_ns -= static_cast<std::int64_t>(table[slot].price_ns());
  remove(table, slot);
}

void RequestQueue::settle(const Waiting& request, std::uint64_t took_ns) {
  if (waiting_lines_ == 0) return;  // the run kept nobody waiting who has turns
  undo_turn();
  const auto paid_ns = static_cast<std::int64_t>(request.price_ns());
  add_debt(request.asker, static_cast<std::int64_t>(std::min(took_ns, kMostCostNs)) - paid_ns);
  askers_[request.asker].owed_ns = std::max(askers_[request.asker].owed_ns, -paid_ns);
}

void RequestQueue::charge(const Waiting& request, std::uint64_t took_ns) {
  if (waiting_lines_ == 0) return;
  undo_turn();
  add_debt(request.asker, static_cast<std::int64_t>(std::min(took_ns, kMostCostNs)));
}

void RequestQueue::add_debt(std::uint32_t at, std::int64_t ns) {
  Asker& asker = askers_[at];
  if (std::exchange(asker.period, period_) != period_) asker.owed_ns = 0;
  asker.owed_ns = std::min(asker.owed_ns + ns, static_cast<std::int64_t>(kMostCostNs));
}

void RequestQueue::forget(std::uint32_t asker) {
  undo_turn();
  if (asker < askers_.size()) askers_[asker].owed_ns = 0;
}

std::int64_t RequestQueue::owed_by(std::uint32_t asker) const {
  return asker < askers_.size() && askers_[asker].period == period_ ? askers_[asker].owed_ns : 0;
}

// The quantum pays the asker's debts first. The rest, and what the asker has paid too much, is for its first request, but not
// more than that one's price: a large quantum gives no credit for later.
void RequestQueue::give_quantum(Line& line, std::int64_t price_ns) {
  const auto quantum_ns = static_cast<std::int64_t>(round_.quantum_ns);
  const std::int64_t owed_ns = owed_by(line.asker);
  const std::int64_t paid_ns = owed_ns > 0
                                   ? std::min(owed_ns, quantum_ns)
                                   : std::max(owed_ns, std::min<std::int64_t>(line.deficit_ns + quantum_ns - price_ns, 0));
  if (paid_ns != 0) askers_[line.asker].owed_ns -= paid_ns;
  line.deficit_ns = std::min(line.deficit_ns + quantum_ns - paid_ns, price_ns);
}

std::uint64_t RequestQueue::work_before_ns(const WaitingTable& table, const Waiting& newcomer, bool exact) const {
  const std::uint32_t at = line_of(newcomer.asker);
  std::uint64_t own_ns = 0, others_ns = work_ns_;
  if (at != kNoSlot) {
    const Line& line = lines_[at];
    own_ns = line.work_ns;
    if (!is_held(at)) others_ns -= line.work_ns;
    if (exact) {
      own_ns = 0;
      for (const std::uint32_t slot : line.heap) own_ns += before(newcomer, table[slot]) ? 0 : table[slot].cost_ns;
    }
  }
  // Until this asker can pay, every other asker is given as much time as this one, and at least one quantum.
  const std::uint64_t others = waiting_lines_ - (at != kNoSlot && !is_held(at));
  const auto needs_ns = static_cast<std::int64_t>(own_ns + std::max(newcomer.price_ns(), round_.last_cheapest_ns));
  const auto share_ns = static_cast<std::uint64_t>(
      std::max(needs_ns + owed_by(newcomer.asker), static_cast<std::int64_t>(round_.last_cheapest_ns)));
  return own_ns + (others > 0 && share_ns < others_ns / others ? others * share_ns : others_ns);
}

std::uint32_t RequestQueue::new_line(const Waiting& waiting) {
  if (free_lines_.empty()) {
    free_lines_.push_back(static_cast<std::uint32_t>(lines_.size()));
    lines_.emplace_back();
    ring_links_.emplace_back();
  }
  if (waiting.asker >= askers_.size()) askers_.resize(waiting.asker + 1);
  const std::uint32_t at = free_lines_.back();
  free_lines_.pop_back();
  lines_[at].asker = waiting.asker;
  lines_[at].turns = 0;
  askers_[waiting.asker].line = at;
  if (!is_held(at)) enter_ring(at, waiting);
  return at;
}

void RequestQueue::enter_ring(std::uint32_t at, const Waiting& first) {
  const std::uint64_t price_ns = first.price_ns();
  if (waiting_lines_ == 0) round_ = {.quantum_ns = price_ns, .last_cheapest_ns = price_ns};
  round_.quantum_ns = std::min(round_.quantum_ns, price_ns);
  round_.last_cheapest_ns = std::min(round_.last_cheapest_ns, price_ns);
  Line& line = lines_[at];
  // The line comes last in the ring, so it gets its first quantum at once. If its asker has debts, it gets nothing: only rounds
  // pay debts.
  line.deficit_ns = 0;
  if (owed_by(line.asker) <= 0) give_quantum(line, static_cast<std::int64_t>(price_ns));
  ring_.push_back(ring_links_, at);
  ++waiting_lines_;
  ++round_.left;
}

void RequestQueue::leave_ring(std::uint32_t at) {
  const Line& line = lines_[at];
  if (line.deficit_ns < 0) add_debt(line.asker, -line.deficit_ns);  // its requests ran in batches of others
  ring_.remove(ring_links_, at);
  round_.left = std::min(round_.left, --waiting_lines_);
  if (waiting_lines_ == 0) ++period_;
}

void RequestQueue::set_held(const WaitingTable& table, std::uint32_t place, bool is_held) {
  undo_turn();
  if (place >= askers_.size()) askers_.resize(place + 1);
  Asker& asker = askers_[place];
  if (std::exchange(asker.is_held, is_held) == is_held) return;
  const std::uint32_t at = asker.line;
  if (is_held && !asker.is_apart) apart_ += waiting_of(place);
  asker.is_apart = is_held || at != kNoSlot;
  if (at == kNoSlot) return;
  if (is_held) {
    leave_ring(at);
    work_ns_ -= lines_[at].work_ns;
  } else {
    enter_ring(at, table[first_of(lines_[at])]);
    work_ns_ += lines_[at].work_ns;
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

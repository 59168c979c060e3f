// Lets the explorer look into a ledger with one model: whether it is consistent, and a hash of its state that is independent of
// ids.
#pragma once

#include <algorithm>
#include <bit>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shm/base/format.hpp"
#include "supervisor/route/ledger.hpp"

namespace shoal::supervisor {

/// The state of a request, as in the picture in ledger.hpp.
enum class Place : std::uint8_t { kNowhere, kQueued, kSuspected, kLeased, kParked, kAlone, kEnding };
inline constexpr std::size_t kPlaces = 7;
constexpr const char* place_name(Place place) {
  constexpr const char* kNames[] = {"nowhere", "queued", "suspected", "leased", "parked", "alone", "ending"};
  return kNames[static_cast<std::size_t>(place)];
}

/// A hash of a sequence of numbers.
class StateHash {
 public:
  void add(std::uint64_t value) {
    hash_ = (hash_ ^ value) * 0x9e3779b97f4a7c15;
    hash_ ^= hash_ >> 32;
  }
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0x243f6a8885a308d3;
};

struct LedgerState {
  static constexpr std::uint64_t kShape = 7;  // of every request that is explored

  static Place place_of(const Ledger& ledger, RequestId request) {
    const Ledger::Entry* entry = ledger.find(request);
    if (!entry) return Place::kNowhere;
    if (entry->answered) return Place::kEnding;
    if (entry->state == Ledger::State::kQueued) return Place::kQueued;
    if (entry->state == Ledger::State::kSuspected) return Place::kSuspected;
    const Ledger::Group& group = ledger.groups_[entry->group];
    return group.parked ? Place::kParked : group.isolated ? Place::kAlone : Place::kLeased;
  }
  /// Makes the ledger believe that the slot has been used that often. The slot must be free.
  static void set_generation(Ledger& ledger, std::uint32_t slot, std::uint32_t generation) {
    ledger.entries_[slot].generation = generation;
  }
  /// What the client, or its flow, owes the others of the model for time that it used and has not paid for; negative: it has paid
  /// too much.
  static std::int64_t owed_ns(const Ledger& ledger, ClientId client, std::uint64_t flow = 0) {
    return ledger.models_[0].queue.owed_by(ledger.askers_.find(client, flow));
  }
  static const Askers& askers(const Ledger& ledger) { return ledger.askers_; }
  static bool breaker_rests(const Ledger& ledger) { return !ledger.models_[0].breaker.closed(); }
  /// The worker that owes the answer to a probe.
  static std::optional<Incarnation> prober(const Ledger& ledger) {
    const Breaker& breaker = ledger.models_[0].breaker;
    return breaker.owed_since_ns() != 0 ? std::optional(breaker.prober()) : std::nullopt;
  }

  /// Adds everything that decides what happens next. `requests` are in the explorer's order (0 = not admitted yet); times are
  /// relative to now.
  static void hash(const Ledger& ledger, std::span<const RequestId> requests, std::uint64_t now_ns, StateHash& hash) {
    const Ledger::ModelRecord& model = ledger.models_[0];
    const auto worker_number = [&](Incarnation incarnation) {
      const auto at = std::ranges::find(model.workers, incarnation, &Ledger::Worker::incarnation) - model.workers.begin();
      return at == static_cast<std::ptrdiff_t>(model.workers.size()) ? 255u : static_cast<unsigned>(at);
    };
    const auto number_of = [&](std::uint32_t slot) {
      return static_cast<std::uint64_t>(std::ranges::find(requests, ledger.id_of(slot)) - requests.begin());
    };
    const auto ahead = [&](std::uint64_t time_ns) {
      return time_ns == kNoDeadline ? 99 : time_ns < now_ns ? 98 : time_ns - now_ns;
    };
    for (const RequestId request : requests) {
      const Ledger::Entry* entry = request ? ledger.find(request) : nullptr;
      hash.add(entry ? 1 : 0);
      if (!entry) continue;
      const WaitingEntry& waiting = ledger.waiting_[slot_of(request)];
      hash.add(static_cast<std::uint64_t>(entry->state) | entry->answered << 3 | entry->client_gone << 4 | entry->suspect << 5 |
               entry->urgent << 6 | entry->counts_death << 7 | entry->was_leased << 8 | std::uint64_t{entry->begun} << 16 |
               std::uint64_t{entry->blamed} << 24 | std::uint64_t{entry->attempt} << 32);
      hash.add(now_ns - entry->admitted_ns);
      hash.add(ahead(waiting.deadline_ns));
      hash.add(waiting.rerun);
      hash.add(waiting.price_ns());
      if (entry->state == Ledger::State::kLeased) {
        hash.add(worker_number(entry->lease.incarnation) * 64 + entry->lease.lane);
        hash.add(now_ns - entry->leased_ns);
      }
      // Its age relative to the others.
      hash.add(static_cast<std::uint64_t>(std::ranges::count_if(requests, [&](RequestId other) {
        return other && ledger.find(other) && ledger.waiting_[slot_of(other)].arrival < waiting.arrival;
      })));
    }
    for (const Ledger::Worker& worker : model.workers) {
      hash.add(worker.routable | worker.condemned << 1 | worker.dismissed << 2 | (worker.incarnation == model.ward) << 3);
      for (const Ledger::Lane& lane : worker.lanes) {
        hash.add(lane.count);
        if (lane.count > 0) hash.add(now_ns - lane.since_ns);
        const auto add_group = [&](std::uint32_t at) {
          const Ledger::Group& group = ledger.groups_[at];
          hash.add(group.parked | group.isolated << 1 | std::uint64_t{group.rows} << 2 | std::uint64_t{group.ran_rows} << 8);
          for (std::uint32_t slot = group.members.front(); slot != kNoSlot; slot = ledger.lists_[slot].next)
            hash.add(number_of(slot));
          hash.add(~0u);
        };
        for (std::uint32_t i = 0; i < lane.count; ++i) add_group(lane.held[i]);
        hash.add(~1u);
        for (std::uint32_t at = lane.parked.front(); at != kNoSlot; at = ledger.group_links_[at].next) add_group(at);
      }
      hash.add(~2u);
    }
    for (std::uint32_t slot = model.suspects.front(); slot != kNoSlot; slot = ledger.lists_[slot].next) hash.add(number_of(slot));
    hash.add(~3u);
    // Whose turn it is: the ring, with the deficits and debts of its askers.
    const RequestQueue& queue = model.queue;
    hash.add(queue.round_.quantum_ns);
    hash.add(queue.round_.last_cheapest_ns);
    hash.add(queue.round_.cheapest_ns);
    hash.add(queue.round_.needed_ns);
    for (std::uint32_t at = queue.ring_.front(); at != kNoSlot; at = queue.ring_links_[at].next) {
      const RequestQueue::Line& line = queue.lines_[at];
      hash.add(number_of(RequestQueue::first_of(line)));
      hash.add(static_cast<std::uint64_t>(line.deficit_ns));
      hash.add(static_cast<std::uint64_t>(queue.owed_by(line.asker)));
    }
    hash.add(~4u);
    hash.add(ahead(model.wait_until_ns));
    hash.add((model.failure.empty() ? 0u : 1u) | (model.draining.empty() ? 0u : 2u) | ledger.draining_ << 2 | model.in_use << 3);
    for (const auto& one : model.quarantine) {
      hash.add(one.hash);
      hash.add(ahead(one.expires_ns));
    }
    hash.add(model.breaker.closed() | model.breaker.probing() << 1 | model.breaker.crashes(now_ns) << 2);
    if (!model.breaker.closed()) {
      hash.add(ahead(model.breaker.until_ns()));
      hash.add(worker_number(model.breaker.prober()) << 1 | (model.breaker.owed_since_ns() != 0));
    }
    for (const std::uint32_t rows : {1u, 2u}) {
      for (const bool joins : {false, true}) {
        const CostEstimates::Price price = model.costs.price(kShape, rows, joins, now_ns);
        hash.add(price.ns << 8 | price.halvings);
      }
      hash.add(model.costs.of(kShape, rows).most_ns());
      hash.add(model.costs.refusing_ns(kShape, rows, now_ns));
    }
  }

  /// Returns a description of the first inconsistency; empty if there is none.
  static std::string inconsistency(const Ledger& ledger) {
    const Ledger::ModelRecord& model = ledger.models_[0];
    std::size_t live = 0, queued = 0, suspected = 0, leased = 0, urgent = 0, rows = 0, of_clients = 0, in_lanes = 0, timed = 0;
    for (std::uint32_t slot = 0; slot < ledger.entries_.size(); ++slot) {
      const Ledger::Entry& entry = ledger.entries_[slot];
      if (entry.state == Ledger::State::kFree) continue;
      ++live;
      queued += entry.state == Ledger::State::kQueued;
      suspected += entry.state == Ledger::State::kSuspected;
      leased += entry.state == Ledger::State::kLeased;
      if (entry.state == Ledger::State::kQueued) {
        urgent += entry.urgent;
        rows += Ledger::joining_rows(model, entry);
      }
      timed += !entry.answered && ledger.waiting_[slot].deadline_ns != kNoDeadline;
      if (entry.answered && entry.state != Ledger::State::kLeased) return "a request that is answered waits again";
      if (entry.suspect && entry.state == Ledger::State::kQueued) return "a suspect waits among the others";
      if (entry.client_gone && !entry.answered) return "a request of a dead client is not given up";
      if ((entry.group != kNoSlot) != (entry.state == Ledger::State::kLeased))
        return "a request has a group but no lease, or a lease but no group";
    }
    if (const std::string why = inconsistency(ledger.askers_, of_clients); !why.empty()) return why;
    for (const Ledger::Worker& worker : model.workers) {
      std::size_t held = 0;
      for (std::uint32_t at = 0; at < worker.lanes.size(); ++at) {
        const Ledger::Lane& lane = worker.lanes[at];
        std::uint64_t work_ns = 0;
        const auto look = [&](std::uint32_t number, bool parked) -> std::string {
          const Ledger::Group& group = ledger.groups_[number];
          std::size_t members = 0;
          for (std::uint32_t slot = group.members.front(); slot != kNoSlot; slot = ledger.lists_[slot].next) {
            ++members;
            if (ledger.entries_[slot].state != Ledger::State::kLeased || ledger.entries_[slot].group != number ||
                ledger.entries_[slot].lease != LaneRef{worker.incarnation, at})
              return "a lane's group holds a request that is not leased to it";
          }
          if (members != group.count || members == 0) return "a group does not have as many members as it counts";
          if (group.parked != parked) return "a parked group takes credit, or another group takes none";
          if (group.isolated && (worker.held != 1 || (worker.incarnation != model.ward && !worker.condemned)))
            return "a suspect is not alone on its worker";
          held += members;
          return {};
        };
        for (std::uint32_t i = 0; i < lane.count; ++i) {
          if (const std::string why = look(lane.held[i], false); !why.empty()) return why;
          work_ns += ledger.groups_[lane.held[i]].cost_ns;
        }
        std::uint32_t parked = 0;
        for (std::uint32_t number = lane.parked.front(); number != kNoSlot; number = ledger.group_links_[number].next) {
          if (const std::string why = look(number, true); !why.empty()) return why;
          ++parked;
        }
        if (parked != lane.parked_count) return "the parked groups of a lane are counted differently";
        if (work_ns != lane.work_ns) return "a lane's predicted work is not the sum of its groups";
        if (lane.count > Ledger::kMaxCredits) return "a lane holds more than its credits";
      }
      if (held != worker.held) return format("a worker holds {} requests and counts {}", held, worker.held);
      in_lanes += held;
    }
    if (live != ledger.used_ || live != model.live || live != of_clients) return "live requests are counted differently";
    if (queued != model.queue.size()) return "the length of the queue is not the number of queued requests";
    if (suspected != model.suspected) return "suspects are counted differently";
    if (leased != in_lanes || leased != model.running) return "leases are counted differently";
    if (urgent != model.urgent) return "urgent requests are counted differently";
    std::size_t waiting_rows = 0;
    for (const std::uint32_t of_shape : model.rows_by_shape) waiting_rows += of_shape;
    if (rows != waiting_rows) return "waiting rows are counted differently";
    if (timed != ledger.wheel_.size()) return "a deadline is missing from the wheel, or kept too long";
    std::size_t open_groups = ledger.groups_.size() - ledger.free_groups_.size(), seen_groups = 0;
    for (const Ledger::Worker& worker : model.workers)
      for (const Ledger::Lane& lane : worker.lanes) seen_groups += lane.count + lane.parked_count;
    if (open_groups != seen_groups) return "a group is lost";
    return idle_hands(model);
  }

 private:
  // Also counts the requests of all clients.
  static std::string inconsistency(const Askers& askers, std::size_t& requests) {
    std::size_t of_askers = 0, idle = 0, of_clients = 0;
    for (const auto& [key, place] : askers.places_) {
      const Askers::Asker& asker = askers.askers_[place];
      if (Askers::Key{asker.client, asker.flow} != key) return "a place belongs to another asker";
      if (asker.is_idle != (asker.requests == 0 && asker.flow != 0)) return "a flow is idle and has requests, or has none";
      of_askers += asker.requests;
      idle += asker.is_idle;
    }
    for (const auto& [client, owner] : askers.owners_) {
      for (std::uint32_t slot = askers.first_request(client); slot != kNoSlot; slot = askers.next_request(slot)) ++requests;
      const SlotList& places = askers.clients_[owner].askers;
      if (askers.clients_[owner].is_gone && askers.clients_[owner].requests.empty()) return "a dead client is not forgotten";
      for (std::uint32_t place = places.front(); place != kNoSlot; place = askers.client_links_[place].next) ++of_clients;
    }
    if (requests != of_askers) return "the lists of the clients are not as long as the counts of their askers";
    if (idle != askers.idle_count_) return "idle flows are counted differently";
    if (of_clients != askers.places_.size()) return "an asker is not in the list of its client";
    if (askers.places_.size() + askers.free_.size() != askers.askers_.size()) return "the place of an asker is lost";
    if (askers.owners_.size() + askers.free_clients_.size() != askers.clients_.size()) return "the place of a client is lost";
    return {};
  }
  // No request may wait while a lane could run it.
  static std::string idle_hands(const Ledger::ModelRecord& model) {
    if (!model.breaker.closed()) return {};
    bool may_isolate = false;
    for (const Ledger::Worker& worker : model.workers) {
      if (!worker.routable) continue;
      may_isolate |= model.ward == 0 || (worker.incarnation == model.ward && worker.held == 0);
      if (worker.incarnation == model.ward) continue;
      for (const Ledger::Lane& lane : worker.lanes) {
        if (lane.count == 0 && !model.queue.empty() && model.wait_until_ns == kNoDeadline)
          return "a request waits while a lane is idle";
      }
    }
    if (may_isolate && model.suspected > 0) return "a suspect waits while a worker could run it alone";
    return {};
  }
};

}  // namespace shoal::supervisor

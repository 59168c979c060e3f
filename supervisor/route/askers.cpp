#include "supervisor/route/askers.hpp"

#include <utility>

namespace shoal::supervisor {

std::uint32_t Askers::find(ClientId client, std::uint64_t flow) const {
  const auto found = places_.find({client, flow});
  return found == places_.end() ? kNoSlot : found->second;
}

std::uint32_t Askers::add(ClientId client, std::uint64_t flow) {
  std::uint32_t place = kNoSlot;
  if (flow != 0 && idle_count_ >= kMostIdle) {
    place = take_from_idlest({client, flow});
  } else {
    if (free_.empty()) {
      free_.push_back(static_cast<std::uint32_t>(askers_.size()));
      askers_.emplace_back();
      idle_links_.emplace_back();
      client_links_.emplace_back();
    }
    place = free_.back();
    free_.pop_back();
    places_[{client, flow}] = place;
  }
  const std::uint32_t owner = owner_of(client);
  askers_[place] = {.client = client, .flow = flow, .owner = owner};
  clients_[owner].askers.push_back(client_links_, place);
  return place;
}

std::uint32_t Askers::owner_of(ClientId client) {
  const auto [entry, is_new] = owners_.try_emplace(client);
  if (!is_new) return entry->second;
  if (free_clients_.empty()) {
    free_clients_.push_back(static_cast<std::uint32_t>(clients_.size()));
    clients_.emplace_back();
  }
  entry->second = free_clients_.back();
  free_clients_.pop_back();
  clients_[entry->second] = {.id = client};
  return entry->second;
}

// The map's entry is used again. So nothing is allocated even if every request of a gateway has a new flow.
std::uint32_t Askers::take_from_idlest(const Key& key) {
  const std::uint32_t place = idle_.front();
  const Asker& idlest = askers_[place];
  leave_idle(place);
  clients_[idlest.owner].askers.remove(client_links_, place);
  auto entry = places_.extract({idlest.client, idlest.flow});
  entry.key() = key;
  places_.insert(std::move(entry));
  return place;
}

void Askers::request_begins(std::uint32_t place, std::uint32_t slot) {
  Asker& asker = askers_[place];
  ++asker.requests;
  leave_idle(place);
  if (slot >= request_links_.size()) request_links_.resize(slot + 1);
  clients_[asker.owner].requests.push_back(request_links_, slot);
}

void Askers::request_ended(std::uint32_t place, std::uint32_t slot) {
  Asker& asker = askers_[place];
  Client& client = clients_[asker.owner];
  client.requests.remove(request_links_, slot);
  if (--asker.requests > 0) return;
  if (client.is_gone) {
    give_back(place);
    drop_if_over(asker.owner);
  } else if (asker.flow != 0) {
    asker.is_idle = true;
    idle_.push_back(idle_links_, place);
    ++idle_count_;
  }
}

void Askers::client_gone(ClientId id) {
  const auto found = owners_.find(id);
  if (found == owners_.end()) return;
  Client& client = clients_[found->second];
  client.is_gone = true;
  for (std::uint32_t place = client.askers.front(), next = kNoSlot; place != kNoSlot; place = next) {
    next = client_links_[place].next;
    if (askers_[place].requests == 0) give_back(place);
  }
  drop_if_over(found->second);
}

void Askers::give_back(std::uint32_t place) {
  const Asker& asker = askers_[place];
  leave_idle(place);
  clients_[asker.owner].askers.remove(client_links_, place);
  places_.erase({asker.client, asker.flow});
  free_.push_back(place);
}

void Askers::drop_if_over(std::uint32_t owner) {
  const Client& client = clients_[owner];
  if (!client.is_gone || !client.askers.empty()) return;
  owners_.erase(client.id);
  free_clients_.push_back(owner);
}

void Askers::leave_idle(std::uint32_t place) {
  if (!std::exchange(askers_[place].is_idle, false)) return;
  idle_.remove(idle_links_, place);
  --idle_count_;
}

std::uint32_t Askers::first_request(ClientId client) const {
  const auto found = owners_.find(client);
  return found == owners_.end() ? kNoSlot : clients_[found->second].requests.front();
}

}  // namespace shoal::supervisor

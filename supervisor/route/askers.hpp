// Who asks: a client, or one flow of a client that is a gateway. Turns, limits and debts go by asker.
//
//   client 7 ─┬─ flow 0   the client itself: keeps its place until the client is gone
//             ├─ flow 81  has requests
//             └─ flow 82  has none: idle ──▶ its place goes to a new flow when kMostIdle others have been idle for less long
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "supervisor/route/slot_list.hpp"

namespace shoal::supervisor {

using ClientId = std::uint64_t;

/// Each asker that has requests has a place, a small number that is used again: an index into other tables. An idle flow keeps
/// its place for a while, and with it what it owes. So the number of places is at most that of the clients and of the flows that
/// had requests at the same time, and kMostIdle. In the long run nothing is allocated, however many flows come and go.
///   Threads  thread-compatible. Copies are independent
class Askers {
 public:
  static constexpr std::size_t kMostIdle = 1024;

  /// Returns the place of an asker; kNoSlot if it has none.
  std::uint32_t find(ClientId client, std::uint64_t flow) const;
  /// Gives an asker that has no place one. Its request must follow. What other tables hold for this place is of another asker.
  std::uint32_t add(ClientId client, std::uint64_t flow);
  void request_begins(std::uint32_t place, std::uint32_t slot);
  /// The place may be given to another asker from now on.
  void request_ended(std::uint32_t place, std::uint32_t slot);
  /// The client is forgotten once its last request has ended.
  void client_gone(ClientId client);

  ClientId client(std::uint32_t place) const { return askers_[place].client; }
  std::uint64_t flow(std::uint32_t place) const { return askers_[place].flow; }
  /// The number of the asker's requests.
  std::size_t requests(std::uint32_t place) const { return askers_[place].requests; }
  /// The requests of all flows of a client, oldest first: kNoSlot ends them.
  std::uint32_t first_request(ClientId client) const;
  std::uint32_t next_request(std::uint32_t slot) const { return request_links_[slot].next; }
  /// The number of places that exist, used or not.
  std::size_t places() const { return askers_.size(); }

 private:
  friend struct LedgerState;  // tests/unit/supervisor/route
  struct Key {
    ClientId client = 0;
    std::uint64_t flow = 0;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const {
      std::uint64_t hash = (key.client * 0x9e3779b97f4a7c15 ^ key.flow) * 0xbf58476d1ce4e5b9;
      return static_cast<std::size_t>(hash ^ hash >> 32);
    }
  };
  struct Asker {
    ClientId client = 0;
    std::uint64_t flow = 0;
    std::uint32_t owner = 0;  // the client's number in clients_
    std::size_t requests = 0;
    bool is_idle = false;
  };
  struct Client {
    ClientId id = 0;
    SlotList requests;  // of slots
    SlotList askers;    // of places
    bool is_gone = false;
  };

  std::uint32_t owner_of(ClientId client);
  std::uint32_t take_from_idlest(const Key& key);
  void give_back(std::uint32_t place);
  void drop_if_over(std::uint32_t owner);
  void leave_idle(std::uint32_t place);

  std::vector<Asker> askers_;  // by place
  std::vector<std::uint32_t> free_;
  std::unordered_map<Key, std::uint32_t, KeyHash> places_;
  std::vector<Client> clients_;
  std::vector<std::uint32_t> free_clients_;
  std::unordered_map<ClientId, std::uint32_t> owners_;
  SlotList idle_;  // of places, the one that is idle for longest first
  std::size_t idle_count_ = 0;
  SlotLinkTable idle_links_;     // by place
  SlotLinkTable client_links_;   // by place: the askers of a client
  SlotLinkTable request_links_;  // by slot: the requests of a client
};

}  // namespace shoal::supervisor

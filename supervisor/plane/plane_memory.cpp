// Looks for clients and lanes that fill the daemon's memory with messages they never finish. libzmq 4.3.4 collects the frames of
// a message without a limit and shows none of them before the last one has come. So the size of the heap is compared with what is
// known.
#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <tuple>
#include <utility>
#include <vector>

#include "shm/base/errors.hpp"
#include "supervisor/plane/data_plane.hpp"
#include "supervisor/process/unread_connections.hpp"

namespace shoal::supervisor {
namespace {

constexpr std::uint64_t kAlwaysAllowed = 64 << 20;
constexpr std::uint64_t kPerClient = 128 << 10;  // what libzmq keeps for a connection, and some whole messages
// What a place for a request keeps when the request is over: the room of its head, and what the ledger has of it.
constexpr std::uint64_t kPerPlace = wire::Parcel::kKeptHead + 1024;
constexpr std::uint64_t kPerVersion = 16 << 20;  // of a model: its labels, its part of the ledger

// Memory that is shared with no file and no other process. 0 when it is not known.
std::uint64_t resident_bytes() {
  char text[128] = {};
  const UniqueFd file(::open("/proc/self/statm", O_RDONLY | O_CLOEXEC));
  if (!file || ::read(file.get(), text, sizeof text - 1) <= 0) return 0;
  unsigned long long size = 0, resident = 0, shared = 0;
  if (std::sscanf(text, "%llu %llu %llu", &size, &resident, &shared) != 3 || shared > resident) return 0;
  return (resident - shared) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

// What malloc() has handed out.
std::uint64_t heap_bytes() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

}  // namespace

/// Who may send messages: a client, or a lane.
struct DataPlane::Sender {
  std::uint64_t last_message_ns = 0;
  int socket_fd = -1;
  pid_t pid = -1;
  Client* client = nullptr;  // null: a lane
  LaneRef lane = {};
  RoutedVersion* version = nullptr;  // of the lane
  bool is_sending = false;
};

void DataPlane::note_heap_at_start() { heap_baseline_ = heap_at_start_ = heap_bytes(); }

// set_timers() begins the looks, and they end when nobody can fill the memory.
void DataPlane::watch_memory(std::uint64_t now_ns) {
  if (!may_be_filled()) {
    shortage_ = {};
    return;
  }
  if (versions_changed_ && !shortage_.is_short()) measure_heap();
  // At the last look libzmq may have held what lanes have sent and finished since. It holds that only for a moment, so it is not
  // counted.
  const std::uint64_t lane_bytes = traffic_.lane_bytes - std::exchange(lane_bytes_seen_, traffic_.lane_bytes);
  const std::uint64_t known = heap_baseline_ + cut_off_bytes_ + memory_.bytes() + requests_.size() * kPerPlace +
                              clients_->count() * kPerClient + (shortage_.is_short() ? lane_bytes : 0);
  const std::uint64_t most = known + memory_.unfinished_limit() + kAlwaysAllowed;
  // The heap is less than what is resident when malloc() keeps what was freed. Asking malloc() takes longer.
  std::uint64_t held = resident_bytes();
  if (held == 0 || held > most || shortage_.is_short()) held = heap_bytes();
  const bool may_put_out = shortage_.look(held, most, now_ns);
  memory_look_.set(now_ns + (shortage_.is_short() ? MemoryShortage::kShortestPauseNs : MemoryShortage::pause_ns(held, most)));
  if (may_put_out) put_out_hoarder(held - known, now_ns);
  perform();
}

// The outputs that a lane may send in one message: what a client may have of the memory, and no more than what is allowed before
// the lane counts as one that does not finish its message. 0 = no limit.
std::uint64_t DataPlane::longest_reply_bytes() const {
  return std::min(memory_.longest_request_bytes(), memory_.unfinished_limit() + (memory_.is_limited() ? kAlwaysAllowed : 0));
}

std::vector<DataPlane::Sender> DataPlane::all_senders() {
  std::vector<Sender> senders;
  clients_->for_each([&](Client& client) {
    if (client.state < Client::State::kWelcoming) return;  // nothing connects it with libzmq yet
    senders.push_back(
        {.last_message_ns = client.last_message_ns, .socket_fd = client.socket_fd, .pid = client.pid, .client = &client});
  });
  for (const auto& [incarnation, routed] : workers_) {
    const WorkerProcess* worker = routed.version->processes.find_worker(incarnation);
    if (!worker || worker->ended != EndReason::kNone) continue;
    for (std::uint32_t lane = 0; lane < routed.lanes.size(); ++lane) {
      senders.push_back({.last_message_ns = routed.lanes[lane].last_message_ns,
                         .socket_fd = routed.lanes[lane].socket_fd,
                         .pid = worker->pid,
                         .lane = {incarnation, lane},
                         .version = routed.version});
    }
  }
  auto unread = unread_connections();
  for (Sender& sender : senders) sender.is_sending = unread.contains(sender.socket_fd);
  // The connections of those that have never finished a message are among the others.
  for (const Sender& sender : senders) unread.erase(sender.socket_fd);
  for (Sender& sender : senders) {
    if (sender.socket_fd >= 0) continue;
    sender.is_sending = std::ranges::any_of(unread, [&](const auto& other) { return other.second == sender.pid; });
  }
  return senders;
}

// Disconnects a client, or kills the worker of a lane: one that is sending if there is any, else a client if there is any. Of
// those that are sending, the one that has finished no message for the longest time. Of those that are silent, the one that
// finished its last message last: whoever fills the memory has come or spoken shortly before, and most who are idle have been so
// for long. It is not known whose memory it is: the next look shows whether this one held it. kUnavailable, because a client that
// did not hold it may connect and send its requests again. It counts as an offence, because a client could fill the memory again
// and again. The requests of a killed worker run again.
void DataPlane::put_out_hoarder(std::uint64_t unfinished, std::uint64_t now_ns) {
  std::vector<Sender> senders = all_senders();
  std::erase_if(senders,
                [&](const Sender& sender) { return !shortage_.may_hold(sender.last_message_ns, sender.is_sending, now_ns); });
  const auto worst = std::ranges::min_element(senders, {}, [](const Sender& sender) {
    return std::tuple(!sender.is_sending, !sender.client, sender.is_sending ? sender.last_message_ns : ~sender.last_message_ns);
  });
  if (worst == senders.end()) return;
  shortage_.put_out();
  const std::string why = format(
      "does not finish its message, and messages that are not finished hold {} MiB of the daemon's memory: more than a "
      "quarter of [limits] total_message_mb and {} MiB",
      unfinished >> 20, kAlwaysAllowed >> 20);
  if (worst->client) {
    clients_->remember_offence(*worst->client);
    return clients_->disconnect(*worst->client, "it " + why, StatusCode::kUnavailable);
  }
  worst->version->processes.kill_worker(worst->lane.incarnation, format("lane {} {}", worst->lane.lane, why));
}

// Called after a version has loaded, serves or is gone. Messages that are not finished may be in the heap, too. So the baseline
// is at most what the heap was at first and what the loaded versions may need.
void DataPlane::measure_heap() {
  const std::uint64_t heap = heap_bytes();
  const std::uint64_t own = heap - std::min(heap, memory_.bytes());
  const auto loaded = std::ranges::count_if(models_, [](const auto& model) { return model && model->is_loaded; });
  heap_baseline_ = std::clamp(own, heap_at_start_, heap_at_start_ + static_cast<std::uint64_t>(loaded) * kPerVersion);
  versions_changed_ = false;
}

}  // namespace shoal::supervisor

// Looks for clients that fill the daemon's memory with messages they never finish. libzmq 4.3.4 collects the frames of a message
// without a limit and shows none of them before the last one has come. So the size of the heap is compared with what is known.
#include <fcntl.h>
#include <malloc.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "shm/base/errors.hpp"
#include "supervisor/daemon.hpp"

namespace shoal::supervisor {
namespace {

constexpr std::uint64_t kAlwaysAllowed = 64 << 20;
constexpr std::uint64_t kPerClient = 128 << 10;  // what libzmq keeps for a connection, and some whole messages
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

// Whether the client's connection holds bytes that libzmq has not read yet.
bool is_sending(const Client& client) {
  int bytes = 0;
  return client.socket_fd >= 0 && ::ioctl(client.socket_fd, FIONREAD, &bytes) == 0 && bytes > 0;
}

}  // namespace

// Does nothing while no client is attached, because then nobody can fill the memory.
std::optional<std::uint64_t> Daemon::next_memory_look_ns() const {
  if (!memory_.is_limited() || clients_->count() == 0) return std::nullopt;
  return memory_look_ns_;
}

void Daemon::watch_memory(std::uint64_t now_ns) {
  if (changed_versions_ > 0 && !shortage_.is_short()) measure_heap();
  if (!next_memory_look_ns()) {
    shortage_ = {};
    return;
  }
  if (now_ns < memory_look_ns_) return;
  // At the last look libzmq may have held what lanes have sent since. It holds that only for a moment, so it is not counted.
  const std::uint64_t lane_bytes = traffic_.lane_bytes - std::exchange(lane_bytes_seen_, traffic_.lane_bytes);
  const std::uint64_t known =
      heap_baseline_ + memory_.bytes() + clients_->count() * kPerClient + (shortage_.is_short() ? lane_bytes : 0);
  const std::uint64_t most = known + memory_.unfinished_limit() + kAlwaysAllowed;
  // The heap is less than what is resident when malloc() keeps what was freed. Asking malloc() takes longer.
  std::uint64_t held = resident_bytes();
  if (held == 0 || held > most || shortage_.is_short()) held = heap_bytes();
  const bool may_put_out = shortage_.look(held, most, now_ns);
  memory_look_ns_ = now_ns + (shortage_.is_short() ? MemoryShortage::kShortestPauseNs : MemoryShortage::pause_ns(held, most));
  if (may_put_out) put_out_hoarder(held - known, now_ns);
}

// Disconnects the client that has finished no message for the longest time. It is not known whose memory it is: the next look
// shows whether this client held it. kUnavailable, because a client that did not hold it may connect and send its requests
// again.
void Daemon::put_out_hoarder(std::uint64_t unfinished, std::uint64_t now_ns) {
  Client* worst = nullptr;
  clients_->for_each([&](Client& client) {
    if (client.state < Client::State::kWelcoming) return;  // nothing connects it with libzmq yet
    if (worst && client.last_message_ns >= worst->last_message_ns) return;
    if (shortage_.may_hold(client.last_message_ns, is_sending(client), now_ns)) worst = &client;
  });
  if (!worst) return;
  shortage_.put_out();
  clients_->disconnect(
      *worst,
      format("it does not finish its message, and messages that are not finished hold {} MiB of the daemon's memory: "
             "more than a quarter of [limits] total_message_mb and {} MiB",
             unfinished >> 20, kAlwaysAllowed >> 20),
      StatusCode::kUnavailable);
}

// Called after versions came or went. Messages that clients have not finished may be in the heap, too. So the baseline does not
// grow by more than the versions may need.
void Daemon::measure_heap() {
  const std::uint64_t heap = heap_bytes();
  const std::uint64_t own = heap - std::min(heap, memory_.bytes());
  heap_baseline_ = heap_baseline_ == 0 ? own : std::min(own, heap_baseline_ + changed_versions_ * kPerVersion);
  changed_versions_ = 0;
}

}  // namespace shoal::supervisor

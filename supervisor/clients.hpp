// The clients: from the attach socket to the first message, and how their death is learnt.
//
//   kAttaching →(ATTACH, arenas checked)→ kBinding →(BOUND)→ kWelcoming →(WELCOMED)→ kReady;  any → gone
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "shm/base/unique_fd.hpp"
#include "shm/log/log.hpp"
#include "shm/wire/control.hpp"
#include "shm/wire/socket.hpp"
#include "shoal/result.hpp"
#include "supervisor/allowance.hpp"
#include "supervisor/process/event_loop.hpp"
#include "supervisor/rate_limit.hpp"
#include "supervisor/socket_directory.hpp"

namespace shoal::supervisor {

struct Client {
  enum class State { kAttaching, kBinding, kWelcoming, kReady, kGone };
  std::uint64_t id = 0;
  State state = State::kAttaching;
  std::size_t place = 0;  // small number, reused: indexes tables of workers
  pid_t pid = -1;
  UniqueFd attach, pidfd;
  UniqueFd input, output;  // its arenas; `input` cannot be written through
  std::uint64_t input_bytes = 0, output_bytes = 0;
  std::string path;               // where it binds its socket
  std::uint64_t give_up_ns = 0;   // until it is ready
  std::uint32_t outstanding = 0;  // requests whose payload is kept
  Allowance allowance;
  std::uint64_t bad_messages = 0;
  wire::ByteCount unsent = std::make_shared<std::atomic<std::uint64_t>>(0);  // of answers that it has not taken
};

/// Told from within the event loop.
class ClientObserver {
 public:
  virtual ~ClientObserver() = default;
  virtual Status client_bound(Client& client) = 0;    // connect to client.path and welcome it
  virtual void client_gone(Client& client) = 0;       // stays known until its last request is over: release()
  virtual void client_forgotten(Client& client) = 0;  // its arenas can go
};

/// Threads: thread-bound
class Clients {
 public:
  static constexpr std::uint64_t kHandshakeLimitNs = 2'000'000'000;
  static constexpr std::size_t kMaxClients = 4096;

  Clients(const SocketDirectory& directory, EventLoop& loop, ClientObserver& observer, Logger& log);
  ~Clients();
  Clients(const Clients&) = delete;
  Clients& operator=(const Clients&) = delete;

  /// Opens the attach socket.
  Status listen();
  /// Nullptr for one that is unknown or gone.
  Client* find(std::uint64_t id);
  /// It has answered the welcome.
  void welcomed(Client& client);
  /// One request of the client is over.
  void release(std::uint64_t id);
  /// It broke the rules: out with it. A process whose clients break the protocol (kInvalidArgument) again and again is not let in
  /// again for a while.
  void expel(Client& client, const std::string& why, StatusCode code = StatusCode::kInvalidArgument);
  void tick(std::uint64_t now_ns);
  std::optional<std::uint64_t> next_tick_ns() const;
  /// New clients are refused with this from now on.
  void refuse_new(std::string why) { refusal_ = std::move(why); }
  std::size_t count() const { return clients_.size(); }
  /// At most so many at the same time; 0 = as many as there are descriptors for. At most so many new ones a second, after a pause
  /// two seconds' worth at once, the others wait at the door; 0 = no limit.
  void limit_connections(std::size_t limit, int per_second);
  /// New clients hear that no frame of theirs may be longer; 0 = the protocol's limit.
  void limit_frames(std::uint64_t bytes) { longest_frame_bytes_ = bytes; }

 private:
  void open_door();
  void accept_clients();
  Status admit(UniqueFd connection);
  void client_speaks(std::uint64_t id);
  Status handle_attach(Client& client, wire::ControlMessage& message);
  Status take_arenas(Client& client, std::vector<UniqueFd>& fds);
  static void refuse(int socket, const Status& why);
  void gone(Client& client);
  void expect_answer(Client& client);
  void drop_finished_handshakes();
  void forget(std::uint64_t id);
  void remember_offence(pid_t pid);
  Status check_offences(pid_t pid) const;

  const SocketDirectory& directory_;
  EventLoop& loop_;
  ClientObserver& observer_;
  Logger& log_;
  UniqueFd listener_, reserve_;
  std::string refusal_;
  std::uint64_t longest_frame_bytes_ = 0;
  std::uint64_t next_id_ = 1;
  std::size_t most_clients_ = kMaxClients;
  int connections_per_second_ = 0;
  RateLimit arrivals_{2'000'000'000}, logged_refusals_{1'000'000'000};
  bool is_door_shut_ = false;  // until the next one may come
  std::unordered_map<pid_t, RateLimit> offenders_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Client>> clients_;
  std::vector<std::size_t> free_places_;
  // Who must say something by when, the earliest first: all have the same time. Entries of those who did are dropped when met.
  std::deque<std::pair<std::uint64_t, std::uint64_t>> handshakes_;  // give_up_ns, id
};

}  // namespace shoal::supervisor

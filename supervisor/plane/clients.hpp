// The clients: how they attach, up to their first message, and how the daemon learns of their death.
//
//   kAttaching →(ATTACH, arenas checked)→ kBinding →(BOUND)→ kWelcoming →(WELCOMED)→ kReady;  any → gone
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "shm/base/clock.hpp"
#include "shm/base/unique_fd.hpp"
#include "shm/log/log.hpp"
#include "shm/segment/hole_finder.hpp"
#include "shm/wire/control.hpp"
#include "shm/wire/transport.hpp"
#include "shoal/result.hpp"
#include "supervisor/plane/allowance.hpp"
#include "supervisor/plane/arrivals.hpp"
#include "supervisor/plane/client_process.hpp"
#include "supervisor/plane/rate_limit.hpp"
#include "supervisor/plane/roles.hpp"
#include "supervisor/plane/shared_rate.hpp"
#include "supervisor/process/event_loop.hpp"
#include "supervisor/process/socket_directory.hpp"
#include "supervisor/process/timers.hpp"

namespace shoal::supervisor {

struct Client {
  enum class State { kAttaching, kBinding, kWelcoming, kReady, kGone };
  std::uint64_t id = 0;
  State state = State::kAttaching;
  std::size_t place = 0;  // a small number that is reused; an index into the tables of workers
  pid_t pid = -1;
  uid_t uid = 0;
  RoleSet roles;
  ClientProcess* process = nullptr;
  UniqueFd attach, pidfd;
  UniqueFd input, output;                                   // its arenas; `input` is read-only
  std::uint64_t input_bytes = 0, output_bytes = 0;          // what is reserved
  std::uint64_t input_allocated = 0, output_allocated = 0;  // of that, from the beginning: what is known to be allocated
  std::uint64_t arena_room_bytes = 0;                       // what its arenas may have, if they were refused
  std::uint64_t features = 0;                               // wire::Features that it and this process know
  std::string path;                                         // of its socket
  std::optional<Timer> handshake;                           // for its next message, until it is ready
  std::uint32_t outstanding = 0;                            // requests that are not over
  Allowance allowance;
  std::uint64_t bad_messages = 0;
  wire::Unsent unsent;                  // of answers that it has not read
  std::uint64_t last_message_ns = 0;    // when its last whole message was received, or when it was connected
  int socket_fd = -1;                   // libzmq's, only to query its state; it may be closed already
  std::uint32_t waiting_describes = 0;  // answers that wait until a model has loaded
  std::uint32_t told = 0;               // descriptions for which it did not ask, since its last message

  bool may(Role role) const { return roles.has(role); }
};

/// Is called from the event loop.
class ClientObserver {
 public:
  virtual ~ClientObserver() = default;
  virtual Status client_bound(Client& client) = 0;    // it listens: connect to client.path and welcome it
  virtual void client_gone(Client& client) = 0;       // the client is kept until its last request is over
  virtual void client_forgotten(Client& client) = 0;  // its arenas can be unmapped
};

/// Threads: thread-bound
class Clients {
 public:
  static constexpr std::uint64_t kHandshakeLimitNs = 2'000'000'000;
  static constexpr std::size_t kMaxClients = 4096;
  static constexpr std::uint64_t kShortageNs = 100'000'000;  ///< until connections are accepted or read again
  static constexpr std::uint64_t kLooksPerSecond = 1 << 21;  ///< pages of all arenas together

  /// All of them outlive this.
  Clients(const Clock& clock, const SocketDirectory& directory, EventLoop& loop, Timers& timers, ClientObserver& observer,
          Logger& log);
  ~Clients();
  Clients(const Clients&) = delete;
  Clients& operator=(const Clients&) = delete;

  /// Opens the attach socket. If somebody removes or replaces it later, makes it anew.
  Status listen();
  /// Returns null for a client that is unknown or gone.
  Client* find(std::uint64_t id);
  /// Returns also a client that is gone and whose last request is not over.
  Client* find_with_gone(std::uint64_t id);
  /// The client has answered the welcome.
  void welcomed(Client& client);
  /// One request of the client is over.
  void release(std::uint64_t id);
  /// Disconnects a client and tells it the reason. kInvalidArgument counts as an offence.
  void disconnect(Client& client, const std::string& why, StatusCode code = StatusCode::kInvalidArgument);
  /// Counts an offence of the client's process: it broke the protocol, or filled the memory. A process that does so again and
  /// again is refused for a while.
  void remember_offence(const Client& client);
  /// Calls `function` with each client that is not gone. It must not disconnect a client.
  template <typename Function>
  void for_each(Function function) {
    for (const auto& [id, client] : clients_) {
      if (client->state != Client::State::kGone) function(*client);
    }
  }
  /// From now on new clients are refused with this reason.
  void refuse_new(std::string why) { refusal_ = std::move(why); }
  std::size_t count() const { return clients_.size(); }
  /// Sets the limits of [limits].
  ///   limit       clients at the same time; 0, or more than fit: as many as there are descriptors for, at most kMaxClients
  ///   per_second  new clients per second, without those of operators; after a pause, those of two seconds at once. The others
  ///               wait, and their users take turns. 0 = no limit
  void limit_connections(std::size_t limit, int per_second);
  /// New clients are told that no frame may be longer. 0 = the protocol's limit.
  void limit_frames(std::uint64_t bytes) { longest_frame_bytes_ = bytes; }
  /// Limits what the arenas of all clients reserve together, with a share for each process. Each worker may have to map them all,
  /// so the sum must fit into its addresses: it is at most half of RLIMIT_AS, which workers inherit. 0 = no other limit.
  void limit_arenas(std::uint64_t bytes);
  /// Sets who may attach, and what each client may do. Clients that are there get their new roles at once. A client that has none
  /// any more is disconnected.
  void set_access(AccessRules rules);
  /// Sets the count of answers that clients have not read yet, all clients together.
  void count_unsent(wire::ByteCount all) { unsent_ = std::move(all); }
  /// The largest number of clients at the same time.
  std::size_t most() const { return most_clients_; }
  /// What the arenas of all clients reserve, including clients that are gone and whose requests still run.
  std::uint64_t arena_bytes() const { return arena_bytes_; }
  /// Of that, what is known to be allocated, because requests have named it.
  std::uint64_t allocated_arena_bytes() const { return allocated_arena_bytes_; }
  /// Checks that a client has allocated its arenas from their beginning, up to the ends of what a request names. Asks the kernel
  /// only about what is not known yet.
  ///   Errors  kInvalidArgument (not allocated), kOverloaded (asked too much, too much at once, or swapped out: ask again after
  ///           look_wait_ms())
  Status check_allocated(Client& client, std::uint64_t input_end, std::uint64_t output_end);
  std::uint64_t look_wait_ms(const Client& client);
  /// What looking at arenas has cost so far, in pages. A look that took longer than its pages should counts as more of them.
  std::uint64_t look_cost() const { return look_cost_; }
  /// Calls `function` with each process that has clients.
  template <typename Function>
  void for_each_process(Function function) const {
    for (const auto& [key, process] : processes_) {
      if (process.connections > 0) function(process);
    }
  }

 private:
  static constexpr const char* kNoDescriptors = "the daemon has no file descriptors left";

  Status watch_listener(const UniqueFd& listener);
  Status open_attach();
  Status watch_directory();
  void directory_changed();
  bool has_attach() const;
  void restore_attach();
  void attach_is_lost(const Status& why);
  void pause_accepting(std::uint64_t until_ns);
  void accept_clients();
  Status arrive(UniqueFd connection);
  Status check_may_wait(uid_t user) const;
  void admit_waiting(std::uint64_t now_ns);
  void stop_reading(Client& client);
  void read_again(std::uint64_t now_ns);
  Status admit(UniqueFd connection, UniqueFd pidfd, const Identity& who);
  Status turn_away(UniqueFd connection, uid_t user, Status why);
  void log_refusal(const Status& admitted);
  void client_speaks(std::uint64_t id);
  Status handle_attach(Client& client, wire::ControlMessage& message);
  Status take_arenas(Client& client, std::span<UniqueFd> fds);
  Status bind_socket(Client& client, const UniqueFd& socket);
  Status look_at_arena(Client& client, const UniqueFd& arena, std::string_view name, std::uint64_t size, std::uint64_t end,
                       std::uint64_t& allocated);
  static void refuse(int socket, const Status& why, std::uint64_t arena_room_bytes = 0);
  void gone(Client& client);
  void expect_answer(Client& client);
  void give_up(std::uint64_t id);
  void forget(std::uint64_t id);
  void forget_processes(std::uint64_t now_ns);
  Status check_offences(pid_t pid) const;

  const Clock& clock_;
  const SocketDirectory& directory_;
  EventLoop& loop_;
  Timers& timers_;
  ClientObserver& observer_;
  Logger& log_;
  UniqueFd listener_, reserve_;
  struct stat attach_ {};  // while listener_ is open, no other file gets its inode number
  UniqueFd notices_;       // of inotify, about the directory
  Timer restore_;          // the attach socket is made anew then
  std::string lost_;       // why that could not be done, as the log says
  std::string refusal_;
  AccessRules access_;
  HoleFinder holes_;
  SharedRate looks_;  // pages
  std::uint64_t look_cost_ = 0;
  std::uint64_t longest_frame_bytes_ = 0;
  std::uint64_t arena_bytes_ = 0, allocated_arena_bytes_ = 0, most_arena_bytes_ = 0;
  wire::ByteCount unsent_;
  std::uint64_t next_id_ = 1;
  std::size_t most_clients_ = kMaxClients;
  int connections_per_second_ = 0;
  RateLimit admissions_{2'000'000'000}, acceptances_{100'000'000}, logged_refusals_{1'000'000'000};
  Timer accept_again_;  // until then connections wait in the backlog
  Arrivals arrivals_;
  Timer admit_again_;                  // until then these wait
  Timer read_again_;                   // until then these are not read
  std::vector<std::uint64_t> unread_;  // clients that are not ready yet
  std::unordered_map<pid_t, RateLimit> offenders_;
  std::unordered_map<std::int64_t, ClientProcess> processes_;  // by process_key(); with connections, or not rested
  Timer forget_processes_;                                     // while some have no connection
  std::unordered_map<std::uint64_t, std::unique_ptr<Client>> clients_;
  std::vector<std::size_t> free_places_;
};

}  // namespace shoal::supervisor

#include "supervisor/plane/clients.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shm/segment/segment.hpp"
#include "shm/wire/local_address.hpp"
#include "supervisor/plane/fair_share.hpp"
#include "supervisor/process/received_message.hpp"

namespace shoal::supervisor {

using wire::ControlKind;
using wire::ControlMessage;

namespace {
constexpr rlim_t kDescriptorsPerClient = 6, kDescriptorsForUs = 256;
constexpr std::size_t kShareForRoot = 16, kShareForOthers = 4;
constexpr int kBacklog = 1024;
constexpr std::uint64_t kOffencesForgottenNs = 8'000'000'000;  // a process may offend eight times, then once per second
// Clients are refused faster than others are let in. So those that come again and again do not keep the others waiting in the
// backlog.
constexpr int kRefusalsPerSecond = 5000;
constexpr int kMostPerTurn = 16;                    // clients handled before requests have their turn again
constexpr std::uint64_t kShortageNs = 100'000'000;  // until connections are accepted again, if the kernel cannot now
constexpr std::uint64_t kLargestArena = std::uint64_t{1} << 40;

UniqueFd open_reserve() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }
}  // namespace

Clients::Clients(const Clock& clock, const SocketDirectory& directory, EventLoop& loop, ClientObserver& observer, Logger& log)
    : clock_(clock), directory_(directory), loop_(loop), observer_(observer), log_(log), reserve_(open_reserve()) {
  limit_connections(0, 0);
}

void Clients::limit_connections(std::size_t limit, int per_second) {
  connections_per_second_ = per_second;
  most_clients_ = kMaxClients;
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) == 0 && descriptors.rlim_cur != RLIM_INFINITY) {
    const rlim_t all = descriptors.rlim_cur;
    const rlim_t room = all > kDescriptorsForUs ? (all - kDescriptorsForUs) / kDescriptorsPerClient : 0;
    most_clients_ = std::clamp<std::size_t>(room, 4, kMaxClients);
  }
  if (limit > 0) most_clients_ = std::min(most_clients_, limit);
}

Clients::~Clients() {
  if (listener_) loop_.hang_up(std::move(listener_));
  for (const auto& [id, client] : clients_) {
    if (client->attach) loop_.hang_up(std::move(client->attach));
    if (client->pidfd) loop_.forget(client->pidfd.get());
  }
}

Status Clients::listen() {
  SHOAL_ASSIGN_OR_RETURN(listener_, wire::listen_at(directory_.attach_path(), SOCK_SEQPACKET, kBacklog));
  return watch_listener();
}

Status Clients::watch_listener() {
  SHOAL_RETURN_IF_ERROR(loop_.watch(listener_.get(), [this] { accept_clients(); }));
  accepts_again_ns_.reset();
  return {};
}

// The listener stays readable while connections wait, so it is not watched until then.
void Clients::pause_accepting(std::uint64_t until_ns) {
  accepts_again_ns_ = until_ns;
  loop_.forget(listener_.get());
}

void Clients::welcomed(Client& client) {
  if (client.state != Client::State::kWelcoming) return;
  client.state = Client::State::kReady;
}

void Clients::expect_answer(Client& client) {
  client.give_up_ns = clock_.now_ns() + kHandshakeLimitNs;
  handshakes_.emplace_back(client.give_up_ns, client.id);
}

Client* Clients::find_with_gone(std::uint64_t id) {
  const auto found = clients_.find(id);
  return found == clients_.end() ? nullptr : found->second.get();
}

Client* Clients::find(std::uint64_t id) {
  Client* client = find_with_gone(id);
  return client && client->state != Client::State::kGone ? client : nullptr;
}

void Clients::accept_clients() {
  if (!reserve_) reserve_ = open_reserve();
  for (int accepted = 0; accepted < kMostPerTurn; ++accepted) {
    const std::uint64_t now_ns = clock_.now_ns();
    const std::uint64_t next_ns = std::max(arrivals_.next_ns(), refusals_.next_ns());
    if (now_ns < next_ns) return pause_accepting(next_ns);
    UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN) return;
      if (errno != EMFILE && errno != ENFILE) return pause_accepting(now_ns + kShortageNs);
      // Uses the reserved descriptor for a moment to tell the peer the reason. Otherwise it would wait in the backlog forever.
      reserve_.reset();
      connection.reset(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (connection) refuse(connection.get(), unavailable("the daemon has no file descriptors left"));
      // Closed here and not by hang_up(): the reserve needs its descriptor at once. A peer can make this close() slow only while
      // no descriptors are left.
      const bool is_refused = static_cast<bool>(connection);
      connection.reset();
      reserve_ = open_reserve();
      if (!is_refused) pause_accepting(now_ns + kShortageNs);
      return;
    }
    if (Status admitted = admit(std::move(connection)); !admitted.ok() && logged_refusals_.take(10, now_ns))
      log_.warn("client_refused reason=\"{}\"", admitted.message());
  }
}

Status Clients::admit(UniqueFd connection) {
  const int socket = connection.get();
  // A refused client is told why before the socket closes.
  const auto refused = [&](Status why) {
    refusals_.take(kRefusalsPerSecond, clock_.now_ns());
    refuse(socket, why);
    loop_.hang_up(std::move(connection));
    return why;
  };
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return refused(status_from_errno("ask who", "a client is", errno));
  if (peer.uid != ::geteuid() && peer.uid != 0)
    return refused(permission_denied("user {} may not use the daemon of user {}", peer.uid, ::geteuid()));
  if (!refusal_.empty()) return refused(unavailable("{}", refusal_));
  if (Status offended = check_offences(peer.pid); !offended.ok()) return refused(std::move(offended));
  arrivals_.take(connections_per_second_, clock_.now_ns());
  // The last places are reserved for root, so that an operator gets in.
  const std::size_t places = most_clients_ - (peer.uid == 0 ? 0 : most_clients_ / kShareForRoot);
  if (clients_.size() >= places)
    return refused(
        overloaded("the daemon has {} clients, which is its limit ([limits] connections, or its number of file descriptors)",
                   clients_.size()));
  const std::int64_t key = process_key(peer.pid, peer.uid);
  const auto process = processes_.find(key);
  const std::size_t own = process == processes_.end() ? 0 : process->second.connections;
  if (own >= most_clients_ - most_clients_ / kShareForOthers) {
    return refused(overloaded(
        "this process has {} of the {} places for clients ([limits] connections), and the others are left to other processes",
        own, most_clients_));
  }
  auto client = std::make_unique<Client>();
  client->id = next_id_++;
  client->pid = peer.pid;
  client->uid = peer.uid;
  // Fails when the process is gone or in another pid namespace (0). Then only the end of file reports its death.
  client->pidfd.reset(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
  client->attach = std::move(connection);
  client->place = clients_.size();
  if (!free_places_.empty()) {
    client->place = free_places_.back();
    free_places_.pop_back();
  }
  const std::uint64_t id = client->id;
  if (Status watched = loop_.watch(socket, [this, id] { client_speaks(id); }); !watched.ok()) {
    free_places_.push_back(client->place);
    connection = std::move(client->attach);
    return refused(unavailable("the daemon cannot wait for another client: {}", watched.message()));
  }
  if (client->pidfd) {
    const Status watched = loop_.watch(client->pidfd.get(), [this, id] {
      if (Client* dead = find(id)) gone(*dead);
    });
    if (!watched.ok()) client->pidfd.reset();  // then only the end of file reports the death
  }
  client->process = &processes_[key];
  ++client->process->connections;
  client->unsent = wire::Unsent(unsent_, client->process->unsent);
  expect_answer(*clients_.emplace(id, std::move(client)).first->second);
  return {};
}

void Clients::client_speaks(std::uint64_t id) {
  while (Client* client = find(id)) {
    ReceivedMessage message(client->attach.get(), loop_);
    if (const Status& received = message.status(); !received.ok()) {
      if (received.code() != StatusCode::kUnavailable) return disconnect(*client, received.message());
      // Connecting and hanging up in a loop takes the turns of others.
      if (client->state == Client::State::kAttaching) remember_offence(*client);
      return gone(*client);
    }
    if (!message.has_value()) return;
    Status handled;
    if (message->kind == ControlKind::kAttach && client->state == Client::State::kAttaching) {
      handled = handle_attach(*client, *message);
    } else if (message->kind == ControlKind::kBound && client->state == Client::State::kBinding) {
      client->state = Client::State::kWelcoming;
      expect_answer(*client);
      handled = observer_.client_bound(*client);
    } else {
      handled = invalid_argument("attach: an unexpected message of kind {}", static_cast<int>(message->kind));
    }
    if (!handled.ok()) {
      // It has given up, perhaps because this process was slow: that is no offence.
      const bool has_gone = handled.code() == StatusCode::kUnavailable || handled.code() == StatusCode::kNotFound;
      const bool may_come_later = handled.code() == StatusCode::kOverloaded;
      return disconnect(*client, handled.message(),
                        has_gone         ? StatusCode::kUnavailable
                        : may_come_later ? StatusCode::kOverloaded
                                         : StatusCode::kInvalidArgument);
    }
  }
}

Status Clients::handle_attach(Client& client, ControlMessage& message) {
  SHOAL_RETURN_IF_ERROR(take_arenas(client, message.fds).with_context("attach"));
  client.path = directory_.client_path(client.id);
  client.state = Client::State::kBinding;
  return wire::send_control(client.attach.get(),
                            {.kind = ControlKind::kPath, .id = client.id, .a = longest_frame_bytes_, .text = client.path});
}

Status Clients::take_arenas(Client& client, std::vector<UniqueFd>& fds) {
  if (fds.empty()) return {};  // a tool that submits nothing
  if (fds.size() != 2) return invalid_argument("{} descriptors instead of two (input arena, output arena)", fds.size());
  auto input_bytes = check_sealed(fds[0], Seals::kOneWriter);
  if (!input_bytes.ok()) return input_bytes.status().with_context("input arena");
  auto output_bytes = check_sealed(fds[1], Seals::kFixedSize);
  if (!output_bytes.ok()) return output_bytes.status().with_context("output arena");
  for (const std::uint64_t size : {*input_bytes, *output_bytes}) {
    if (size == 0 || size > kLargestArena) return invalid_argument("an arena of {} bytes (1 to {})", size, kLargestArena);
  }
  const FairShare share{.total = most_arena_bytes_, .clients = most_clients_};
  if (!share.fits(arena_bytes_, client.process->arena_bytes, *input_bytes + *output_bytes)) {
    return overloaded(
        "arenas of {} and {} bytes do not fit: the arenas of all clients have {} of {} GiB ([limits] total_arena_gb), those of "
        "this process {} GiB. A process may always have {} MiB",
        *input_bytes, *output_bytes, arena_bytes_ >> 30, most_arena_bytes_ >> 30, client.process->arena_bytes >> 30,
        share.guaranteed() >> 20);
  }
  SHOAL_ASSIGN_OR_RETURN(client.input, reopen_read_only(fds[0]));
  loop_.close_memory(std::move(fds[0]));
  client.output = std::move(fds[1]);
  client.input_bytes = *input_bytes;
  client.output_bytes = *output_bytes;
  arena_bytes_ += client.input_bytes + client.output_bytes;
  client.process->arena_bytes += client.input_bytes + client.output_bytes;
  return {};
}

void Clients::refuse(int socket, const Status& why) {
  // Best effort: the client may not read.
  if (!wire::send_control(socket,
                          {.kind = ControlKind::kRefused, .a = static_cast<std::uint64_t>(why.code()), .text = why.message()})
           .ok())
    return;
}

void Clients::disconnect(Client& client, const std::string& why, StatusCode code) {
  log_.warn("client_disconnected client={} pid={} reason=\"{}\"", client.id, client.pid, why);
  refuse(client.attach.get(), Status(code, why));
  if (code == StatusCode::kInvalidArgument) remember_offence(client);
  gone(client);
}

void Clients::remember_offence(const Client& client) {
  const std::uint64_t now_ns = clock_.now_ns();
  std::erase_if(offenders_, [&](const auto& offender) { return offender.second.next_ns() + kOffencesForgottenNs < now_ns; });
  if (connections_per_second_ == 0 || client.pid == 0) return;  // pid 0 stands for any process of another pid namespace
  offenders_.try_emplace(client.pid, kOffencesForgottenNs).first->second.take(1, now_ns);
}

Status Clients::check_offences(pid_t pid) const {
  const auto found = offenders_.find(pid);
  const std::uint64_t wait_ms = found == offenders_.end() ? 0 : found->second.wait_ms(clock_.now_ns());
  if (wait_ms == 0) return {};
  return overloaded(
      "clients of process {} broke the protocol too often, or did not finish their messages: it may connect again in {} ms "
      "([limits] connection_rate)",
      pid, wait_ms);
}

void Clients::gone(Client& client) {
  client.state = Client::State::kGone;
  loop_.hang_up(std::move(client.attach));
  if (client.pidfd) loop_.forget(client.pidfd.get());
  client.pidfd.reset();
  if (!client.path.empty()) ::unlink(client.path.c_str());
  ++client.outstanding;  // so that the client is kept if its last request ends during the call
  observer_.client_gone(client);
  release(client.id);
}

void Clients::release(std::uint64_t id) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  Client& client = *found->second;
  if (--client.outstanding == 0 && client.state == Client::State::kGone) forget(id);
}

void Clients::forget(std::uint64_t id) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  Client& client = *found->second;
  observer_.client_forgotten(*found->second);
  arena_bytes_ -= client.input_bytes + client.output_bytes;
  client.process->arena_bytes -= client.input_bytes + client.output_bytes;
  if (--client.process->connections == 0) processes_.erase(process_key(client.pid, client.uid));
  free_places_.push_back(client.place);
  loop_.close_memory(std::move(client.input));
  loop_.close_memory(std::move(client.output));
  clients_.erase(found);
}

// Drops entries of clients that are ready or gone, or that were given more time.
void Clients::drop_finished_handshakes() {
  while (!handshakes_.empty()) {
    const auto [give_up_ns, id] = handshakes_.front();
    const Client* client = find(id);
    if (client && client->state < Client::State::kReady && client->give_up_ns == give_up_ns) return;
    handshakes_.pop_front();
  }
}

void Clients::tick(std::uint64_t now_ns) {
  if (accepts_again_ns_ && now_ns >= *accepts_again_ns_ && !watch_listener().ok()) accepts_again_ns_ = now_ns + kShortageNs;
  for (int disconnected = 0; disconnected < kMostPerTurn; ++disconnected) {
    drop_finished_handshakes();
    if (handshakes_.empty() || now_ns < handshakes_.front().first) return;
    Client& client = *clients_.at(handshakes_.front().second);
    // kUnavailable and not kInvalidArgument: the client may only have been short of processor time, so this is no offence.
    disconnect(client,
               client.path.empty() ? std::string("no ATTACH within 2 s") : format("no answer within 2 s at {}", client.path),
               StatusCode::kUnavailable);
  }
}

void Clients::postpone(std::uint64_t by_ns) {
  for (auto& [give_up_ns, id] : handshakes_) {
    Client* client = find(id);
    if (client && client->give_up_ns == give_up_ns) client->give_up_ns += by_ns;
    give_up_ns += by_ns;
  }
}

std::optional<std::uint64_t> Clients::next_tick_ns() const {
  std::optional<std::uint64_t> next;
  if (!handshakes_.empty()) next = handshakes_.front().first;
  if (accepts_again_ns_) next = std::min(next.value_or(*accepts_again_ns_), *accepts_again_ns_);
  return next;
}

}  // namespace shoal::supervisor

#include "supervisor/plane/clients.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/ranges.hpp"
#include "shm/segment/segment.hpp"
#include "shm/wire/local_address.hpp"
#include "shm/wire/messages.hpp"
#include "supervisor/plane/fair_share.hpp"
#include "supervisor/process/received_message.hpp"

namespace shoal::supervisor {

using wire::ControlKind;
using wire::ControlMessage;

namespace {
constexpr rlim_t kDescriptorsPerClient = 6, kDescriptorsForUs = 256;
constexpr std::size_t kShareForOperators = 16, kShareForOthers = 4;
constexpr const char* kNoDescriptors = "the daemon has no file descriptors left";
constexpr int kBacklog = 1024;
constexpr std::uint64_t kOffencesForgottenNs = 8'000'000'000;  // a process may offend eight times, then once per second
// Clients are refused faster than others are let in. So those that come again and again do not keep the others waiting in the
// backlog.
constexpr int kRefusalsPerSecond = 5000;
constexpr int kMostPerTurn = 16;                    // clients handled before requests have their turn again
constexpr std::uint64_t kShortageNs = 100'000'000;  // until connections are accepted again, if the kernel cannot now
constexpr std::uint64_t kSmallOffer = 16 << 20;
// So many pages of arenas may be looked at: 4 GiB per second of one process, and 8 GiB of all. Looking takes 110 to 135 ns per
// page (EPYC, in a virtual machine), so that all looks together take about a quarter of the loop's time. A client that attaches
// anew, because the daemon has restarted, has all of its arena looked at.
constexpr int kPagesPerSecond = 1 << 20;
constexpr std::uint64_t kAllPagesPerSecond = 1 << 21;
constexpr std::uint64_t kPagesPerLook = 128;  // what a look costs besides: some 15 us
// A look that takes longer counts as so many pages as could have been looked at. Its client can delay it by a lock of the kernel.
constexpr std::uint64_t kNsPerPage = 120, kLongestLookNs = 60'000'000'000;
// A look goes beyond what is named, up to twice what is known, so that a client whose requests name ever higher ranges causes a
// few looks and not one per request.
constexpr std::uint64_t kLeastAhead = 1 << 20, kMostAhead = 64 << 20;

UniqueFd open_reserve() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }
}  // namespace

Clients::Clients(const Clock& clock, const SocketDirectory& directory, EventLoop& loop, Timers& timers, ClientObserver& observer,
                 Logger& log)
    : clock_(clock),
      directory_(directory),
      loop_(loop),
      timers_(timers),
      observer_(observer),
      log_(log),
      reserve_(open_reserve()),
      looks_(kAllPagesPerSecond),
      accept_again_(timers, Timer::Kind::kClock,
                    [this](std::uint64_t now_ns) {
                      if (!watch_listener().ok()) accept_again_.set(now_ns + kShortageNs);
                    }),
      read_again_(timers, Timer::Kind::kClock, [this](std::uint64_t now_ns) { read_again(now_ns); }),
      forget_processes_(timers, Timer::Kind::kClock, [this](std::uint64_t now_ns) { forget_processes(now_ns); }) {
  limit_connections(0, 0);
}

void Clients::limit_connections(std::size_t limit, int per_second) {
  connections_per_second_ = per_second;
  most_clients_ = kMaxClients;
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) == 0 && descriptors.rlim_cur != RLIM_INFINITY) {
    const rlim_t all = descriptors.rlim_cur;
    const rlim_t others = kDescriptorsForUs + loop_.closer().most();
    const rlim_t room = all > others ? (all - others) / kDescriptorsPerClient : 0;
    most_clients_ = std::clamp<std::size_t>(room, 4, kMaxClients);
  }
  if (limit > 0) most_clients_ = std::min(most_clients_, limit);
}

Clients::~Clients() {
  if (listener_) loop_.hang_up(std::move(listener_));
  for (const auto& [id, client] : clients_) {
    if (client->attach) loop_.hang_up(std::move(client->attach), client->uid);
    if (client->pidfd) loop_.forget(client->pidfd.get());
  }
}

Status Clients::listen() {
  SHOAL_ASSIGN_OR_RETURN(listener_, wire::listen_at(directory_.attach_path(), SOCK_SEQPACKET, kBacklog));
  return watch_listener();
}

Status Clients::watch_listener() {
  return loop_.watch(listener_.get(), [this] { accept_clients(); });
}

// The listener stays readable while connections wait, so it is not watched until then.
void Clients::pause_accepting(std::uint64_t until_ns) {
  accept_again_.set(until_ns);
  loop_.forget(listener_.get());
}

void Clients::welcomed(Client& client) {
  if (client.state != Client::State::kWelcoming) return;
  client.state = Client::State::kReady;
  ::unlink(client.path.c_str());  // nobody else will connect
  client.handshake.reset();
}

void Clients::expect_answer(Client& client) { client.handshake->set(clock_.now_ns() + kHandshakeLimitNs); }

// kUnavailable and not kInvalidArgument: the client may only have been short of processor time, so this is no offence.
void Clients::give_up(std::uint64_t id) {
  Client& client = *clients_.at(id);
  disconnect(client, client.path.empty() ? "no ATTACH within 2 s" : format("no answer within 2 s at {}", client.path),
             StatusCode::kUnavailable);
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
    if (loop_.closer().is_full()) return pause_accepting(now_ns + kShortageNs);
    UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN) return;
      if (errno != EMFILE && errno != ENFILE) return pause_accepting(now_ns + kShortageNs);
      if (!reserve_) return pause_accepting(now_ns + kShortageNs);
      // Uses the reserved descriptor to tell the peer the reason. Otherwise it would wait in the backlog forever.
      reserve_.reset();
      connection.reset(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!connection) {
        reserve_ = open_reserve();
        return pause_accepting(now_ns + kShortageNs);
      }
      refuse(connection.get(), unavailable("{}", kNoDescriptors));
      const auto peer = identity_of(connection.get());
      loop_.hang_up(std::move(connection), peer.ok() ? peer->user : Closer::kChild);
      reserve_ = open_reserve();  // again the next time, if that socket is not closed yet
      return;
    }
    if (Status admitted = admit(std::move(connection)); !admitted.ok() && logged_refusals_.take(10, now_ns))
      log_.warn("client_refused reason=\"{}\"", admitted.message());
  }
}

Status Clients::admit(UniqueFd connection) {
  const int socket = connection.get();
  // A refused client is told why before the socket closes.
  const auto peer = identity_of(socket);
  const auto refused = [&](Status why) {
    refusals_.take(kRefusalsPerSecond, clock_.now_ns());
    refuse(socket, why);
    loop_.hang_up(std::move(connection), peer.ok() ? peer->user : Closer::kChild);
    return why;
  };
  if (!peer.ok()) return refused(peer.status());
  const RoleSet roles = roles_of(*peer, access_, ::geteuid());
  if (Status let_in = check_may_attach(*peer, roles, access_, ::geteuid()); !let_in.ok()) return refused(std::move(let_in));
  if (!refusal_.empty()) return refused(unavailable("{}", refusal_));
  if (Status offended = check_offences(peer->pid); !offended.ok()) return refused(std::move(offended));
  if (loop_.closer().is_late(peer->user)) {
    return refused(overloaded(
        "more than {} descriptors that processes of user {} sent are not closed yet, because close() of them takes long",
        Closer::kMostSent, peer->user));
  }
  arrivals_.take(connections_per_second_, clock_.now_ns());
  // The last places are reserved for root and for those whom [roles] names operators, so that an operator gets in. The daemon's
  // own user is an operator, too, but its clients are mostly usual ones.
  const bool is_operator = peer->user == 0 || (peer->user != ::geteuid() && roles.has(Role::kOperator));
  const std::size_t places = most_clients_ - (is_operator ? 0 : most_clients_ / kShareForOperators);
  if (clients_.size() >= places)
    return refused(
        overloaded("the daemon has {} clients, which is its limit ([limits] connections, or its number of file descriptors)",
                   clients_.size()));
  const std::int64_t key = process_key(peer->pid, peer->user);
  const auto process = processes_.find(key);
  const std::size_t own = process == processes_.end() ? 0 : process->second.connections;
  if (own >= most_clients_ - most_clients_ / kShareForOthers) {
    return refused(overloaded(
        "this process has {} of the {} places for clients ([limits] connections), and the others are left to other processes",
        own, most_clients_));
  }
  // Fails when the process is in another pid namespace (0). Then only the end of file reports its death. A connection that
  // outlives its process is refused: the process's number may be another one's soon.
  UniqueFd pidfd = open_pidfd(peer->pid);
  if (!pidfd && errno == ESRCH) return refused(unavailable("the process {} that has connected is gone", peer->pid));
  auto client = std::make_unique<Client>();
  client->id = next_id_++;
  client->pid = peer->pid;
  client->uid = peer->user;
  client->roles = roles;
  client->pidfd = std::move(pidfd);
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
  client->process->pid = peer->pid;
  ++client->process->connections;
  client->unsent = wire::Unsent(unsent_, client->process->unsent);
  client->handshake.emplace(timers_, Timer::Kind::kPatience, [this, id](std::uint64_t) { give_up(id); });
  expect_answer(*clients_.emplace(id, std::move(client)).first->second);
  return {};
}

void Clients::client_speaks(std::uint64_t id) {
  while (Client* client = find(id)) {
    if (loop_.closer().is_late(client->uid) && client->state < Client::State::kReady) return stop_reading(*client);
    bool lost_fds = false;
    ReceivedMessage message(client->attach.get(), loop_, &lost_fds, client->uid);
    if (const Status& received = message.status(); !received.ok()) {
      if (received.code() != StatusCode::kUnavailable) return disconnect(*client, received.message());
      // Connecting and hanging up in a loop takes the turns of others.
      if (client->state == Client::State::kAttaching) remember_offence(*client);
      return gone(*client);
    }
    if (!message.has_value()) return;
    if (lost_fds) return disconnect(*client, kNoDescriptors, StatusCode::kUnavailable);  // no offence: the shortage is ours
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

// Its messages may bring more descriptors that cannot be closed. The socket stays readable, so it is not watched until then.
void Clients::stop_reading(Client& client) {
  loop_.forget(client.attach.get());
  unread_.push_back(client.id);
  read_again_.set_earlier(clock_.now_ns() + kShortageNs);
}

void Clients::read_again(std::uint64_t now_ns) {
  for (const std::uint64_t id : std::exchange(unread_, {})) {
    Client* client = find(id);
    if (!client) continue;
    if (loop_.closer().is_late(client->uid) && client->state < Client::State::kReady) {
      unread_.push_back(id);
      read_again_.set_earlier(now_ns + kShortageNs);
      continue;
    }
    if (const Status watched = loop_.watch(client->attach.get(), [this, id] { client_speaks(id); }); !watched.ok())
      disconnect(*client, watched.message(), StatusCode::kUnavailable);
  }
}

Status Clients::handle_attach(Client& client, ControlMessage& message) {
  if (message.fds.size() != 1 && message.fds.size() != 3) {
    return invalid_argument(
        "attach: {} descriptors instead of three (socket, input arena, output arena) or one (socket): the client is of another "
        "release",
        message.fds.size());
  }
  SHOAL_RETURN_IF_ERROR(take_arenas(client, std::span(message.fds).subspan(1)).with_context("attach"));
  SHOAL_RETURN_IF_ERROR(bind_socket(client, message.fds[0]).with_context("attach"));
  client.features = message.a & wire::kKnownFeatures;
  client.state = Client::State::kBinding;
  return wire::send_control(
      client.attach.get(),
      {.kind = ControlKind::kPath, .id = client.id, .a = longest_frame_bytes_, .b = client.features, .text = client.path});
}

// Binds a client's socket in our directory, where the client itself may create nothing. The file belongs to us, and the umask
// lets nobody else connect.
Status Clients::bind_socket(Client& client, const UniqueFd& socket) {
  if (!wire::is_local_stream(socket.get()) || wire::has_name(socket.get()))
    return invalid_argument("socket: the first descriptor must be an unbound local socket of type SOCK_STREAM");
  const std::string path = directory_.client_path(client.id);
  // What fails now is this process's trouble with its directory, and may pass.
  if (const Status bound = wire::bind_at(socket.get(), path); !bound.ok()) return overloaded("socket: {}", bound.message());
  client.path = path;
  return {};
}

Status Clients::take_arenas(Client& client, std::span<UniqueFd> fds) {
  if (fds.empty()) return {};  // a tool that submits nothing
  auto input_bytes = check_sealed(fds[0], Seals::kOneWriter);
  if (!input_bytes.ok()) return input_bytes.status().with_context("input arena");
  auto output_bytes = check_sealed(fds[1], Seals::kFixedSize);
  if (!output_bytes.ok()) return output_bytes.status().with_context("output arena");
  // Otherwise no worker could map it.
  if (const Status writable = check_writable(fds[1]); !writable.ok()) return writable.with_context("output arena");
  for (const std::uint64_t size : {*input_bytes, *output_bytes}) {
    if (size == 0 || size > wire::kLargestArenaBytes)
      return invalid_argument("an arena of {} bytes (1 to {})", size, wire::kLargestArenaBytes);
  }
  const FairShare share{.total = most_arena_bytes_, .clients = most_clients_};
  if (!share.fits(arena_bytes_, client.process->arena_bytes, *input_bytes + *output_bytes)) {
    // Not all of it, so that the next connection of the process finds room, too.
    const std::uint64_t room = share.room(arena_bytes_, client.process->arena_bytes);
    client.arena_room_bytes = std::max(room / 4, std::min(room, kSmallOffer));
    return overloaded(
        "arenas of {} and {} bytes do not fit: the arenas of all clients have {} of {} GiB ([limits] total_arena_gb), those of "
        "this process {} GiB. A process may always have {} MiB. Arenas of together {} MiB would fit now",
        *input_bytes, *output_bytes, arena_bytes_ >> 30, most_arena_bytes_ >> 30, client.process->arena_bytes >> 30,
        share.guaranteed() >> 20, client.arena_room_bytes >> 20);
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

void Clients::limit_arenas(std::uint64_t bytes) {
  most_arena_bytes_ = bytes;
  rlimit addresses{};
  if (::getrlimit(RLIMIT_AS, &addresses) != 0 || addresses.rlim_cur == RLIM_INFINITY) return;
  most_arena_bytes_ = std::min<std::uint64_t>(bytes == 0 ? addresses.rlim_cur : bytes, addresses.rlim_cur / 2);
}

Status Clients::check_allocated(Client& client, std::uint64_t input_end, std::uint64_t output_end) {
  if (input_end > client.input_allocated)
    SHOAL_RETURN_IF_ERROR(look_at_arena(client, client.input, "input", client.input_bytes, input_end, client.input_allocated));
  if (output_end > client.output_allocated)
    SHOAL_RETURN_IF_ERROR(
        look_at_arena(client, client.output, "output", client.output_bytes, output_end, client.output_allocated));
  return {};
}

// A worker that touches a page which is not allocated allocates it, at the expense of the daemon's memory group. Holes cannot
// come back into an input arena, because its seal forbids to punch them. In an output arena its client can punch some afterwards.
Status Clients::look_at_arena(Client& client, const UniqueFd& arena, std::string_view name, std::uint64_t size, std::uint64_t end,
                              std::uint64_t& allocated) {
  const std::uint64_t now_ns = clock_.now_ns();
  ClientProcess& process = *client.process;
  if (process.arena_looks.next_ns() > now_ns || !looks_.allows(process.look_share, now_ns)) {
    return overloaded(
        "the arenas of this process, or of all, have grown too often, or by too much, for the daemon to look at the {} arena now",
        name);
  }
  const std::uint64_t ahead = allocated + std::clamp(allocated, kLeastAhead, kMostAhead);
  const std::uint64_t most = std::max(end, ahead);
  const std::uint64_t cost_before = holes_.cost();
  const auto found = holes_.allocated_end(arena, allocated, align_up(std::min(size, most), kPageBytes));
  const std::uint64_t took_ns = std::min(clock_.now_ns() - now_ns, kLongestLookNs);
  const std::uint64_t cost = std::max(holes_.cost() - cost_before, took_ns / kNsPerPage) + kPagesPerLook;
  look_cost_ += cost;
  process.arena_looks.charge(cost, kPagesPerSecond, now_ns);
  looks_.charge(process.look_share, cost, now_ns);
  if (!found.ok()) return found.status().with_context(format("{} arena", name));
  allocated_arena_bytes_ += found->end - allocated;
  allocated = found->end;
  if (found->end >= end) return {};
  if (found->more_is_swapped) return overloaded("parts of the {} arena are swapped out, and a few were read in: try again", name);
  return invalid_argument(
      "the {} arena is not allocated up to {}, the end of what the request names: byte {} lies in a hole, or was allocated and "
      "never written",
      name, end, found->end);
}

std::uint64_t Clients::look_wait_ms(const Client& client) {
  const std::uint64_t now_ns = clock_.now_ns();
  const std::uint64_t of_all_ms = looks_.allows(client.process->look_share, now_ns) ? 1 : looks_.wait_ms(now_ns);
  return std::max(client.process->arena_looks.wait_ms(now_ns), of_all_ms);
}

void Clients::set_access(AccessRules rules) {
  access_ = std::move(rules);
  std::vector<std::pair<std::uint64_t, Status>> unwanted;
  for_each([&](Client& client) {
    const auto who = identity_of(client.attach.get());
    client.roles = who.ok() ? roles_of(*who, access_, ::geteuid()) : RoleSet();
    const Status let_in = who.ok() ? check_may_attach(*who, client.roles, access_, ::geteuid()) : who.status();
    if (!let_in.ok()) unwanted.emplace_back(client.id, let_in);
  });
  for (const auto& [id, why] : unwanted) {
    if (Client* client = find(id)) disconnect(*client, why.message(), why.code());
  }
}

void Clients::refuse(int socket, const Status& why, std::uint64_t arena_room_bytes) {
  // Best effort: the client may not read.
  if (!wire::send_control(socket, {.kind = ControlKind::kRefused,
                                   .a = static_cast<std::uint64_t>(why.code()),
                                   .b = arena_room_bytes,
                                   .text = why.message()})
           .ok())
    return;
}

void Clients::disconnect(Client& client, const std::string& why, StatusCode code) {
  log_.warn("client_disconnected client={} pid={} reason=\"{}\"", client.id, client.pid, why);
  refuse(client.attach.get(), Status(code, why), client.arena_room_bytes);
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
  client.handshake.reset();
  loop_.hang_up(std::move(client.attach), client.uid);
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
  allocated_arena_bytes_ -= client.input_allocated + client.output_allocated;
  client.process->arena_bytes -= client.input_bytes + client.output_bytes;
  if (--client.process->connections == 0 && client.process->has_rested(clock_.now_ns()))
    processes_.erase(process_key(client.pid, client.uid));
  else if (client.process->connections == 0)
    forget_processes_.set_earlier(clock_.now_ns() + ClientProcess::kRestNs);
  free_places_.push_back(client.place);
  loop_.close_memory(std::move(client.input));
  loop_.close_memory(std::move(client.output));
  clients_.erase(found);
}

void Clients::forget_processes(std::uint64_t now_ns) {
  const auto has_left = [](const auto& process) { return process.second.connections == 0; };
  std::erase_if(processes_, [&](const auto& process) { return has_left(process) && process.second.has_rested(now_ns); });
  if (std::ranges::any_of(processes_, has_left)) forget_processes_.set(now_ns + ClientProcess::kRestNs);
}

}  // namespace shoal::supervisor

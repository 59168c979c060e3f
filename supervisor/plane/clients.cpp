#include "supervisor/plane/clients.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shm/wire/local_address.hpp"
#include "shm/wire/messages.hpp"

namespace shoal::supervisor {

namespace {
constexpr rlim_t kDescriptorsPerClient = 6, kDescriptorsForUs = 256;
constexpr std::size_t kShareForOperators = 16, kShareForOthers = 4;
constexpr int kBacklog = 1024;
constexpr std::uint64_t kOffencesForgottenNs = 8'000'000'000;  // a process may offend eight times, then once per second
constexpr std::size_t kShareOfWaiting = 2;  // of the places that others leave, connections of one user may wait for half
constexpr std::size_t kShareForFirst = 4;   // of the places; a user's second connection does not wait for these
// Connections are accepted faster than they are let in. So who comes again and again keeps nobody waiting in the backlog.
constexpr int kAcceptancesPerSecond = 5000;
// Whoever removes the attach socket may go on to remove the rest.
constexpr std::uint64_t kRestoreNs = 1'000'000'000;
constexpr std::uint32_t kWatched = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_MOVE_SELF;
constexpr int kMostPerTurn = 16;  // clients handled before requests have their turn again

UniqueFd open_reserve() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

bool reports(const UniqueFd& fd, short event) {
  pollfd state{.fd = fd.get(), .events = event, .revents = 0};
  return ::poll(&state, 1, 0) == 1;
}

Status process_is_gone(pid_t pid) { return unavailable("the process {} that has connected is gone", pid); }

// Whose account pays for closing what the peer has sent.
uid_t payer_of(const UniqueFd& connection) {
  const auto user = user_of(connection.get());
  return user.ok() ? *user : Closer::kChild;
}

// The last places are reserved for root and for those whom [roles] names operators, so that an operator gets in. The daemon's own
// user is an operator, too, but its clients are mostly usual ones.
bool is_operator(const Identity& who, RoleSet roles) {
  return who.user == 0 || (who.user != ::geteuid() && roles.has(Role::kOperator));
}
// Operators wait for no turn. But if the daemon runs as root, its own user's clients do.
bool needs_no_turn(const Identity& who, RoleSet roles) { return is_operator(who, roles) && who.user != ::geteuid(); }
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
      restore_(timers, Timer::Kind::kClock, [this](std::uint64_t) { restore_attach(); }),
      looks_(kLooksPerSecond),
      accept_again_(timers, Timer::Kind::kClock,
                    [this](std::uint64_t now_ns) {
                      if (!watch_listener(listener_).ok()) accept_again_.set(now_ns + kShortageNs);
                    }),
      admit_again_(timers, Timer::Kind::kClock, [this](std::uint64_t now_ns) { admit_waiting(now_ns); }),
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
  if (notices_) loop_.forget(notices_.get());
  while (auto arrival = arrivals_.take()) loop_.hang_up(std::move(arrival->connection), arrival->user);
  for (const auto& [id, client] : clients_) {
    if (client->attach) loop_.hang_up(std::move(client->attach), client->uid);
    if (client->pidfd) loop_.forget(client->pidfd.get());
  }
}

Status Clients::listen() {
  SHOAL_RETURN_IF_ERROR(open_attach());
  if (const Status watched = watch_directory(); !watched.ok())
    log_.warn("attach_unwatched path={} reason=\"{}\"", directory_.attach_path(), watched.message());
  if (!has_attach()) restore_.set_earlier(clock_.now_ns() + kRestoreNs);  // removed before it was watched
  return {};
}

// If it fails, the listener that was there stays, and whatever was bound is replaced the next time.
Status Clients::open_attach() {
  SHOAL_ASSIGN_OR_RETURN(UniqueFd listener, wire::listen_at(directory_.attach_path(), SOCK_SEQPACKET, kBacklog));
  SHOAL_RETURN_IF_ERROR(directory_.share_with(access_.socket_group));
  SHOAL_RETURN_IF_ERROR(watch_listener(listener));
  attach_ = directory_.attach_file();
  if (listener_) loop_.hang_up(std::move(listener_));
  listener_ = std::move(listener);
  accept_again_.clear();
  return {};
}

Status Clients::watch_directory() {
  const std::string& path = directory_.path();
  notices_.reset(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (!notices_) return status_from_errno("watch", path + " (fs.inotify.max_user_instances, RLIMIT_NOFILE)", errno);
  if (::inotify_add_watch(notices_.get(), path.c_str(), kWatched) < 0)
    return status_from_errno("watch", path + " (fs.inotify.max_user_watches)", errno);
  return loop_.watch(notices_.get(), [this] { directory_changed(); });
}

// The sockets of clients come and go there, too.
void Clients::directory_changed() {
  alignas(inotify_event) std::array<char, 4096> notices;
  bool has_news = false;
  for (ssize_t size; (size = ::read(notices_.get(), notices.data(), notices.size())) > 0;) {
    for (const char* at = notices.data(); at < notices.data() + size;) {
      const auto* notice = reinterpret_cast<const inotify_event*>(at);
      // Without a name: the directory was moved, or notices were lost.
      has_news |= notice->len == 0 || std::strcmp(notice->name, "attach") == 0 || std::strcmp(notice->name, "lock") == 0;
      at += sizeof *notice + notice->len;
    }
  }
  if (has_news) restore_.set_earlier(clock_.now_ns() + kRestoreNs);
}

bool Clients::has_attach() const {
  const struct stat there = directory_.attach_file();
  return there.st_nlink > 0 && there.st_dev == attach_.st_dev && there.st_ino == attach_.st_ino;
}

// Clients that are connected notice nothing. Without the file nobody else could connect, and the lock keeps the next daemon out.
void Clients::restore_attach() {
  if (const Status ours = directory_.check_ours(); !ours.ok()) return attach_is_lost(ours);
  if (has_attach()) return lost_.clear();
  const struct stat there = directory_.attach_file();
  if (there.st_nlink > 0 && !S_ISSOCK(there.st_mode))
    return attach_is_lost(failed_precondition("this file is no socket. Remove it: until then no client can connect"));
  accept_clients();  // those that have connected
  if (there.st_nlink > 0) ::unlink(directory_.attach_path().c_str());
  if (const Status opened = open_attach(); !opened.ok()) {
    restore_.set(clock_.now_ns() + kRestoreNs);
    return attach_is_lost(opened);
  }
  log_.warn("attach_restored path={}: somebody had removed or replaced it", directory_.attach_path());
  lost_.clear();
}

void Clients::attach_is_lost(const Status& why) {
  if (lost_ != why.message()) log_.error("attach_lost path={} reason=\"{}\"", directory_.attach_path(), why.message());
  lost_ = why.message();
}

Status Clients::watch_listener(const UniqueFd& listener) {
  return loop_.watch(listener.get(), [this] { accept_clients(); });
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
    if (now_ns < acceptances_.next_ns()) return pause_accepting(acceptances_.next_ns());
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
      const uid_t payer = payer_of(connection);
      loop_.hang_up(std::move(connection), payer);
      reserve_ = open_reserve();  // again the next time, if that socket is not closed yet
      return;
    }
    acceptances_.take(kAcceptancesPerSecond, now_ns);
    log_refusal(arrive(std::move(connection)));
  }
}

void Clients::log_refusal(const Status& admitted) {
  if (!admitted.ok() && logged_refusals_.take(10, clock_.now_ns())) log_.warn("client_refused reason=\"{}\"", admitted.message());
}

// A refused client is told why before the socket closes.
Status Clients::turn_away(UniqueFd connection, uid_t user, Status why) {
  refuse(connection.get(), why);
  loop_.hang_up(std::move(connection), user);
  return why;
}

// Lets the client in, or has it wait for its turn.
Status Clients::arrive(UniqueFd connection) {
  const auto who = identity_of(connection.get());
  if (!who.ok()) {
    const uid_t payer = payer_of(connection);
    return turn_away(std::move(connection), payer, who.status());
  }
  // Fails when the process is in another pid namespace (0). Then only the end of file reports its death. A connection that
  // outlives its process is refused: the process's number may be another one's soon.
  UniqueFd pidfd = open_pidfd(who->pid);
  if (!pidfd && errno == ESRCH) return turn_away(std::move(connection), who->user, process_is_gone(who->pid));
  const RoleSet roles = roles_of(*who, access_, ::geteuid());
  const std::uint64_t now_ns = clock_.now_ns();
  if (roles.empty() || connections_per_second_ == 0 || needs_no_turn(*who, roles) ||
      (arrivals_.size() == 0 && admissions_.next_ns() <= now_ns))
    return admit(std::move(connection), std::move(pidfd), *who);
  if (Status refused = check_may_wait(who->user); !refused.ok()) return turn_away(std::move(connection), who->user, refused);
  arrivals_.add({.user = who->user, .connection = std::move(connection), .pidfd = std::move(pidfd)});
  admit_again_.set(admissions_.next_ns());
  return {};
}

// A place is kept for each connection that waits, and so there are descriptors for it. Many users that each wait for half of what
// the others leave take three quarters of the places together, and the rest is for users of whom none waits.
Status Clients::check_may_wait(uid_t user) const {
  const std::size_t left = most_clients_ - std::min(most_clients_, clients_.size());
  const std::size_t own = arrivals_.count(user), others = std::min(left, arrivals_.size() - own);
  if (own == 0 && others < left) return {};
  if (own < (left - others) / kShareOfWaiting && own + others < left - left / kShareForFirst) return {};
  return overloaded(
      "{} connections of user {} wait until they may attach, beside {} of others, and no more may wait ([limits] "
      "connection_rate, connections): try again later",
      own, user, arrivals_.size() - own);
}

void Clients::admit_waiting(std::uint64_t now_ns) {
  for (int looked = 0; looked < kMostPerTurn && (connections_per_second_ == 0 || admissions_.next_ns() <= now_ns); ++looked) {
    // Then admit() would refuse everybody, also those who have sent nothing.
    if (loop_.closer().is_full()) return admit_again_.set(now_ns + kShortageNs);
    auto arrival = arrivals_.take();
    if (!arrival) return;
    const auto who = identity_of(arrival->connection.get());
    if (!who.ok() || reports(arrival->connection, POLLRDHUP)) {
      loop_.hang_up(std::move(arrival->connection), arrival->user);
    } else if (arrival->pidfd && reports(arrival->pidfd, POLLIN)) {
      log_refusal(turn_away(std::move(arrival->connection), arrival->user, process_is_gone(who->pid)));
    } else {
      log_refusal(admit(std::move(arrival->connection), std::move(arrival->pidfd), *who));
    }
  }
  if (arrivals_.size() > 0) admit_again_.set(std::max(now_ns, admissions_.next_ns()));
}

Status Clients::admit(UniqueFd connection, UniqueFd pidfd, const Identity& who) {
  const int socket = connection.get();
  const auto refused = [&](Status why) { return turn_away(std::move(connection), who.user, std::move(why)); };
  const RoleSet roles = roles_of(who, access_, ::geteuid());
  if (Status let_in = check_may_attach(who, roles, access_, ::geteuid()); !let_in.ok()) return refused(std::move(let_in));
  if (!refusal_.empty()) return refused(unavailable("{}", refusal_));
  if (Status offended = check_offences(who.pid); !offended.ok()) return refused(std::move(offended));
  if (loop_.closer().is_late(who.user)) {
    return refused(overloaded(
        "more than {} descriptors that processes of user {} sent are not closed yet, because close() of them takes long",
        Closer::kMostSent, who.user));
  }
  const std::size_t places = most_clients_ - (is_operator(who, roles) ? 0 : most_clients_ / kShareForOperators);
  if (clients_.size() >= places)
    return refused(
        overloaded("the daemon has {} clients, which is its limit ([limits] connections, or its number of file descriptors)",
                   clients_.size()));
  const std::int64_t key = process_key(who.pid, who.user);
  const auto process = processes_.find(key);
  const std::size_t own = process == processes_.end() ? 0 : process->second.connections;
  if (own >= most_clients_ - most_clients_ / kShareForOthers) {
    return refused(overloaded(
        "this process has {} of the {} places for clients ([limits] connections), and the others are left to other processes",
        own, most_clients_));
  }
  if (!needs_no_turn(who, roles)) admissions_.take(connections_per_second_, clock_.now_ns());
  auto client = std::make_unique<Client>();
  client->id = next_id_++;
  client->pid = who.pid;
  client->uid = who.user;
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
  client->process->pid = who.pid;
  ++client->process->connections;
  client->unsent = wire::Unsent(unsent_, client->process->unsent);
  client->handshake.emplace(timers_, Timer::Kind::kPatience, [this, id](std::uint64_t) { give_up(id); });
  expect_answer(*clients_.emplace(id, std::move(client)).first->second);
  return {};
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
  if (!wire::send_control(socket, {.kind = wire::ControlKind::kRefused,
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

#include "supervisor/clients.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shm/segment/segment.hpp"

namespace shoal::supervisor {

using wire::ControlKind;
using wire::ControlMessage;

namespace {
constexpr rlim_t kDescriptorsPerClient = 6, kDescriptorsForUs = 256;
constexpr std::size_t kShareForRoot = 16;
constexpr int kMostAtTheDoor = 1024;
constexpr std::uint64_t kOffencesForgottenNs = 8'000'000'000;  // eight are let pass, then one a second
constexpr int kMostPerTurn = 16;  // connections that come, or are given up, before requests have their turn again
constexpr std::uint64_t kLargestArena = std::uint64_t{1} << 40;

UniqueFd open_reserve() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }
}  // namespace

Clients::Clients(const SocketDirectory& directory, EventLoop& loop, ClientObserver& observer, Logger& log)
    : directory_(directory), loop_(loop), observer_(observer), log_(log), reserve_(open_reserve()) {
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
  if (listener_) loop_.forget(listener_.get());
  for (const auto& [id, client] : clients_) {
    if (client->attach) loop_.forget(client->attach.get());
    if (client->pidfd) loop_.forget(client->pidfd.get());
  }
}

Status Clients::listen() {
  const std::string path = directory_.attach_path();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof address.sun_path - 1));
  listener_.reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener_) return status_from_errno("create a socket for", path, errno);
  if (::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return status_from_errno("bind", path, errno);
  if (::listen(listener_.get(), kMostAtTheDoor) != 0) return status_from_errno("listen at", path, errno);
  open_door();
  return {};
}

void Clients::open_door() {
  is_door_shut_ = false;
  loop_.watch(listener_.get(), [this] { accept_clients(); });
}

void Clients::welcomed(Client& client) {
  if (client.state != Client::State::kWelcoming) return;
  client.state = Client::State::kReady;
}

void Clients::expect_answer(Client& client) {
  client.give_up_ns = monotonic_now_ns() + kHandshakeLimitNs;
  handshakes_.emplace_back(client.give_up_ns, client.id);
}

Client* Clients::find(std::uint64_t id) {
  const auto found = clients_.find(id);
  return found == clients_.end() || found->second->state == Client::State::kGone ? nullptr : found->second.get();
}

void Clients::accept_clients() {
  for (int accepted = 0; accepted < kMostPerTurn; ++accepted) {
    const std::uint64_t now_ns = monotonic_now_ns();
    if (now_ns < arrivals_.next_ns()) {
      is_door_shut_ = true;
      return loop_.forget(listener_.get());
    }
    UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EMFILE && errno != ENFILE) return;
      // Give up the reserve for a moment, so that the peer hears why instead of waiting in the backlog for ever.
      reserve_.reset();
      connection.reset(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (connection) refuse(connection.get(), unavailable("the daemon has no file descriptors left"));
      connection.reset();
      reserve_ = open_reserve();
      return;
    }
    arrivals_.take(connections_per_second_, now_ns);
    if (Status admitted = admit(std::move(connection)); !admitted.ok() && logged_refusals_.take(10, now_ns))
      log_.warn("client_refused reason=\"{}\"", admitted.message());
  }
}

Status Clients::admit(UniqueFd connection) {
  const int socket = connection.get();
  // Whoever is refused hears it before the socket closes.
  const auto refused = [&](Status why) {
    refuse(socket, why);
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
  // The last places are root's: whoever looks after the machine gets in.
  const std::size_t places = most_clients_ - (peer.uid == 0 ? 0 : most_clients_ / kShareForRoot);
  if (clients_.size() >= places)
    return refused(
        overloaded("the daemon has {} clients, as many as it takes ([limits] connections, or the descriptors it may have)",
                   clients_.size()));
  auto client = std::make_unique<Client>();
  client->id = next_id_++;
  client->pid = peer.pid;
  client->pidfd.reset(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));  // 0 or gone: the end of file has to do
  client->attach = std::move(connection);
  client->place = clients_.size();
  if (!free_places_.empty()) {
    client->place = free_places_.back();
    free_places_.pop_back();
  }
  const std::uint64_t id = client->id;
  loop_.watch(socket, [this, id] { client_speaks(id); });
  if (client->pidfd) {
    loop_.watch(client->pidfd.get(), [this, id] {
      if (Client* dead = find(id)) gone(*dead);
    });
  }
  expect_answer(*clients_.emplace(id, std::move(client)).first->second);
  return {};
}

void Clients::client_speaks(std::uint64_t id) {
  while (Client* client = find(id)) {
    auto received = wire::receive_control(client->attach.get());
    if (!received.ok()) {
      return received.status().code() == StatusCode::kUnavailable ? gone(*client) : expel(*client, received.status().message());
    }
    if (!received->has_value()) return;
    Status handled;
    if ((*received)->kind == ControlKind::kAttach && client->state == Client::State::kAttaching) {
      handled = handle_attach(*client, **received);
    } else if ((*received)->kind == ControlKind::kBound && client->state == Client::State::kBinding) {
      client->state = Client::State::kWelcoming;
      expect_answer(*client);
      handled = observer_.client_bound(*client);
    } else {
      handled = invalid_argument("attach: a message of kind {} where it does not belong", static_cast<int>((*received)->kind));
    }
    if (!handled.ok()) return expel(*client, handled.message());
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
  SHOAL_ASSIGN_OR_RETURN(client.input, reopen_read_only(fds[0]));
  client.output = std::move(fds[1]);
  client.input_bytes = *input_bytes;
  client.output_bytes = *output_bytes;
  return {};
}

void Clients::refuse(int socket, const Status& why) {
  // Best effort: whoever does not listen needs no reason.
  if (!wire::send_control(socket,
                          {.kind = ControlKind::kRefused, .a = static_cast<std::uint64_t>(why.code()), .text = why.message()})
           .ok())
    return;
}

void Clients::expel(Client& client, const std::string& why, StatusCode code) {
  log_.warn("client_expelled client={} pid={} reason=\"{}\"", client.id, client.pid, why);
  refuse(client.attach.get(), Status(code, why));
  if (code == StatusCode::kInvalidArgument) remember_offence(client.pid);
  gone(client);
}

void Clients::remember_offence(pid_t pid) {
  const std::uint64_t now_ns = monotonic_now_ns();
  std::erase_if(offenders_, [&](const auto& offender) { return offender.second.next_ns() + kOffencesForgottenNs < now_ns; });
  if (connections_per_second_ == 0 || pid == 0) return;  // 0: a process of another namespace, one of many
  offenders_.try_emplace(pid, kOffencesForgottenNs).first->second.take(1, now_ns);
}

Status Clients::check_offences(pid_t pid) const {
  const auto found = offenders_.find(pid);
  const std::uint64_t wait_ms = found == offenders_.end() ? 0 : found->second.wait_ms(monotonic_now_ns());
  if (wait_ms == 0) return {};
  return overloaded("clients of process {} broke the protocol too often: it may come again in {} ms ([limits] connection_rate)",
                    pid, wait_ms);
}

void Clients::gone(Client& client) {
  client.state = Client::State::kGone;
  loop_.forget(client.attach.get());
  if (client.pidfd) loop_.forget(client.pidfd.get());
  client.attach.reset();
  client.pidfd.reset();
  if (!client.path.empty()) ::unlink(client.path.c_str());
  ++client.outstanding;  // its requests may all end during the call
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
  observer_.client_forgotten(*found->second);
  free_places_.push_back(found->second->place);
  clients_.erase(found);
}

// Those who are ready, gone, or have been given more time since.
void Clients::drop_finished_handshakes() {
  while (!handshakes_.empty()) {
    const auto [give_up_ns, id] = handshakes_.front();
    const Client* client = find(id);
    if (client && client->state < Client::State::kReady && client->give_up_ns == give_up_ns) return;
    handshakes_.pop_front();
  }
}

void Clients::tick(std::uint64_t now_ns) {
  if (is_door_shut_ && now_ns >= arrivals_.next_ns()) open_door();
  for (int expelled = 0; expelled < kMostPerTurn; ++expelled) {
    drop_finished_handshakes();
    if (handshakes_.empty() || now_ns < handshakes_.front().first) return;
    Client& client = *clients_.at(handshakes_.front().second);
    // One that had no processor for so long may well come again.
    expel(client, client.path.empty() ? std::string("no ATTACH within 2 s") : format("no answer within 2 s at {}", client.path),
          StatusCode::kUnavailable);
  }
}

std::optional<std::uint64_t> Clients::next_tick_ns() const {
  std::optional<std::uint64_t> next;
  if (!handshakes_.empty()) next = handshakes_.front().first;
  if (is_door_shut_) next = std::min(next.value_or(arrivals_.next_ns()), arrivals_.next_ns());
  return next;
}

}  // namespace shoal::supervisor

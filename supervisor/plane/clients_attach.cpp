// Clients: what their attach sockets say. A client sends its socket and arenas, is told a path, and says that it listens there.
#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "shm/base/errors.hpp"
#include "shm/segment/segment.hpp"
#include "shm/wire/local_address.hpp"
#include "shm/wire/messages.hpp"
#include "supervisor/plane/clients.hpp"
#include "supervisor/plane/fair_share.hpp"
#include "supervisor/process/received_message.hpp"

namespace shoal::supervisor {

using wire::ControlKind;
using wire::ControlMessage;

namespace {
constexpr std::uint64_t kSmallOffer = 16 << 20;
}  // namespace

void Clients::client_speaks(std::uint64_t id) {
  while (Client* client = find(id)) {
    if (loop_.closer().is_late(client->uid)) {
      if (client->state < Client::State::kReady) return stop_reading(*client);
      // It may not send anything here, so what it sent stays in the socket, which is closed later.
      if (wire::has_messages(client->attach.get()))
        return disconnect(*client, "attach: an unexpected message", StatusCode::kInvalidArgument);
    }
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

}  // namespace shoal::supervisor

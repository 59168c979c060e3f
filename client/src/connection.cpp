#include "client/src/connection.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "client/src/daemon_user.hpp"
#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shm/wire/local_address.hpp"
#include "shm/wire/messages.hpp"

namespace shoal::client {
namespace {

Result<UniqueFd> connect_attach(const std::string& path) {
  SHOAL_RETURN_IF_ERROR(wire::check_socket_path(path));
  SHOAL_ASSIGN_OR_RETURN(UniqueFd fd, wire::make_local_socket(SOCK_SEQPACKET));
  const sockaddr_un address = wire::local_address(path);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  if (errno == EAGAIN) return overloaded("the daemon at {} accepts no connections: too many clients wait for it", path);
  if (errno == ENOENT || errno == ECONNREFUSED) {
    return unavailable("no daemon at {}: start one with `SHOAL_DIR={} shoald --model NAME=PATH`", path,
                       path.substr(0, path.rfind('/')));
  }
  if (errno == EACCES) {
    return permission_denied(
        "user {} may not use the daemon at {}: run as the daemon's user, or in the group that it lets in (socket_group in its "
        "configuration, shoald --socket-group)",
        ::geteuid(), path);
  }
  return status_from_errno("connect to the daemon at", path, errno);
}

/// The process that called listen() on the other end. The socket knows it; the file may have been replaced.
Result<ucred> peer_of(const UniqueFd& socket, const std::string& path) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return status_from_errno("ask who serves at", path, errno);
  return peer;
}

}  // namespace

Result<std::unique_ptr<Connection>> Connection::begin(wire::MessageContext& context, const std::string& directory,
                                                      const Arena* input, const Arena* output, std::uint64_t give_up_at_ns) {
  const std::string path = directory + "/attach";
  SHOAL_ASSIGN_OR_RETURN(UniqueFd attach, connect_attach(path));
  SHOAL_ASSIGN_OR_RETURN(const ucred daemon, peer_of(attach, path));
  SHOAL_RETURN_IF_ERROR(check_daemon_user(directory, daemon.uid));
  wire::ControlMessage message{.kind = wire::ControlKind::kAttach,
                               .a = input ? wire::kKnownFeatures : wire::kKnownFeatures & ~wire::kDescriptions};
  SHOAL_ASSIGN_OR_RETURN(UniqueFd unbound, wire::make_local_socket(SOCK_STREAM));
  SHOAL_ASSIGN_OR_RETURN(UniqueFd copy, duplicate_fd(unbound.get()));
  message.fds.push_back(std::move(copy));
  for (const Arena* arena : {input, output}) {
    if (!arena) continue;
    SHOAL_ASSIGN_OR_RETURN(UniqueFd fd, duplicate_fd(arena->fd().get()));
    message.fds.push_back(std::move(fd));
  }
  // If the daemon has closed the socket, it may have sent the reason: advance() reads it.
  if (Status sent = wire::send_control(attach.get(), message); !sent.ok() && sent.code() != StatusCode::kUnavailable)
    return unavailable("daemon at {}: {}", path, sent.message());
  return std::unique_ptr<Connection>(new Connection(context, path, std::move(attach), std::move(unbound), daemon, give_up_at_ns));
}

Connection::Connection(wire::MessageContext& context, std::string attach_path, UniqueFd attach, UniqueFd unbound,
                       const ucred& daemon, std::uint64_t give_up_at_ns)
    : context_(context),
      attach_path_(std::move(attach_path)),
      attach_(std::move(attach)),
      unbound_(std::move(unbound)),
      daemon_(daemon),
      spare_(::open("/dev/null", O_RDONLY | O_CLOEXEC)),
      give_up_at_ns_(give_up_at_ns) {}

// Closing is not enough: a child that this process has forked may still hold the socket.
Connection::~Connection() { ::shutdown(attach_.get(), SHUT_RDWR); }

Status Connection::advance(std::uint64_t now_ns) {
  while (true) {
    const auto message = wire::receive_control(attach_.get());
    if (message.status().code() == StatusCode::kInvalidArgument)  // of another version: names both
      return message.status().with_context("daemon at " + attach_path_);
    if (!message.ok()) return unavailable("the daemon at {} is gone ({})", attach_path_, message.status().message());
    if (!*message) break;
    SHOAL_RETURN_IF_ERROR(handle(**message));
  }
  if (state_ == State::kBound) SHOAL_RETURN_IF_ERROR(receive_welcome());
  return state_ == State::kReady || now_ns < give_up_at_ns_ ? Status() : no_answer();
}

Status Connection::handle(const wire::ControlMessage& message) {
  switch (message.kind) {
    case wire::ControlKind::kRefused: {
      const auto code = static_cast<StatusCode>(message.a);
      arena_room_bytes_ = message.b;
      return Status(code == StatusCode::kOk ? StatusCode::kUnavailable : code,
                    format("daemon at {}: {}", attach_path_, message.text));
    }
    case wire::ControlKind::kPath: {
      if (state_ != State::kAttached || socket_) return {};
      socket_path_ = message.text;
      SHOAL_ASSIGN_OR_RETURN(socket_, wire::Dealer::listen(context_, std::move(unbound_)));
      if (message.a != 0) longest_frame_bytes_ = std::min(longest_frame_bytes_, message.a);
      state_ = State::kBound;
      spare_.reset();
      return wire::send_control(attach_.get(), {.kind = wire::ControlKind::kBound});
    }
    default:
      return {};  // newer daemons may send other kinds
  }
}

Status Connection::receive_welcome() {
  wire::Parcel message;
  SHOAL_ASSIGN_OR_RETURN(const bool received, socket_.receive(message));
  if (!received) return {};
  const auto kind = wire::peek_kind(message[0]);
  if (!kind.ok()) return kind.status().with_context("daemon at " + attach_path_);
  if (*kind != wire::Kind::kWelcome) return unavailable("daemon at {}: its first message is not a WELCOME", attach_path_);
  try {
    for (std::size_t i = 1; i < message.size(); ++i) descriptions_.emplace_back(wire::as_text(message[i]));
  } catch (const std::bad_alloc&) {  // the pool asks for those it needs
  }
  const wire::ControlHeader answer = wire::make_control(wire::Kind::kWelcomed, 0);
  SHOAL_RETURN_IF_ERROR(socket_.send(std::as_bytes(std::span(&answer, 1))));
  state_ = State::kReady;
  return {};
}

Status Connection::no_answer() const {
  return unavailable(
      "daemon at {} (process {}): no {} in time (connect_timeout, or reconnect_timeout): it is stopped, hangs, has too much to "
      "do, or gets more clients than its [limits] connection_rate allows",
      attach_path_, daemon_.pid, state_ == State::kBound ? format("WELCOME at {}", socket_path_) : "answer");
}

}  // namespace shoal::client

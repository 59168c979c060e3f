#include "client/src/connection.hpp"

#include <fcntl.h>
#include <sys/fsuid.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shm/wire/local_address.hpp"
#include "shm/wire/messages.hpp"

namespace shoal::client {
namespace {

Result<UniqueFd> connect_attach(const std::string& path) {
  SHOAL_RETURN_IF_ERROR(wire::check_socket_path(path));
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return status_from_errno("create a socket for", path, errno);
  const sockaddr_un address = wire::local_address(path);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  if (errno == EAGAIN) return overloaded("the daemon at {} accepts no connections: too many clients wait for it", path);
  if (errno == ENOENT || errno == ECONNREFUSED) {
    return unavailable("no daemon at {}: start one with `SHOAL_DIR={} shoald --model NAME=PATH`", path,
                       path.substr(0, path.rfind('/')));
  }
  return status_from_errno("connect to the daemon at", path, errno);
}

/// The process that called listen() on the other end. The socket knows it; the file may have been replaced.
Result<ucred> peer_of(const UniqueFd& socket, const std::string& path) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return status_from_errno("ask who serves at", path, errno);
  if (::geteuid() != 0 && peer.uid != ::geteuid())
    return permission_denied("the daemon at {} belongs to user {}, not to you (user {})", path, peer.uid, ::geteuid());
  return peer;
}

/// While it exists, a calling thread of root accesses files as `user`. So in the directory of another user's daemon, root creates
/// and removes only what that user could, and created files belong to that user.
class FilesAs {
 public:
  explicit FilesAs(const ucred& user) : is_other_(::geteuid() == 0 && user.uid != 0) {
    if (!is_other_) return;
    uid_ = ::setfsuid(user.uid);
    gid_ = ::setfsgid(user.gid);
    is_ok_ = static_cast<uid_t>(::setfsuid(kAsk)) == user.uid && static_cast<gid_t>(::setfsgid(kAsk)) == user.gid;
  }
  ~FilesAs() {
    if (!is_other_) return;
    ::setfsgid(static_cast<gid_t>(gid_));
    ::setfsuid(static_cast<uid_t>(uid_));
  }
  FilesAs(const FilesAs&) = delete;
  FilesAs& operator=(const FilesAs&) = delete;
  bool is_ok() const { return is_ok_; }

 private:
  static constexpr uid_t kAsk = static_cast<uid_t>(-1);  // changes nothing
  bool is_other_, is_ok_ = true;
  int uid_ = 0, gid_ = 0;
};

}  // namespace

Result<std::unique_ptr<Connection>> Connection::begin(wire::MessageContext& context, const std::string& directory,
                                                      const Arena* input, const Arena* output, std::uint64_t give_up_at_ns) {
  const std::string path = directory + "/attach";
  SHOAL_ASSIGN_OR_RETURN(UniqueFd attach, connect_attach(path));
  SHOAL_ASSIGN_OR_RETURN(const ucred daemon, peer_of(attach, path));
  wire::ControlMessage message{.kind = wire::ControlKind::kAttach};
  for (const Arena* arena : {input, output}) {
    if (!arena) continue;
    SHOAL_ASSIGN_OR_RETURN(UniqueFd fd, duplicate_fd(arena->fd().get()));
    message.fds.push_back(std::move(fd));
  }
  // If the daemon has closed the socket, it may have sent the reason: advance() reads it.
  if (Status sent = wire::send_control(attach.get(), message); !sent.ok() && sent.code() != StatusCode::kUnavailable)
    return unavailable("daemon at {}: {}", path, sent.message());
  return std::unique_ptr<Connection>(new Connection(context, directory, std::move(attach), daemon, give_up_at_ns));
}

Connection::Connection(wire::MessageContext& context, std::string directory, UniqueFd attach, const ucred& daemon,
                       std::uint64_t give_up_at_ns)
    : context_(context),
      directory_(std::move(directory)),
      attach_path_(directory_ + "/attach"),
      attach_(std::move(attach)),
      daemon_(daemon),
      spare_(::open("/dev/null", O_RDONLY | O_CLOEXEC)),
      give_up_at_ns_(give_up_at_ns) {}

// Closing is not enough: a child that this process has forked may still hold the socket.
Connection::~Connection() {
  remove_socket_file();
  ::shutdown(attach_.get(), SHUT_RDWR);
}

// Binds at the path that the daemon sent, but never outside the daemon's directory.
Status Connection::bind(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  if (name.empty() || name == "." || name == "..")
    return unavailable("daemon at {}: the path '{}' that it sent does not name a file", attach_path_, path);
  socket_path_ = directory_ + "/" + name;
  const FilesAs daemon(daemon_);
  if (!daemon.is_ok())
    return permission_denied("daemon at {}: this process cannot act as its user {}", attach_path_, daemon_.uid);
  if (::unlink(socket_path_.c_str()) != 0 && errno != ENOENT)  // a client of an earlier daemon may have left it
    return status_from_errno("remove", socket_path_, errno);
  SHOAL_ASSIGN_OR_RETURN(socket_, wire::Dealer::bind(context_, socket_path_));
  return {};
}

void Connection::remove_socket_file() {
  if (socket_path_.empty() || state_ == State::kReady) return;
  const FilesAs daemon(daemon_);
  if (daemon.is_ok()) ::unlink(socket_path_.c_str());
}

Status Connection::advance(std::uint64_t now_ns) {
  while (true) {
    const auto message = wire::receive_control(attach_.get());
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
      return Status(code == StatusCode::kOk ? StatusCode::kUnavailable : code,
                    format("daemon at {}: {}", attach_path_, message.text));
    }
    case wire::ControlKind::kPath: {
      if (state_ != State::kAttached || socket_) return {};
      SHOAL_RETURN_IF_ERROR(bind(message.text));
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
  wire::Message message;
  SHOAL_ASSIGN_OR_RETURN(const bool received, socket_.receive(message));
  if (!received) return {};
  const auto kind = wire::peek_kind(message[0]);
  if (!kind.ok()) return kind.status();
  if (*kind != wire::Kind::kWelcome) return unavailable("daemon at {}: its first message is not a WELCOME", attach_path_);
  const wire::ControlHeader answer = wire::make_control(wire::Kind::kWelcomed, 0);
  SHOAL_RETURN_IF_ERROR(socket_.send(std::as_bytes(std::span(&answer, 1))));
  remove_socket_file();  // not zmq_unbind, which closes the connection
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

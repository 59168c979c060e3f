#include "client/src/connection.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shm/wire/messages.hpp"

namespace shoal::client {
namespace {

constexpr std::uint64_t kAnswerTimeoutNs = 2'000'000'000;

Result<UniqueFd> connect_attach(const std::string& path) {
  SHOAL_RETURN_IF_ERROR(wire::check_socket_path(path));
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd) return status_from_errno("create a socket for", path, errno);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  if (errno == ENOENT || errno == ECONNREFUSED || errno == EAGAIN) {
    return unavailable("no daemon at {}: start one with `SHOAL_DIR={} shoald --model NAME=PATH`", path,
                       path.substr(0, path.rfind('/')));
  }
  return status_from_errno("connect to the daemon at", path, errno);
}

/// Lets the daemon connect: only those may who may write to the socket's file, and root's is root's. The daemon's user could have
/// put something else at the path, so the file is looked at before it is given away.
Status give_to_owner_of(const std::string& attach_path, const std::string& path) {
  if (::geteuid() != 0) return {};
  struct stat daemon {
  }, ours{};
  const UniqueFd file(::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!file || ::stat(attach_path.c_str(), &daemon) != 0 || ::fstat(file.get(), &ours) != 0)
    return status_from_errno("look at", path, errno);
  if (ours.st_uid != 0 || !S_ISSOCK(ours.st_mode)) return permission_denied("{} is not the socket that was made there", path);
  if (::fchownat(file.get(), "", daemon.st_uid, daemon.st_gid, AT_EMPTY_PATH) != 0)
    return status_from_errno("give the daemon's user", path, errno);
  return {};
}

}  // namespace

std::string default_directory() {
  if (const char* directory = std::getenv("SHOAL_DIR"); directory && *directory) return directory;
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); runtime && *runtime) return std::string(runtime) + "/shoal";
  return "/run/shoal";
}

Result<std::unique_ptr<Connection>> Connection::begin(wire::MessageContext& context, const std::string& directory,
                                                      const Arena* input, const Arena* output) {
  const std::string path = directory + "/attach";
  SHOAL_ASSIGN_OR_RETURN(UniqueFd attach, connect_attach(path));
  wire::ControlMessage message{.kind = wire::ControlKind::kAttach};
  for (const Arena* arena : {input, output}) {
    if (!arena) continue;
    SHOAL_ASSIGN_OR_RETURN(UniqueFd fd, duplicate_fd(arena->fd().get()));
    message.fds.push_back(std::move(fd));
  }
  if (Status sent = wire::send_control(attach.get(), message); !sent.ok())
    return unavailable("daemon at {}: {}", path, sent.message());
  return std::unique_ptr<Connection>(new Connection(context, path, std::move(attach)));
}

Connection::Connection(wire::MessageContext& context, std::string attach_path, UniqueFd attach)
    : context_(context),
      attach_path_(std::move(attach_path)),
      attach_(std::move(attach)),
      spare_(::open("/dev/null", O_RDONLY | O_CLOEXEC)),
      give_up_at_ns_(monotonic_now_ns() + kAnswerTimeoutNs) {}

Connection::~Connection() {
  if (!socket_path_.empty() && state_ != State::kReady) ::unlink(socket_path_.c_str());
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
      SHOAL_ASSIGN_OR_RETURN(socket_, wire::Dealer::bind(context_, message.text));
      socket_path_ = message.text;
      SHOAL_RETURN_IF_ERROR(give_to_owner_of(attach_path_, socket_path_));
      state_ = State::kBound;
      spare_.reset();
      return wire::send_control(attach_.get(), {.kind = wire::ControlKind::kBound});
    }
    default:
      return {};  // newer daemons may say more
  }
}

Status Connection::receive_welcome() {
  wire::Message message;
  SHOAL_ASSIGN_OR_RETURN(const bool received, socket_.receive(message));
  if (!received) return {};
  const auto kind = wire::peek_kind(message[0]);
  if (!kind.ok()) return kind.status();
  if (*kind != wire::Kind::kWelcome) return unavailable("daemon at {}: its first message is no welcome", attach_path_);
  const wire::ControlHeader answer = wire::make_control(wire::Kind::kWelcomed, 0);
  SHOAL_RETURN_IF_ERROR(socket_.send(std::as_bytes(std::span(&answer, 1))));
  ::unlink(socket_path_.c_str());  // never zmq_unbind: it cuts the connection
  state_ = State::kReady;
  return {};
}

Status Connection::no_answer() const {
  if (state_ == State::kBound) return unavailable("daemon at {}: no welcome within 2 s at {}", attach_path_, socket_path_);
  return unavailable("daemon at {}: no answer within 2 s", attach_path_);
}

}  // namespace shoal::client

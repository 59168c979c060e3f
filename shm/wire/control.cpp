#include "shm/wire/control.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "shm/base/errors.hpp"
#include "shm/wire/messages.hpp"
#include "shm/wire/status_page.hpp"

namespace shoal::wire {
namespace {

constexpr std::uint32_t kControlMagic = 0x54435348;  // "HSCT"
constexpr std::uint16_t kControlVersion = 1;

// The start of each message. The text follows, up to the end of the packet.
struct Header {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t kind;
  std::uint64_t id, a, b;
  std::uint32_t text_bytes;
  std::uint32_t fd_count;
};
static_assert(sizeof(Header) == 40 && std::is_trivially_copyable_v<Header>);

struct alignas(cmsghdr) FdBuffer {
  char bytes[CMSG_SPACE(kMaxControlFds * sizeof(int))];
};

// Has room for all descriptors that one packet can carry (SCM_MAX_FD of the kernel). The kernel closes those that do not fit, and
// that can block. There is also room for a packet's credentials.
struct alignas(cmsghdr) ReceivedFdBuffer {
  static constexpr std::size_t kMostFds = 253;
  char bytes[CMSG_SPACE(kMostFds * sizeof(int)) + CMSG_SPACE(sizeof(ucred))];
};

std::vector<UniqueFd> take_fds(msghdr& message) {
  std::vector<UniqueFd> fds;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    const auto fd_at = [&](std::size_t i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      return fd;
    };
    try {
      fds.reserve(count);  // the kernel makes one part of all
    } catch (...) {
      for (std::size_t i = 0; i < count; ++i) ::close(fd_at(i));
      throw;
    }
    for (std::size_t i = 0; i < count; ++i) fds.emplace_back(fd_at(i));
  }
  return fds;
}

// Takes the descriptors out of `fds` if the packet is a message.
Result<ControlMessage> check_control(const msghdr& packet, const Header& header, std::size_t size, std::vector<UniqueFd>& fds,
                                     bool* lost_fds) {
  // SEQPACKET reports the end as an empty packet. A peer that sends an empty packet is treated as gone.
  if (size == 0) return unavailable("control socket: the peer is gone");
  if (fds.size() > kMaxControlFds) return invalid_argument("control message: more than {} descriptors", kMaxControlFds);
  const bool is_short_of_fds = (packet.msg_flags & MSG_CTRUNC) != 0;  // the buffer has room for all that a packet may have
  if (lost_fds) *lost_fds = is_short_of_fds;
  if (is_short_of_fds && !lost_fds)
    return invalid_argument("control message: descriptors were lost, because this process has none free");
  if ((packet.msg_flags & MSG_TRUNC) != 0) return invalid_argument("control message: longer than {} bytes", kMaxControlText);
  if (size < sizeof header) return invalid_argument("control message: {} bytes are too short", size);
  if (header.magic != kControlMagic) return invalid_argument("control message: magic {} is not ours", header.magic);
  if (header.version != kControlVersion) {
    return invalid_argument("control message: version {}, this side speaks {}: use the same release of both", header.version,
                            kControlVersion);
  }
  if (header.text_bytes != size - sizeof header || (header.fd_count != fds.size() && !is_short_of_fds)) {
    return invalid_argument("control message: {} bytes of text and {} descriptors announced, {} and {} came", header.text_bytes,
                            header.fd_count, size - sizeof header, fds.size());
  }
  return ControlMessage{.kind = static_cast<ControlKind>(header.kind),
                        .id = header.id,
                        .a = header.a,
                        .b = header.b,
                        .text = {},
                        .fds = is_short_of_fds ? std::vector<UniqueFd>() : std::exchange(fds, {})};
}

}  // namespace

std::string build_id() {
  return format("shoal-{}-wire{}-control{}-page{}", SHOAL_VERSION, kVersionMajor, kControlVersion, kPageVersion);
}

Status check_build(std::string_view supervisors) {
  if (supervisors == build_id()) return {};
  return failed_precondition("this program is build {}, the one that started it is {}: install both from one build", build_id(),
                             supervisors);
}

Result<ControlPair> make_control_pair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0)
    return status_from_errno("create", "control socket pair", errno);
  return ControlPair{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

Status send_control(int socket, const ControlMessage& message) {
  if (message.text.size() > kMaxControlText) {
    return invalid_argument("control message of {} bytes of text (at most {})", message.text.size(), kMaxControlText);
  }
  if (message.fds.size() > kMaxControlFds) {
    return invalid_argument("control message with {} descriptors (at most {})", message.fds.size(), kMaxControlFds);
  }
  Header header{kControlMagic,
                kControlVersion,
                static_cast<std::uint16_t>(message.kind),
                message.id,
                message.a,
                message.b,
                static_cast<std::uint32_t>(message.text.size()),
                static_cast<std::uint32_t>(message.fds.size())};
  iovec parts[2] = {{&header, sizeof header}, {const_cast<char*>(message.text.data()), message.text.size()}};
  msghdr packet{};
  packet.msg_iov = parts;
  packet.msg_iovlen = 2;
  FdBuffer fd_buffer{};
  if (!message.fds.empty()) {
    packet.msg_control = fd_buffer.bytes;
    packet.msg_controllen = CMSG_SPACE(message.fds.size() * sizeof(int));
    cmsghdr* part = CMSG_FIRSTHDR(&packet);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(message.fds.size() * sizeof(int));
    int fds[kMaxControlFds] = {};
    for (std::size_t i = 0; i < message.fds.size(); ++i) fds[i] = message.fds[i].get();
    std::memcpy(CMSG_DATA(part), fds, message.fds.size() * sizeof(int));
  }
  while (::sendmsg(socket, &packet, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    if (errno == EINTR) continue;
    if (errno == EAGAIN) return overloaded("control socket is full: its peer does not read");
    if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN) return unavailable("control socket: the peer is gone");
    return status_from_errno("send on", "control socket", errno);
  }
  return {};
}

Status send_question(int socket, std::string_view question) {
  return send_control(socket, {.kind = ControlKind::kFind, .text = format("{}\n{}", build_id(), question)});
}

Result<Question> receive_question(int socket) {
  SHOAL_ASSIGN_OR_RETURN(const auto asked, receive_control(socket, true));
  if (!asked || asked->kind != ControlKind::kFind) return invalid_argument("this is no question for files");
  const std::string& text = asked->text;
  const std::size_t line = std::min(text.find('\n'), text.size());
  return Question{text.substr(0, line), text.substr(std::min(line + 1, text.size()))};
}

Status send_found(int socket, std::string_view answer) {
  while (true) {
    const std::string_view part = answer.substr(0, kMaxControlText);
    const bool is_last = part.size() == answer.size();
    const Status sent = send_control(socket, {.kind = ControlKind::kFound, .a = is_last ? 1U : 0U, .text = std::string(part)});
    if (sent.code() == StatusCode::kOverloaded) {
      pollfd room{socket, POLLOUT, 0};
      (void)::poll(&room, 1, -1);
      continue;
    }
    if (!sent.ok() || is_last) return sent;
    answer.remove_prefix(part.size());
  }
}

Result<std::optional<ControlMessage>> receive_control(int socket, bool wait, bool* lost_fds, std::vector<UniqueFd>* refused) {
  Header header{};
  // One buffer per thread: the largest text is too large for the stack and for every message.
  thread_local std::vector<char> text(kMaxControlText);
  iovec parts[2] = {{&header, sizeof header}, {text.data(), text.size()}};
  ReceivedFdBuffer fd_buffer;
  msghdr packet{};
  packet.msg_iov = parts;
  packet.msg_iovlen = 2;
  packet.msg_control = fd_buffer.bytes;
  packet.msg_controllen = sizeof fd_buffer.bytes;
  ssize_t size = 0;
  while ((size = ::recvmsg(socket, &packet, MSG_CMSG_CLOEXEC | (wait ? 0 : MSG_DONTWAIT))) < 0) {
    // The kernel says ECONNRESET once, when the peer has closed without reading all of our messages. The peer's own messages can
    // still be read.
    if (errno == EINTR || errno == ECONNRESET) continue;
    if (errno == EAGAIN) return std::optional<ControlMessage>();
    if (errno == ENOTCONN) return unavailable("control socket: the peer is gone");
    return status_from_errno("receive on", "control socket", errno);
  }
  std::vector<UniqueFd> fds = take_fds(packet);
  auto message = check_control(packet, header, static_cast<std::size_t>(size), fds, lost_fds);
  if (refused) std::ranges::move(fds, std::back_inserter(*refused));
  if (!message.ok()) return message.status();
  message->text.assign(text.data(), header.text_bytes);
  return std::optional<ControlMessage>(*std::move(message));
}

ssize_t receive_bytes(int socket, std::span<std::byte> bytes, int flags, std::vector<UniqueFd>& fds) {
  ReceivedFdBuffer fd_buffer;
  iovec part{bytes.data(), bytes.size()};
  msghdr packet{};
  packet.msg_iov = &part;
  packet.msg_iovlen = 1;
  packet.msg_control = fd_buffer.bytes;
  packet.msg_controllen = sizeof fd_buffer.bytes;
  const ssize_t received = ::recvmsg(socket, &packet, flags | MSG_CMSG_CLOEXEC);
  if (received >= 0 && packet.msg_controllen > 0) fds = take_fds(packet);
  return received;
}

bool is_local_stream(int fd) {
  const auto is = [fd](int option, int wanted) {
    int value = -1;
    socklen_t size = sizeof value;
    return ::getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 && value == wanted;
  };
  return is(SO_DOMAIN, AF_UNIX) && is(SO_TYPE, SOCK_STREAM);
}

namespace {
enum class Waits { kNothing, kMessage, kDescriptors };

// Looks at as many bytes as drop_until_descriptors() takes at once.
constexpr std::size_t kTaken = 4096;

Waits what_waits_in(int socket) {
  const int on = 1;
  if (::setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0) return Waits::kNothing;
  alignas(cmsghdr) char credentials[CMSG_SPACE(sizeof(ucred))];  // no room for descriptors, so none is received
  std::array<char, kTaken> bytes;
  iovec part{bytes.data(), bytes.size()};
  msghdr packet{};
  packet.msg_iov = &part;
  packet.msg_iovlen = 1;
  packet.msg_control = credentials;
  packet.msg_controllen = sizeof credentials;
  ssize_t size = 0;
  while ((size = ::recvmsg(socket, &packet, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC)) < 0) {
    if (errno != EINTR && errno != ECONNRESET) return Waits::kNothing;
    packet.msg_controllen = sizeof credentials;
  }
  if ((packet.msg_flags & MSG_CTRUNC) != 0) return Waits::kDescriptors;
  const bool is_empty_packet = size == 0 && packet.msg_controllen > 0 && !is_local_stream(socket);
  return size > 0 || is_empty_packet ? Waits::kMessage : Waits::kNothing;
}
}  // namespace

bool has_messages(int socket) { return what_waits_in(socket) != Waits::kNothing; }

bool drop_until_descriptors(int socket) {
  while (true) {
    const Waits waits = what_waits_in(socket);
    if (waits != Waits::kMessage) return waits == Waits::kDescriptors;
    std::array<char, kTaken> bytes;
    ::recv(socket, bytes.data(), bytes.size(), MSG_DONTWAIT);
  }
}

std::vector<UniqueFd> drain_fds(int socket, std::size_t most) {
  // With credentials, even an empty packet can be told from the end of the connection. A stream brings them at its end, too.
  const int on = 1;
  if (::setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0) return {};
  const bool streams = is_local_stream(socket);
  std::vector<UniqueFd> all;
  while (all.size() < most) {
    ReceivedFdBuffer fd_buffer;
    char bytes[4096];  // a stream ends a read behind bytes with descriptors, and a packet is one read
    iovec part{bytes, sizeof bytes};
    msghdr packet{};
    packet.msg_iov = &part;
    packet.msg_iovlen = 1;
    packet.msg_control = fd_buffer.bytes;
    packet.msg_controllen = sizeof fd_buffer.bytes;
    const ssize_t size = ::recvmsg(socket, &packet, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (size < 0 && (errno == EINTR || errno == ECONNRESET)) continue;
    if (size < 0 || (size == 0 && (packet.msg_controllen == 0 || streams))) return all;
    std::ranges::move(take_fds(packet), std::back_inserter(all));
  }
  return all;
}

}  // namespace shoal::wire

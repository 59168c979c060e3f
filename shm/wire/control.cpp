#include "shm/wire/control.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>

#include "shm/base/errors.hpp"
#include "shm/wire/messages.hpp"
#include "shm/wire/status_page.hpp"

namespace shoal::wire {
namespace {

constexpr std::uint32_t kControlMagic = 0x54435348;  // "HSCT"
constexpr std::uint16_t kControlVersion = 1;

// What each message begins with; the text follows to the end of the packet.
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

std::vector<UniqueFd> take_fds(msghdr& message) {
  std::vector<UniqueFd> fds;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      fds.emplace_back(fd);
    }
  }
  return fds;
}

}  // namespace

std::string build_id() {
  return format("shoal-{}-wire{}-control{}-page{}", SHOAL_VERSION, kVersionMajor, kControlVersion, status_page_bytes(1));
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

Result<std::optional<ControlMessage>> receive_control(int socket, bool wait, bool* lost_fds) {
  Header header{};
  // Per thread, so that neither the stack nor each message carries the largest text.
  thread_local std::vector<char> text(kMaxControlText);
  iovec parts[2] = {{&header, sizeof header}, {text.data(), text.size()}};
  FdBuffer fd_buffer{};
  msghdr packet{};
  packet.msg_iov = parts;
  packet.msg_iovlen = 2;
  packet.msg_control = fd_buffer.bytes;
  packet.msg_controllen = sizeof fd_buffer.bytes;
  ssize_t size = 0;
  while ((size = ::recvmsg(socket, &packet, MSG_CMSG_CLOEXEC | (wait ? 0 : MSG_DONTWAIT))) < 0) {
    // ECONNRESET, told once: the peer has closed without reading all of ours. What it said before is still to be read.
    if (errno == EINTR || errno == ECONNRESET) continue;
    if (errno == EAGAIN) return std::optional<ControlMessage>();
    if (errno == ENOTCONN) return unavailable("control socket: the peer is gone");
    return status_from_errno("receive on", "control socket", errno);
  }
  ControlMessage message;
  message.fds = take_fds(packet);
  // A packet of no bytes is how SEQPACKET says the end; a peer that sends one gains nothing but being taken for gone.
  if (size == 0) return unavailable("control socket: the peer is gone");
  const bool is_short_of_fds = (packet.msg_flags & MSG_CTRUNC) != 0;
  if (lost_fds) *lost_fds = is_short_of_fds;
  if (is_short_of_fds && lost_fds) message.fds.clear();
  if (is_short_of_fds && !lost_fds)
    return invalid_argument("control message: descriptors were lost (more than {}, or none free here)", kMaxControlFds);
  if ((packet.msg_flags & MSG_TRUNC) != 0) return invalid_argument("control message: longer than {} bytes", kMaxControlText);
  if (static_cast<std::size_t>(size) < sizeof header) return invalid_argument("control message: {} bytes are too short", size);
  if (header.magic != kControlMagic) return invalid_argument("control message: magic {} is not ours", header.magic);
  if (header.version != kControlVersion) {
    return invalid_argument("control message: version {}, this side speaks {}: use the same release of both", header.version,
                            kControlVersion);
  }
  if (header.text_bytes != static_cast<std::size_t>(size) - sizeof header ||
      (header.fd_count != message.fds.size() && !is_short_of_fds)) {
    return invalid_argument("control message: {} bytes of text and {} descriptors announced, {} and {} came", header.text_bytes,
                            header.fd_count, static_cast<std::size_t>(size) - sizeof header, message.fds.size());
  }
  message.kind = static_cast<ControlKind>(header.kind);
  message.id = header.id;
  message.a = header.a;
  message.b = header.b;
  message.text.assign(text.data(), header.text_bytes);
  return std::optional<ControlMessage>(std::move(message));
}

}  // namespace shoal::wire

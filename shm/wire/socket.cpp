#include "shm/wire/socket.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "shm/base/check.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/unique_fd.hpp"

namespace shoal::wire {
namespace {

constexpr int kHighWaterMark = 100'000;  // far above all credits: it must never be what limits
// How long what is queued for a peer that is let go is still sent. Not 0: then libzmq 4.3.4 stops in the middle of a message, and
// aborts the process if the peer hangs up at that moment.
constexpr int kLingerMs = 50;
constexpr std::size_t kRoutingIdBytes = 9;
constexpr rlim_t kSpareDescriptors = 16;
constexpr int kBacklog = 8;  // one peer connects; whoever else tries only fills this

std::array<std::byte, kRoutingIdBytes> routing_id(PeerId peer) {
  std::array<std::byte, kRoutingIdBytes> id;
  id[0] = std::byte{'S'};  // ids that begin with 0 are ZeroMQ's own
  std::memcpy(id.data() + 1, &peer, sizeof peer);
  return id;
}

Status zmq_status(std::string_view what, const std::string& path) {
  return internal_error("{} {}: {}", what, path, ::zmq_strerror(::zmq_errno()));
}

int flags_of(bool more, Wait wait) { return (more ? ZMQ_SNDMORE : 0) | (wait == Wait::kNo ? ZMQ_DONTWAIT : 0); }

// Closes the frame if it is not sent.
Status send_owned(void* socket, zmq_msg_t& frame, bool more, Wait wait) {
  if (::zmq_msg_send(&frame, socket, flags_of(more, wait)) >= 0) return {};
  Status failed = zmq_status("send a frame on", "a message socket");
  ::zmq_msg_close(&frame);
  return failed;
}

std::string endpoint(const std::string& path) { return "ipc://" + path; }

// Looks from the top of the range down to where descriptors are surely in use: cheap, and right in all but fragmented tables.
bool has_spare_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return true;
  rlim_t free_count = 0;
  for (rlim_t fd = limit.rlim_cur; fd-- > 0 && free_count < kSpareDescriptors;) {
    if (::fcntl(static_cast<int>(fd), F_GETFD) < 0) ++free_count;
  }
  return free_count >= kSpareDescriptors;
}

/// Behind the last frame of a message that is counted, until ZeroMQ has sent it or lost its peer.
struct Counted {
  zmq_msg_t frame;
  std::uint64_t message_bytes;
  ByteCount count;
};

void let_go(void*, void* hint) {
  const std::unique_ptr<Counted> counted(static_cast<Counted*>(hint));
  counted->count->fetch_sub(counted->message_bytes, std::memory_order_relaxed);
  ::zmq_msg_close(&counted->frame);
}

void count_until_sent(zmq_msg_t& last_frame, std::uint64_t message_bytes, const ByteCount& count) {
  if (!count || message_bytes < kLeastCounted) return;
  auto counted = std::make_unique<Counted>();
  counted->message_bytes = message_bytes;
  counted->count = count;
  ::zmq_msg_init(&counted->frame);
  ::zmq_msg_move(&counted->frame, &last_frame);
  count->fetch_add(message_bytes, std::memory_order_relaxed);
  void* data = ::zmq_msg_data(&counted->frame);
  SHOAL_CHECK(::zmq_msg_init_data(&last_frame, data, ::zmq_msg_size(&counted->frame), let_go, counted.get()) == 0);
  (void)counted.release();
}

// Bound here rather than by libzmq, which would also unlink the path again, later and on a thread of its own.
Result<UniqueFd> listen_at(const std::string& path) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return status_from_errno("create a socket for", path, errno);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return status_from_errno("bind", path, errno);
  if (::listen(fd.get(), kBacklog) != 0) return status_from_errno("listen at", path, errno);
  return fd;
}

}  // namespace

Status check_socket_path(const std::string& path) {
  if (path.size() > kMaxSocketPath)
    return invalid_argument("socket path {} has {} bytes (at most {})", path, path.size(), kMaxSocketPath);
  return {};
}

MessageContext::MessageContext() : handle_(::zmq_ctx_new()) { SHOAL_CHECK(handle_ != nullptr); }
MessageContext::~MessageContext() { finish(); }

void MessageContext::finish() {
  if (void* handle = std::exchange(handle_, nullptr)) ::zmq_ctx_term(handle);
}

static_assert(sizeof(zmq_msg_t) == 64);
static zmq_msg_t* as_zmq(void* frame) { return static_cast<zmq_msg_t*>(frame); }

std::span<const std::byte> Message::operator[](std::size_t index) const {
  zmq_msg_t* frame = as_zmq(const_cast<Frame*>(&frames_[index]));
  return {static_cast<const std::byte*>(::zmq_msg_data(frame)), ::zmq_msg_size(frame)};
}

std::uint64_t Message::size_bytes() const {
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < size(); ++i) total += (*this)[i].size();
  return total;
}

void Message::clear() {
  for (Frame& frame : frames_) ::zmq_msg_close(as_zmq(&frame));
  frames_.clear();
}

Socket::~Socket() {
  if (handle_) ::zmq_close(handle_);
}

void Socket::close_after_flush(std::chrono::milliseconds limit) {
  (void)set(ZMQ_LINGER, limit.count());
  ::zmq_close(std::exchange(handle_, nullptr));
}

int Socket::fd() const {
  int fd = -1;
  std::size_t size = sizeof fd;
  ::zmq_getsockopt(handle_, ZMQ_FD, &fd, &size);
  return fd;
}

Result<void*> Socket::open(MessageContext& context, int type) {
  void* handle = ::zmq_socket(context.handle(), type);
  if (!handle) return zmq_status("open", "a message socket");
  // With any domain, and nobody who asks for it, peers that speak ZMTP 1 or 2 are cut off: libzmq 4.3.4 aborts the process when
  // the first message of such a one meets the end of its connection.
  constexpr std::string_view kDomain = "shoal";
  if (::zmq_setsockopt(handle, ZMQ_ZAP_DOMAIN, kDomain.data(), kDomain.size()) != 0) {
    ::zmq_close(handle);
    return zmq_status("set the domain of", "a message socket");
  }
  return handle;
}

Status Socket::set(int option, std::int64_t value) {
  const int narrow = static_cast<int>(value);
  const bool wide = option == ZMQ_MAXMSGSIZE;
  const int rc =
      wide ? ::zmq_setsockopt(handle_, option, &value, sizeof value) : ::zmq_setsockopt(handle_, option, &narrow, sizeof narrow);
  return rc == 0 ? Status() : zmq_status(format("set option {} of", option), "a message socket");
}

Status Socket::send_frame(std::span<const std::byte> frame, bool more, Wait wait) {
  while (::zmq_send(handle_, frame.data(), frame.size(), flags_of(more, wait)) < 0) {
    if (::zmq_errno() == EINTR) continue;
    if (::zmq_errno() == EHOSTUNREACH) return unavailable("the peer's message socket is gone");
    if (::zmq_errno() == EAGAIN) return overloaded("the peer takes no messages");
    return zmq_status("send on", "a message socket");
  }
  return {};
}

Status Socket::send_last(std::span<const std::byte> bytes, Wait wait, std::uint64_t message_bytes, const ByteCount& unsent) {
  zmq_msg_t frame;
  if (::zmq_msg_init_size(&frame, bytes.size()) != 0) return zmq_status("make a frame for", "a message socket");
  std::memcpy(::zmq_msg_data(&frame), bytes.data(), bytes.size());
  count_until_sent(frame, message_bytes, unsent);
  return send_owned(handle_, frame, false, wait);
}

Status Socket::send_frames(Frames head, const Message* tail, std::size_t tail_first, Wait wait, bool more_before,
                           const ByteCount& unsent) {
  const std::size_t tail_count = tail && tail->size() > tail_first ? tail->size() - tail_first : 0;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; unsent && i < head.size(); ++i) bytes += head[i].size();
  for (std::size_t i = 0; unsent && i < tail_count; ++i) bytes += (*tail)[tail_first + i].size();
  for (std::size_t i = 0; i < head.size(); ++i) {
    const bool more = i + 1 < head.size() || tail_count > 0;
    Status sent = more || bytes < kLeastCounted ? send_frame(head[i], more, wait) : send_last(head[i], wait, bytes, unsent);
    // Only the first part of a message can be refused; without peers that is what a DEALER says instead of EHOSTUNREACH.
    if (!sent.ok()) return sent.code() == StatusCode::kOverloaded && !more_before ? unavailable("{}", sent.message()) : sent;
  }
  for (std::size_t i = 0; i < tail_count; ++i) {
    const bool more = i + 1 < tail_count;
    zmq_msg_t shared;
    ::zmq_msg_init(&shared);
    ::zmq_msg_copy(&shared, as_zmq(const_cast<Message::Frame*>(&tail->frames_[tail_first + i])));
    if (!more) count_until_sent(shared, bytes, unsent);
    SHOAL_RETURN_IF_ERROR(send_owned(handle_, shared, more, wait));
  }
  return {};
}

Result<bool> Socket::receive_frames(Message& message, Wait wait) {
  message.clear();
  for (bool more = true; more;) {
    message.frames_.emplace_back();
    zmq_msg_t* frame = as_zmq(&message.frames_.back());
    ::zmq_msg_init(frame);
    if (::zmq_msg_recv(frame, handle_, flags_of(false, wait)) < 0) {
      const int error = ::zmq_errno();
      message.clear();
      if (error == EAGAIN || error == EINTR) return false;
      return zmq_status("receive on", "a message socket");
    }
    more = ::zmq_msg_more(frame) != 0;
  }
  return true;
}

std::span<const std::byte> Socket::drop_first(Message& message, std::array<std::byte, 16>& copy) {
  const auto first = message[0];
  const std::size_t size = std::min(first.size(), copy.size());
  std::copy_n(first.begin(), size, copy.begin());
  ::zmq_msg_close(as_zmq(&message.frames_.front()));
  message.frames_.erase(message.frames_.begin());
  return {copy.data(), size};
}

Result<Dealer> Dealer::bind(MessageContext& context, const std::string& path) {
  SHOAL_RETURN_IF_ERROR(check_socket_path(path));
  if (!has_spare_descriptors())
    return unavailable("bind {}: fewer than {} file descriptors are free: raise the limit (ulimit -n)", path, kSpareDescriptors);
  SHOAL_ASSIGN_OR_RETURN(void* handle, open(context, ZMQ_DEALER));
  Dealer dealer(handle);
  SHOAL_RETURN_IF_ERROR(dealer.set(ZMQ_LINGER, kLingerMs));
  SHOAL_RETURN_IF_ERROR(dealer.set(ZMQ_SNDHWM, kHighWaterMark));
  SHOAL_RETURN_IF_ERROR(dealer.set(ZMQ_RCVHWM, kHighWaterMark));
  SHOAL_ASSIGN_OR_RETURN(UniqueFd listener, listen_at(path));
  SHOAL_RETURN_IF_ERROR(dealer.set(ZMQ_USE_FD, listener.get()));
  if (::zmq_bind(handle, endpoint(path).c_str()) != 0) return zmq_status("bind", path);
  (void)listener.release();  // closed with the socket
  return dealer;
}

Result<Router> Router::create(MessageContext& context) {
  SHOAL_ASSIGN_OR_RETURN(void* handle, open(context, ZMQ_ROUTER));
  Router router(handle);
  SHOAL_RETURN_IF_ERROR(router.set(ZMQ_LINGER, kLingerMs));
  SHOAL_RETURN_IF_ERROR(router.set(ZMQ_SNDHWM, kHighWaterMark));
  SHOAL_RETURN_IF_ERROR(router.set(ZMQ_RCVHWM, kHighWaterMark));
  SHOAL_RETURN_IF_ERROR(router.set(ZMQ_ROUTER_MANDATORY, 1));
  // A dead peer's messages must not be kept for whoever binds that path next: never again, in milliseconds. With -1, which says
  // so outright, libzmq 4.3.4 disconnects the peer itself, at any call, in the middle of its message: what is left of that one is
  // mixed with another peer's, or aborts the process.
  SHOAL_RETURN_IF_ERROR(router.set(ZMQ_RECONNECT_IVL, std::numeric_limits<int>::max()));
  SHOAL_RETURN_IF_ERROR(router.set(ZMQ_HANDSHAKE_IVL, 2000));
  SHOAL_RETURN_IF_ERROR(router.set(ZMQ_MAXMSGSIZE, kMaxFrameBytes));
  return router;
}

void Router::limit_frames(std::uint64_t bytes) {
  constexpr std::uint64_t kMost = kMaxFrameBytes;
  (void)set(ZMQ_MAXMSGSIZE, static_cast<std::int64_t>(bytes == 0 ? kMost : std::min(bytes, kMost)));
}

Status Router::connect(const std::string& path, PeerId peer) {
  SHOAL_RETURN_IF_ERROR(check_socket_path(path));
  const auto id = routing_id(peer);
  if (::zmq_setsockopt(handle_, ZMQ_CONNECT_ROUTING_ID, id.data(), id.size()) != 0) return zmq_status("name the peer at", path);
  if (::zmq_connect(handle_, endpoint(path).c_str()) != 0) return zmq_status("connect to", path);
  return {};
}

void Router::disconnect(const std::string& path, PeerId peer) {
  // A peer that broke the protocol has no connection any more, but libzmq 4.3.4 still keeps its address under the path: there the
  // next peer may stand by now, who would be disconnected in its place. So that entry, some 200 bytes, is left alone.
  const Status reached = send(peer, std::span<const std::byte>());
  if (reached.code() != StatusCode::kUnavailable) ::zmq_disconnect(handle_, endpoint(path).c_str());
}

Status Router::send(PeerId peer, Frames head, const Message* tail, std::size_t tail_first, const ByteCount& unsent) {
  const auto id = routing_id(peer);
  SHOAL_RETURN_IF_ERROR(send_frame(id, true, Wait::kNo));
  return send_frames(head, tail, tail_first, Wait::kNo, true, unsent);
}

Result<bool> Router::receive(PeerId& peer, Message& message) {
  SHOAL_ASSIGN_OR_RETURN(const bool received, receive_frames(message, Wait::kNo));
  if (!received) return false;
  std::array<std::byte, 16> copy;
  const auto id = drop_first(message, copy);
  SHOAL_CHECK(id.size() == kRoutingIdBytes);  // every peer was named by connect()
  std::memcpy(&peer, id.data() + 1, sizeof peer);
  return true;
}

bool wait(std::span<Waitable> items, std::chrono::milliseconds timeout) {
  constexpr std::size_t kMaxItems = 16;
  SHOAL_CHECK(items.size() <= kMaxItems);
  std::array<zmq_pollitem_t, kMaxItems> polled{};
  for (std::size_t i = 0; i < items.size(); ++i) {
    polled[i] = {items[i].socket ? items[i].socket->handle() : nullptr, items[i].fd, ZMQ_POLLIN, 0};
    items[i].readable = false;
  }
  const int ready = ::zmq_poll(polled.data(), static_cast<int>(items.size()), timeout.count());
  for (std::size_t i = 0; i < items.size() && ready > 0; ++i) items[i].readable = polled[i].revents != 0;
  return ready > 0;
}

}  // namespace shoal::wire

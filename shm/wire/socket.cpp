#include "shm/wire/socket.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>

#include "shm/base/check.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/unique_fd.hpp"
#include "shm/wire/local_address.hpp"

namespace shoal::wire {
namespace {

// Messages that may wait to be sent or, at a dealer, to be received. Other limits are reached first.
constexpr int kHighWaterMark = 100'000;
// How long queued messages are still sent after a disconnect or close. With 0 libzmq 4.3.4 stops in the middle of a message, and
// aborts the process if the peer hangs up at that moment.
constexpr int kLingerMs = 50;
constexpr std::size_t kRoutingIdBytes = 9;
constexpr rlim_t kSpareDescriptors = 16;
constexpr int kBacklog = 8;  // only one peer connects; other connections wait here

std::array<std::byte, kRoutingIdBytes> routing_id(PeerId peer) {
  std::array<std::byte, kRoutingIdBytes> id;
  id[0] = std::byte{'S'};  // ZeroMQ reserves ids that begin with 0
  std::memcpy(id.data() + 1, &peer, sizeof peer);
  return id;
}

Status zmq_status(std::string_view what, const std::string& path) {
  return internal_error("{} {}: {}", what, path, ::zmq_strerror(::zmq_errno()));
}

int flags_of(bool more, Wait wait) { return (more ? ZMQ_SNDMORE : 0) | (wait == Wait::kNo ? ZMQ_DONTWAIT : 0); }

std::string endpoint(const std::string& path) { return "ipc://" + path; }

// Looks for free descriptors from the highest number down, because the low ones are in use. A fragmented table costs more calls.
bool has_spare_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return true;
  rlim_t free_count = 0;
  for (rlim_t fd = limit.rlim_cur; fd-- > 0 && free_count < kSpareDescriptors;) {
    if (::fcntl(static_cast<int>(fd), F_GETFD) < 0) ++free_count;
  }
  return free_count >= kSpareDescriptors;
}

/// Holds the last frame of a counted message until ZeroMQ has sent it or has lost its peer.
struct Counted {
  zmq_msg_t frame;
  std::uint64_t bytes;
  std::array<ByteCount, 3> counts;  // of the peer, of all, of its group

  void add(std::uint64_t more) const {
    for (const ByteCount& count : counts) {
      if (count) count->fetch_add(more, std::memory_order_relaxed);
    }
  }
};

void let_go(void*, void* hint) {
  const std::unique_ptr<Counted> counted(static_cast<Counted*>(hint));
  counted->add(-counted->bytes);
  ::zmq_msg_close(&counted->frame);
}

// Counts `bytes` until the frame has left. Throws std::bad_alloc; then nothing is counted and the frame is as it was.
void count_until_sent(zmq_msg_t& last_frame, std::uint64_t bytes, std::array<ByteCount, 3> counts) {
  auto counted = std::make_unique<Counted>(Counted{.frame = {}, .bytes = bytes, .counts = std::move(counts)});
  ::zmq_msg_init(&counted->frame);
  ::zmq_msg_move(&counted->frame, &last_frame);
  if (::zmq_msg_init_data(&last_frame, ::zmq_msg_data(&counted->frame), ::zmq_msg_size(&counted->frame), let_go, counted.get()) !=
      0) {
    ::zmq_msg_init(&last_frame);
    ::zmq_msg_move(&last_frame, &counted->frame);
    throw std::bad_alloc();
  }
  counted->add(bytes);
  (void)counted.release();
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

Result<Message> Message::copy_of(Frames frames) {
  Message message;
  for (const std::span<const std::byte> bytes : frames) {
    message.frames_.emplace_back();
    zmq_msg_t* frame = as_zmq(&message.frames_.back());
    if (::zmq_msg_init_size(frame, bytes.size()) != 0) {
      message.frames_.pop_back();
      return failed_precondition("a frame of {} bytes: out of memory", bytes.size());
    }
    if (!bytes.empty()) std::memcpy(::zmq_msg_data(frame), bytes.data(), bytes.size());
  }
  return message;
}

std::span<const std::byte> Message::operator[](std::size_t index) const {
  zmq_msg_t* frame = as_zmq(const_cast<Frame*>(&frames_[index]));
  return {static_cast<const std::byte*>(::zmq_msg_data(frame)), ::zmq_msg_size(frame)};
}

std::uint64_t Message::size_bytes() const {
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < size(); ++i) total += (*this)[i].size();
  return total;
}

std::uint64_t Message::memory_bytes(std::size_t first) const {
  constexpr std::size_t kCopied = 33, kReadAtOnce = 8192;  // of libzmq: msg_t::max_vsm_size, in_batch_size
  std::uint64_t total = 0;
  std::uintptr_t last = 0;  // where the last small frame lies
  for (std::size_t i = first; i < size(); ++i) {
    const auto bytes = (*this)[i];
    total += bytes.size() + kFrameOverhead;
    if (bytes.size() <= kCopied || bytes.size() > kReadAtOnce) continue;
    // A buffer's counters lie between its frames and those of the next buffer. So frames that are near share a buffer.
    const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
    if (last == 0 || std::max(address, last) - std::min(address, last) >= kReadAtOnce) total += kReceiveBuffer;
    last = address;
  }
  return total;
}

int Message::source_fd() const { return empty() ? -1 : ::zmq_msg_get(as_zmq(const_cast<Frame*>(&frames_.front())), ZMQ_SRCFD); }

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
  // A domain without a handler makes libzmq cut off peers that speak ZMTP 1 or 2. Otherwise libzmq 4.3.4 aborts the process when
  // the first message of such a peer meets the end of its connection.
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

// If half of a message was sent, the receiver takes the next frames for the rest; in a router these may be for another peer. So
// everything that needs memory happens here, before the first frame is sent.
Status Socket::make_frames(std::span<const std::byte> to, Frames head, const Message* tail, std::size_t tail_first,
                           Unsent* unsent) try {
  outgoing_.clear();
  std::uint64_t bytes = 0;
  const auto add = [&]() -> zmq_msg_t* {
    outgoing_.frames_.emplace_back();
    zmq_msg_t* frame = as_zmq(&outgoing_.frames_.back());
    ::zmq_msg_init(frame);
    return frame;
  };
  const auto add_copy = [&](std::span<const std::byte> source) {
    zmq_msg_t* frame = add();
    if (::zmq_msg_init_size(frame, source.size()) != 0) {
      ::zmq_msg_init(frame);
      throw std::bad_alloc();
    }
    std::copy(source.begin(), source.end(), static_cast<std::byte*>(::zmq_msg_data(frame)));
    bytes += source.size() + kFrameOverhead;
  };
  if (!to.empty()) add_copy(to);
  for (const auto& frame : head) add_copy(frame);
  for (std::size_t i = tail_first; tail && i < tail->size(); ++i) {
    zmq_msg_t* frame = add();
    ::zmq_msg_copy(frame, as_zmq(const_cast<Message::Frame*>(&tail->frames_[i])));
  }
  if (!unsent) return {};
  if (tail) bytes += tail->memory_bytes(tail_first);
  // A pipe is first in, first out: when the frame that is counted has left, so has everything that was sent before it.
  if (unsent->uncounted_ + bytes >= Unsent::kCountedTogether) {
    count_until_sent(*as_zmq(&outgoing_.frames_.back()), unsent->uncounted_ + bytes,
                     {unsent->peer_, unsent->all_, unsent->group_});
    unsent->uncounted_ = 0;
  } else {
    unsent->uncounted_ += bytes;
  }
  return {};
} catch (const std::bad_alloc&) {
  outgoing_.clear();
  return out_of_memory("sending a message");
}

Status Socket::send_made(bool is_router, Wait wait) {
  auto& frames = outgoing_.frames_;
  Status failed;
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const bool more = i + 1 < frames.size();
    while (::zmq_msg_send(as_zmq(&frames[i]), handle_, flags_of(more, wait)) < 0) {
      const int error = ::zmq_errno();
      if (error == EINTR) continue;  // nothing was sent
      if (failed.ok()) {
        failed = error == EHOSTUNREACH ? unavailable("the peer's message socket is gone")
                 : error != EAGAIN     ? zmq_status("send on", "a message socket")
                 : is_router && i == 0 ? overloaded("the peer takes no messages")
                                       : unavailable("the peer takes no messages");
      }
      break;
    }
    if (!failed.ok() && i == 0) break;
    // After the first frame, only the peer's end can be the reason (EAGAIN). libzmq then takes back what was sent and drops
    // everything up to the message's last frame, so that must still be handed over.
  }
  if (failed.ok()) {
    frames.clear();  // ZeroMQ owns them
  } else {
    outgoing_.clear();
  }
  return failed;
}

Status Socket::send_frames(std::span<const std::byte> to, Frames head, const Message* tail, std::size_t tail_first, Wait wait,
                           Unsent* unsent) {
  SHOAL_RETURN_IF_ERROR(make_frames(to, head, tail, tail_first, unsent));
  return send_made(!to.empty(), wait);
}

// False, with the reason in zmq_errno(), when none came. A signal interrupts only the wait for a message's first frame.
bool Socket::receive_frame(void* frame, Wait wait, bool is_first) {
  while (::zmq_msg_recv(as_zmq(frame), handle_, flags_of(false, wait)) < 0) {
    if (is_first || ::zmq_errno() != EINTR) return false;
  }
  is_half_received_ = ::zmq_msg_more(as_zmq(frame)) != 0;
  return true;
}

Result<bool> Socket::receive_frames(Message& message, Wait wait) {
  message.clear();
  const auto nothing = [&]() -> Result<bool> {
    const int error = ::zmq_errno();
    message.clear();
    if (error == EAGAIN || error == EINTR) return false;
    return zmq_status("receive on", "a message socket");
  };
  zmq_msg_t dropped;
  ::zmq_msg_init(&dropped);
  while (is_half_received_) {
    if (!receive_frame(&dropped, wait, false)) return nothing();
  }
  do {
    void* frame = &dropped;
    const bool is_first = message.empty();
    if (message.size() < kMaxFrames) {
      message.frames_.emplace_back();
      frame = &message.frames_.back();
      ::zmq_msg_init(as_zmq(frame));
    }
    if (!receive_frame(frame, wait, is_first)) return nothing();
  } while (is_half_received_);
  ::zmq_msg_close(&dropped);
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
  // Bound here and not by libzmq, which would unlink the path again, later and on a thread of its own.
  SHOAL_ASSIGN_OR_RETURN(UniqueFd listener, listen_at(path, SOCK_STREAM, kBacklog));
  SHOAL_RETURN_IF_ERROR(dealer.set(ZMQ_USE_FD, listener.get()));
  if (::zmq_bind(handle, endpoint(path).c_str()) != 0) return zmq_status("bind", path);
  (void)listener.release();  // the socket closes it
  return dealer;
}

Result<Router> Router::create(MessageContext& context) {
  SHOAL_ASSIGN_OR_RETURN(void* handle, open(context, ZMQ_ROUTER));
  Router router(handle);
  SHOAL_RETURN_IF_ERROR(router.set(ZMQ_LINGER, kLingerMs));
  SHOAL_RETURN_IF_ERROR(router.set(ZMQ_SNDHWM, kHighWaterMark));
  SHOAL_RETURN_IF_ERROR(router.set(ZMQ_RCVHWM, kMostReceived));
  SHOAL_RETURN_IF_ERROR(router.set(ZMQ_ROUTER_MANDATORY, 1));
  // The messages of a dead peer must not be kept for the next peer at its path, so libzmq may not reconnect. The value is 24 days
  // in milliseconds. With -1, which means never, libzmq 4.3.4 disconnects a dead peer itself, during any call and in the middle
  // of its message. The rest of that message is then mixed with another peer's, or aborts the process.
  SHOAL_RETURN_IF_ERROR(router.set(ZMQ_RECONNECT_IVL, std::numeric_limits<int>::max()));
  SHOAL_RETURN_IF_ERROR(router.set(ZMQ_HANDSHAKE_IVL, 2000));
  SHOAL_RETURN_IF_ERROR(router.set(ZMQ_MAXMSGSIZE, kMaxFrameBytes));
  static std::array<std::byte, 1 << 20> zeros;  // never written, so it takes no memory
  router.last_message_.frames_.emplace_back();
  zmq_msg_t* frame = as_zmq(&router.last_message_.frames_.back());
  ::zmq_msg_init(frame);
  const auto keep = [](void*, void*) {};
  if (::zmq_msg_init_data(frame, zeros.data(), zeros.size(), keep, nullptr) != 0) return zmq_status("make", "a message");
  return router;
}

void Router::limit_frames(std::uint64_t bytes) {
  constexpr std::uint64_t kMost = kMaxFrameBytes;
  (void)set(ZMQ_MAXMSGSIZE, static_cast<std::int64_t>(bytes == 0 ? kMost : std::min(bytes, kMost)));
}

Status Router::connect(const std::string& path, PeerId peer) {
  SHOAL_RETURN_IF_ERROR(check_socket_path(path));
  // The thread of libzmq would follow a link, and wait for a file system that is dead. A process of our user could still put a
  // link there in between; but that one could kill us, too.
  struct stat file {};
  if (::lstat(path.c_str(), &file) != 0) return status_from_errno("connect to", path, errno);
  if (!S_ISSOCK(file.st_mode)) return invalid_argument("connect to {}: it is not a socket", path);
  const auto id = routing_id(peer);
  if (::zmq_setsockopt(handle_, ZMQ_CONNECT_ROUTING_ID, id.data(), id.size()) != 0) return zmq_status("name the peer at", path);
  if (::zmq_connect(handle_, endpoint(path).c_str()) != 0) return zmq_status("connect to", path);
  return {};
}

void Router::disconnect(const std::string& path, PeerId peer) {
  // libzmq 4.3.4 keeps the address of a peer that it cut off under the path. The next peer at that path would be disconnected
  // instead of it. So the entry, about 200 bytes, stays.
  // It also loses the memory of a message that the peer has not finished, if it sends the last of the queued messages before it
  // gets to the end of the disconnect. So the last one is longer than the connection's buffer. Nobody reads it.
  const Status reached = send(peer, Frames(), &last_message_, 0);
  if (reached.code() != StatusCode::kUnavailable) ::zmq_disconnect(handle_, endpoint(path).c_str());
}

Status Router::send(PeerId peer, Frames head, const Message* tail, std::size_t tail_first, Unsent* unsent) {
  return send_frames(routing_id(peer), head, tail, tail_first, Wait::kNo, unsent);
}

Result<bool> Router::receive(PeerId& peer, Message& message) {
  SHOAL_ASSIGN_OR_RETURN(const bool received, receive_frames(message, Wait::kNo));
  if (!received) return false;
  std::array<std::byte, 16> copy;
  const auto id = drop_first(message, copy);
  SHOAL_CHECK(id.size() == kRoutingIdBytes);  // connect() named every peer
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

#include "shm/wire/socket.hpp"

#include <fcntl.h>
#include <poll.h>
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
#include "shm/wire/local_address.hpp"
#include "shm/wire/zmq_parts.hpp"

namespace shoal::wire {
namespace {

constexpr rlim_t kSpareDescriptors = 16;
constexpr int kBacklog = 8;  // only one peer connects; other connections wait here

int flags_of(bool more, Wait wait) { return (more ? ZMQ_SNDMORE : 0) | (wait == Wait::kNo ? ZMQ_DONTWAIT : 0); }

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

Status check_spare_descriptors(const std::string& path) {
  if (has_spare_descriptors()) return {};
  return unavailable("bind {}: fewer than {} file descriptors are free: raise the limit (ulimit -n)", path, kSpareDescriptors);
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

MessageContext::MessageContext() : handle_(::zmq_ctx_new()) {}
MessageContext::~MessageContext() { finish(); }

void MessageContext::finish() {
  void* const handle = std::exchange(handle_, nullptr);
  while (handle != nullptr && ::zmq_ctx_term(handle) != 0 && errno == EINTR) {
  }
}

std::span<const std::byte> ZmqMessage::operator[](std::size_t index) const {
  zmq_msg_t* frame = as_zmq(const_cast<Frame*>(&frames_[index]));
  return {static_cast<const std::byte*>(::zmq_msg_data(frame)), ::zmq_msg_size(frame)};
}

std::uint64_t ZmqMessage::memory_bytes() const {
  constexpr std::size_t kCopied = 33, kReadAtOnce = 8192;  // of libzmq: msg_t::max_vsm_size, in_batch_size
  std::uint64_t total = 0;
  std::uintptr_t last = 0;  // where the last small frame lies
  for (std::size_t i = 0; i < size(); ++i) {
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

int ZmqMessage::source_fd() const { return empty() ? -1 : ::zmq_msg_get(as_zmq(const_cast<Frame*>(&frames_.back())), ZMQ_SRCFD); }

void ZmqMessage::take_behind(ZmqMessage& from, std::size_t count) {
  frames_.reserve(from.size());  // throws before anything is taken
  for (std::size_t i = count; i < from.size(); ++i) {
    frames_.emplace_back();
    ::zmq_msg_init(as_zmq(&frames_.back()));
    ::zmq_msg_move(as_zmq(&frames_.back()), as_zmq(&from.frames_[i]));
    ::zmq_msg_close(as_zmq(&from.frames_[i]));
  }
  from.frames_.resize(std::min(count, from.size()));
}

void ZmqMessage::clear() {
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

Socket::Socket(void* handle) : handle_(handle) {
  std::size_t size = sizeof fd_;
  ::zmq_getsockopt(handle_, ZMQ_FD, &fd_, &size);
}

bool Socket::is_readable() {
  if (has_unread()) return true;
  if (!is_drained_) (void)events();
  return !is_drained_;
}

// ZMQ_POLLIN and ZMQ_POLLOUT; if nobody knows, ZMQ_POLLIN.
int Socket::events() {
  int events = 0;
  std::size_t size = sizeof events;
  if (::zmq_getsockopt(handle_, ZMQ_EVENTS, &events, &size) != 0) events = ZMQ_POLLIN;
  is_drained_ = (events & ZMQ_POLLIN) == 0;
  return events;
}

bool Dealer::has_peer() { return (events() & ZMQ_POLLOUT) != 0; }

Result<void*> Socket::open(MessageContext& context, int type) {
  if (!context.handle())
    return unavailable("open a message socket: libzmq found no file descriptors, or no memory: raise the limit (ulimit -n)");
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
Status Socket::make_frames(std::span<const std::byte> to, Frames head, const Payload& payload, Unsent* unsent) try {
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
  if (const auto* received = dynamic_cast<const ZmqPayload*>(payload.store().get())) {
    for (const ZmqMessage::Frame& frame : received->message.frames_)
      ::zmq_msg_copy(add(), as_zmq(const_cast<ZmqMessage::Frame*>(&frame)));
    bytes += received->memory;
  } else {
    for (std::size_t i = 0; i < payload.size(); ++i) add_copy(payload[i]);
  }
  if (!unsent) return {};
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
  is_drained_ = false;
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

Status Socket::send_frames(std::span<const std::byte> to, Frames head, const Payload& payload, Wait wait, Unsent* unsent) {
  SHOAL_RETURN_IF_ERROR(make_frames(to, head, payload, unsent));
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

Result<bool> Socket::receive_frames(Wait wait) {
  ZmqMessage& message = incoming_;
  const bool goes_on = is_half_received_ && !message.empty();  // there was no memory for the next frame
  if (!goes_on) message.clear();
  is_drained_ = false;
  const auto nothing = [&]() -> Result<bool> {
    const int error = ::zmq_errno();
    message.clear();
    is_drained_ = error == EAGAIN;
    if (error == EAGAIN || error == EINTR) return false;
    return zmq_status("receive on", "a message socket");
  };
  zmq_msg_t dropped;
  ::zmq_msg_init(&dropped);
  while (is_half_received_ && !goes_on) {
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

Result<bool> Socket::receive_parcel(Parcel& parcel, std::size_t names, Wait wait) {
  parcel.clear();  // also of the memory of a long head, which nobody would count in the next message
  if (bundle_.is_done()) {
    if (!is_kept_) {
      SHOAL_ASSIGN_OR_RETURN(const bool received, receive_frames(wait));
      if (!received) return false;
    }
    is_kept_ = true;
    const auto head = incoming_.size() <= names ? std::span<const std::byte>()  // no frame behind the sender's name
                                                : incoming_[names].first(std::min(incoming_[names].size(), Parcel::kLongestHead));
    const bool has_payload = incoming_.size() > names + 1;
    if (const auto bundle = opens_bundles_ && !has_payload ? BundleReader::of(head) : std::nullopt) bundle_ = *bundle;
    if (bundle_.is_done()) {
      parcel.head.assign(head.begin(), head.end());
      if (has_payload) {
        auto payload = std::make_shared<ZmqPayload>();
        payload->message.take_behind(incoming_, names + 1);
        payload->memory = payload->message.memory_bytes();
        parcel.payload = Payload(std::move(payload));
      }
      is_kept_ = false;
      return true;
    }
    is_kept_ = false;
  }
  BundleReader rest = bundle_;
  const auto head = rest.next();
  parcel.head.assign(head.begin(), head.end());
  bundle_ = rest;
  return true;
}

Result<Dealer> Dealer::bind(MessageContext& context, const std::string& path) {
  SHOAL_RETURN_IF_ERROR(check_socket_path(path));
  SHOAL_RETURN_IF_ERROR(check_spare_descriptors(path));
  // Bound here and not by libzmq, which would unlink the path again, later and on a thread of its own.
  SHOAL_ASSIGN_OR_RETURN(UniqueFd bound, make_local_socket(SOCK_STREAM));
  SHOAL_RETURN_IF_ERROR(bind_at(bound.get(), path));
  return listen(context, std::move(bound));
}

Result<Dealer> Dealer::listen(MessageContext& context, UniqueFd bound) {
  sockaddr_un address{};
  socklen_t size = sizeof address;
  if (::getsockname(bound.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return status_from_errno("listen at", "a socket", errno);
  const std::string path(address.sun_path, ::strnlen(address.sun_path, sizeof address.sun_path - 1));
  if (size <= sizeof address.sun_family || path.empty()) return unavailable("listen: the socket is not bound to a path");
  SHOAL_RETURN_IF_ERROR(check_spare_descriptors(path));
  if (::listen(bound.get(), kBacklog) != 0) return status_from_errno("listen at", path, errno);
  SHOAL_ASSIGN_OR_RETURN(void* handle, open(context, ZMQ_DEALER));
  Dealer dealer(handle);
  SHOAL_RETURN_IF_ERROR(dealer.set(ZMQ_LINGER, kLingerMs));
  SHOAL_RETURN_IF_ERROR(dealer.set(ZMQ_SNDHWM, kHighWaterMark));
  SHOAL_RETURN_IF_ERROR(dealer.set(ZMQ_RCVHWM, kHighWaterMark));
  SHOAL_RETURN_IF_ERROR(dealer.set(ZMQ_USE_FD, bound.get()));
  if (::zmq_bind(handle, endpoint(path).c_str()) != 0) return zmq_status("bind", path);
  (void)bound.release();  // the socket closes it
  return dealer;
}

bool wait(std::span<Waitable> items, std::chrono::milliseconds timeout) {
  constexpr std::size_t kMaxItems = 16;
  SHOAL_CHECK(items.size() <= kMaxItems);
  std::array<pollfd, kMaxItems> polled{};
  bool is_any_readable = false;
  for (std::size_t i = 0; i < items.size(); ++i) {
    items[i].readable = items[i].socket && items[i].socket->is_readable();
    is_any_readable = is_any_readable || items[i].readable;
    polled[i] = {items[i].socket ? items[i].socket->fd() : items[i].fd, POLLIN, 0};
  }
  // zmq_poll() would ask each socket twice, and each time make a system call.
  const int ready = ::poll(polled.data(), items.size(), is_any_readable ? 0 : static_cast<int>(timeout.count()));
  for (std::size_t i = 0; i < items.size() && ready > 0; ++i) {
    if (polled[i].revents == 0) continue;
    items[i].readable = true;
    if (items[i].socket) items[i].socket->is_drained_ = false;
  }
  return is_any_readable || ready > 0;
}

}  // namespace shoal::wire

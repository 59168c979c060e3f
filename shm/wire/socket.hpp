// The only part that uses ZeroMQ, with router.cpp and zmq_parts.hpp. Clients and lanes bind a Dealer; the supervisor's Router
// connects to them.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "shm/base/unique_fd.hpp"
#include "shm/wire/transport.hpp"
#include "shoal/result.hpp"

namespace shoal::wire {

/// Longest path of a local socket, the terminating NUL excluded.
inline constexpr std::size_t kMaxSocketPath = 107;
/// A peer that sends a longer frame is cut off.
inline constexpr std::int64_t kMaxFrameBytes = std::int64_t{1} << 30;

/// libzmq 4.3.4 receives up to 8 KiB at once into a buffer, and each frame in it keeps the whole buffer: 18 KiB with its
/// counters. Frames of up to 33 bytes are copied out of it, and longer ones than 8 KiB have memory of their own.
inline constexpr std::uint64_t kReceiveBuffer = 20 * 1024;
/// A message has at most so many frames. receive() drops those that follow.
inline constexpr std::size_t kMaxFrames = 300;

enum class Wait : bool { kNo, kYes };

/// kInvalidArgument, with the limit, when `path` is too long for a local socket.
Status check_socket_path(const std::string& path);

/// Owns ZeroMQ's I/O thread. Create it after fork(). It must outlive its sockets. If it finds no descriptor or no memory, every
/// socket that is to be made with it fails with kUnavailable.
///   Threads  thread-safe
class MessageContext {
 public:
  /// ZeroMQ's own, which start with the first socket. It aborts the process if they cannot (check_spare_threads()).
  static constexpr std::size_t kThreads = 2;
  MessageContext();
  ~MessageContext();
  MessageContext(const MessageContext&) = delete;
  MessageContext& operator=(const MessageContext&) = delete;
  void* handle() const { return handle_; }  ///< null: see above
  /// Waits until what close_after_flush() left has been sent. All sockets must be closed. Afterwards only the destructor may be
  /// called.
  void finish();

 private:
  void* handle_;
};

/// Frames of libzmq. Only the files of this folder use it; everybody else has a Parcel.
///   Threads  thread-bound
class ZmqMessage {
 public:
  ZmqMessage() = default;
  ZmqMessage(ZmqMessage&& other) noexcept : frames_(std::exchange(other.frames_, {})) {}
  ZmqMessage& operator=(ZmqMessage&& other) noexcept {
    std::swap(frames_, other.frames_);
    other.clear();
    return *this;
  }
  ~ZmqMessage() { clear(); }

  std::size_t size() const { return frames_.size(); }
  bool empty() const { return frames_.empty(); }
  std::span<const std::byte> operator[](std::size_t index) const;
  /// How much memory of this process its frames take, if it was received: their bytes, kFrameOverhead for each, and
  /// kReceiveBuffer for each buffer that small frames keep. At most as much too much as that buffers are shared with other
  /// messages.
  std::uint64_t memory_bytes() const;
  /// The descriptor of the connection that its last frame came from; -1 = not known. libzmq owns it.
  int source_fd() const;
  /// Takes the frames of `from` that follow its first `count` ones.
  void take_behind(ZmqMessage& from, std::size_t count);
  void clear();

 private:
  friend class Socket;
  friend class Router;
  // Holds a zmq_msg_t. Its bytes may be moved, which is what zmq_msg_move does.
  struct alignas(8) Frame {
    std::array<unsigned char, 64> storage;
  };
  std::vector<Frame> frames_;
};

struct Waitable;

/// The part that both kinds of socket have in common. Move-only.
///   Threads  thread-bound
class Socket {
 public:
  Socket() = default;
  Socket(Socket&& other) noexcept { *this = std::move(other); }
  Socket& operator=(Socket&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(incoming_.frames_, other.incoming_.frames_);
    std::swap(outgoing_.frames_, other.outgoing_.frames_);
    std::swap(bundle_, other.bundle_);
    std::swap(fd_, other.fd_);
    std::swap(is_half_received_, other.is_half_received_);
    std::swap(is_kept_, other.is_kept_);
    std::swap(is_drained_, other.is_drained_);
    std::swap(opens_bundles_, other.opens_bundles_);
    return *this;
  }
  ~Socket();

  /// Becomes readable when something *may* have happened. It is edge-triggered: receive until nothing comes.
  int fd() const { return fd_; }
  explicit operator bool() const { return handle_ != nullptr; }
  /// Whether a message may wait to be received. Makes no system call if the last answer was false and nothing was sent or
  /// received since. When it returns true, libzmq 4.3.4 may have received half of a message. Then receive() must come before a
  /// router disconnects that peer: otherwise libzmq aborts the process.
  bool is_readable();
  /// Messages of a bundle wait to be received, or one for which there was no memory. fd() does not tell that.
  bool has_unread() const { return is_kept_ || !bundle_.is_done(); }
  /// Closes the socket. Queued messages are sent for up to `limit`; after a plain close for up to 50 ms.
  void close_after_flush(std::chrono::milliseconds limit);

 protected:
  explicit Socket(void* handle);
  static Result<void*> open(MessageContext& context, int type);
  Status set(int option, std::int64_t value);
  int events();
  /// Sends copies of the frames of `head`, then those of `payload`, whose bytes are shared. Either the whole message is sent or
  /// nothing of it.
  ///   to  a router's name for the peer; empty for a dealer
  Status send_frames(std::span<const std::byte> to, Frames head, const Payload& payload, Wait wait, Unsent* unsent);
  /// True when a message was received. Throws std::bad_alloc; then the next call receives the message.
  ///   names  the number of frames before the head
  Result<bool> receive_parcel(Parcel& parcel, std::size_t names, Wait wait);
  std::span<const std::byte> first_frame() const { return incoming_[0]; }  ///< of the message received last
  int source_fd_of_last() const { return incoming_.source_fd(); }

  void* handle_ = nullptr;
  bool opens_bundles_ = true;  // otherwise a bundle is received as the message that it is

 private:
  friend bool wait(std::span<Waitable> items, std::chrono::milliseconds timeout);
  Status make_frames(std::span<const std::byte> to, Frames head, const Payload& payload, Unsent* unsent);
  Status send_made(bool is_router, Wait wait);
  bool receive_frame(void* frame, Wait wait, bool is_first);
  Result<bool> receive_frames(Wait wait);

  ZmqMessage incoming_;  // received last; its payload has been taken out
  ZmqMessage outgoing_;  // made and not sent yet; keeps its room from message to message
  BundleReader bundle_;  // of incoming_
  int fd_ = -1;
  bool is_half_received_ =
      false;                 // the rest of the last message is dropped before the next one, unless there was no memory for it
  bool is_kept_ = false;     // incoming_ has not become a parcel, because there was no memory
  bool is_drained_ = false;  // nothing waits unless the descriptor says so: sending may consume its edge
};

/// The socket of a client or a lane. It listens at a path and has one peer.
///   Threads  thread-bound
class Dealer : public Socket {
 public:
  Dealer() = default;
  /// Listens with a socket of type SOCK_STREAM that is bound to a path: by the worker, or by the daemon for a client.
  ///   Errors  kUnavailable (it is not bound; fewer than 16 descriptors are free: libzmq 4.3.4 aborts a process that has none
  ///           when someone connects), kInternal
  static Result<Dealer> listen(MessageContext& context, UniqueFd bound);
  /// There must be no file at `path`. The calling thread creates it with its own rights; the caller removes it.
  /// Errors: kInvalidArgument (path too long), kPermissionDenied, and those of listen().
  static Result<Dealer> bind(MessageContext& context, const std::string& path);
  /// Sends the whole message or nothing. Errors: kUnavailable (there is no peer, or its queue is full), kFailedPrecondition (out
  /// of memory).
  Status send(Frames frames, Wait wait = Wait::kNo) { return send_frames({}, frames, {}, wait, nullptr); }
  Status send(std::span<const std::byte> frame, Wait wait = Wait::kNo) { return send(Frames(&frame, 1), wait); }
  /// True when a message came, false when none waits. The messages of a bundle come one by one. With Wait::kYes false means that
  /// a signal interrupted the wait.
  Result<bool> receive(Parcel& parcel, Wait wait = Wait::kNo) { return receive_parcel(parcel, 0, wait); }
  /// Whether a peer is connected that takes messages. This may consume the edge of fd(): ask is_readable() before a wait.
  bool has_peer();

 private:
  using Socket::Socket;
};

/// The supervisor's socket. It connects to the paths that peers bound.
///   Threads  thread-bound
class Router final : public Socket, public Transport {
 public:
  Router() = default;
  Router(Router&&) = default;
  Router& operator=(Router&&) = default;
  ///   opens_bundles  whether peers may send bundles. Otherwise receive() returns a bundle as one message, of kind BUNDLE,
  ///                  because a bundle of one peer keeps all others waiting until its last message is received.
  static Result<Router> create(MessageContext& context, bool opens_bundles = true);
  /// At most so many whole messages of one peer wait to be received. Then libzmq does not read its connection until half of them
  /// are gone.
  static constexpr int kMostReceived = 256;
  void limit_frames(std::uint64_t bytes) override;
  Status connect(const std::string& path, PeerId peer, bool takes_bundles) override;
  /// Messages queued for the peer are sent for up to 50 ms, then dropped. Do not call it between a wait() that found this socket
  /// readable and receive(): libzmq 4.3.4 then holds half a message, and aborts if it came from this peer.
  bool disconnect(const std::string& path, PeerId peer) override;
  using Outbox::push;
  Status push(PeerId peer, Frames frames, const Payload& payload, Unsent* unsent = nullptr) override;
  std::span<const Lost> flush() override;
  Result<bool> receive(PeerId& peer, Parcel& parcel) override;
  int source_fd() const override { return source_fd_of_last(); }
  void close_after_flush(std::chrono::milliseconds limit) override { Socket::close_after_flush(limit); }

 private:
  struct Peer {
    bool takes_bundles = false, is_pushed = false;
    Bundle bundle;  // pushed and not sent
    Unsent* unsent = nullptr;
  };
  using Socket::Socket;
  Status send(PeerId peer, Frames frames, const Payload& payload, Unsent* unsent);
  Status add_to_bundle(PeerId id, Peer& peer, std::span<const std::byte> head, Unsent* unsent);
  void send_bundle(PeerId id, Peer& peer);

  std::unordered_map<PeerId, Peer> peers_;
  std::vector<PeerId> pushed_;  // have a bundle, or had one since the last flush (is_pushed)
  std::vector<Bundle> spare_;   // empty bundles, with their memory
  std::vector<Lost> lost_, reported_;
  Payload last_message_;  // to each peer that is disconnected
};

/// A socket or a descriptor to wait for.
struct Waitable {
  Socket* socket = nullptr;
  int fd = -1;
  bool readable = false;  ///< set by wait()
};
/// Waits until one of them is readable, `timeout` has passed (negative: never) or a signal comes. True when one is readable; a
/// socket that is may still have no message.
bool wait(std::span<Waitable> items, std::chrono::milliseconds timeout);

}  // namespace shoal::wire

// The only file that uses ZeroMQ. Clients and lanes bind a Dealer; the supervisor's Router connects to them.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shoal/result.hpp"

namespace shoal::wire {

/// Longest path of a local socket, the terminating NUL excluded.
inline constexpr std::size_t kMaxSocketPath = 107;
/// A peer that sends a longer frame is cut off.
inline constexpr std::int64_t kMaxFrameBytes = std::int64_t{1} << 30;

/// Frames to send. Their bytes are copied.
using Frames = std::span<const std::span<const std::byte>>;
/// The supervisor's name for a peer. It is never used twice.
using PeerId = std::uint64_t;
/// A number of bytes. The sending thread adds to it, ZeroMQ's thread subtracts.
using ByteCount = std::shared_ptr<std::atomic<std::uint64_t>>;
inline ByteCount make_byte_count() { return std::make_shared<std::atomic<std::uint64_t>>(0); }
/// What a message costs for each of its frames, beside their bytes.
inline constexpr std::uint64_t kFrameOverhead = 128;
/// libzmq 4.3.4 receives up to 8 KiB at once into a buffer, and each frame in it keeps the whole buffer: 18 KiB with its
/// counters. Frames of up to 33 bytes are copied out of it, and longer ones than 8 KiB have memory of their own.
inline constexpr std::uint64_t kReceiveBuffer = 20 * 1024;
/// A message has at most so many frames. receive() drops those that follow.
inline constexpr std::size_t kMaxFrames = 300;

/// Counts the bytes that were sent to one peer and have not left this process yet.
///   Threads  thread-bound
class Unsent {
 public:
  /// Small messages are counted together, when they have reached this sum.
  static constexpr std::uint64_t kCountedTogether = 16 * 1024;

  /// `all` and `group`, if given, count the bytes of all peers and of this peer's group. They leave out what was not counted yet:
  /// less than kCountedTogether of each peer.
  explicit Unsent(ByteCount all = nullptr, ByteCount group = nullptr) : all_(std::move(all)), group_(std::move(group)) {}
  /// At most kCountedTogether too much.
  std::uint64_t bytes() const { return peer_->load(std::memory_order_relaxed) + uncounted_; }

 private:
  friend class Socket;
  ByteCount peer_ = make_byte_count(), all_, group_;
  std::uint64_t uncounted_ = 0;  // of messages that were sent after the last counted one
};

enum class Wait : bool { kNo, kYes };

/// kInvalidArgument, with the limit, when `path` is too long for a local socket.
Status check_socket_path(const std::string& path);

/// Owns ZeroMQ's I/O thread. Create it after fork(). It must outlive its sockets.
///   Threads  thread-safe
class MessageContext {
 public:
  MessageContext();
  ~MessageContext();
  MessageContext(const MessageContext&) = delete;
  MessageContext& operator=(const MessageContext&) = delete;
  void* handle() const { return handle_; }
  /// Waits until what close_after_flush() left has been sent. All sockets must be closed. Afterwards only the destructor may be
  /// called.
  void finish();

 private:
  void* handle_;
};

/// A received message. A message that is reused keeps its room for frames, so a receive loop allocates none.
///   Lifetime  frames are valid until clear(), the next receive into the message, or its end
///   Threads   thread-bound
class Message {
 public:
  Message() = default;
  Message(Message&& other) noexcept : frames_(std::exchange(other.frames_, {})) {}
  Message& operator=(Message&& other) noexcept {
    std::swap(frames_, other.frames_);
    other.clear();
    return *this;
  }
  ~Message() { clear(); }

  /// A message with copies of the frames. Errors: kFailedPrecondition (out of memory).
  static Result<Message> copy_of(Frames frames);

  std::size_t size() const { return frames_.size(); }
  bool empty() const { return frames_.empty(); }
  std::span<const std::byte> operator[](std::size_t index) const;
  std::uint64_t size_bytes() const;  ///< sum over all frames
  /// How much memory of this process its frames from `first` on take, if it was received: their bytes, kFrameOverhead for each,
  /// and kReceiveBuffer for each buffer that small frames keep. At most as much too much as that buffers are shared with other
  /// messages.
  std::uint64_t memory_bytes(std::size_t first = 0) const;
  /// The descriptor of the connection that it came from; -1 = not known. libzmq owns it.
  int source_fd() const;
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

/// The part that both kinds of socket have in common. Move-only.
///   Threads  thread-bound
class Socket {
 public:
  Socket() = default;
  Socket(Socket&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)),
        outgoing_(std::move(other.outgoing_)),
        is_half_received_(std::exchange(other.is_half_received_, false)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(outgoing_.frames_, other.outgoing_.frames_);
    std::swap(is_half_received_, other.is_half_received_);
    return *this;
  }
  ~Socket();

  /// Becomes readable when something *may* have happened. It is edge-triggered: receive until nothing comes.
  int fd() const;
  explicit operator bool() const { return handle_ != nullptr; }
  void* handle() const { return handle_; }
  /// Closes the socket. Queued messages are sent for up to `limit`; after a plain close for up to 50 ms.
  void close_after_flush(std::chrono::milliseconds limit);

 protected:
  explicit Socket(void* handle) : handle_(handle) {}
  static Result<void*> open(MessageContext& context, int type);
  Status set(int option, std::int64_t value);
  /// Sends the frames of `head`, then those of `tail` from `tail_first` on, whose bytes are shared and not copied. Either the
  /// whole message is sent or nothing of it.
  ///   to  a router's name for the peer; empty for a dealer
  Status send_frames(std::span<const std::byte> to, Frames head, const Message* tail, std::size_t tail_first, Wait wait,
                     Unsent* unsent);
  Result<bool> receive_frames(Message& message, Wait wait);
  static std::span<const std::byte> drop_first(Message& message, std::array<std::byte, 16>& copy);

  void* handle_ = nullptr;

 private:
  Status make_frames(std::span<const std::byte> to, Frames head, const Message* tail, std::size_t tail_first, Unsent* unsent);
  Status send_made(bool is_router, Wait wait);
  bool receive_frame(void* frame, Wait wait, bool is_first);

  Message outgoing_;               // made and not sent yet; keeps its room from message to message
  bool is_half_received_ = false;  // the rest of the last message is dropped before the next one
};

/// The socket of a client or a lane. It binds ipc://path and has one peer.
///   Threads  thread-bound
class Dealer : public Socket {
 public:
  Dealer() = default;
  /// There must be no file at `path`. The calling thread creates it with its own rights; the caller removes it.
  /// Errors: kInvalidArgument (path too long), kPermissionDenied, kUnavailable (fewer than 16 descriptors are free: libzmq 4.3.4
  /// aborts a bound process that has none when someone connects), kInternal.
  static Result<Dealer> bind(MessageContext& context, const std::string& path);
  /// Sends the whole message or nothing. Errors: kUnavailable (there is no peer, or its queue is full), kFailedPrecondition (out
  /// of memory).
  Status send(Frames frames, Wait wait = Wait::kNo) { return send_frames({}, frames, nullptr, 0, wait, nullptr); }
  Status send(std::span<const std::byte> frame, Wait wait = Wait::kNo) { return send(Frames(&frame, 1), wait); }
  /// True when a message came, false when none waits. With Wait::kYes false means that a signal interrupted the wait.
  Result<bool> receive(Message& message, Wait wait = Wait::kNo) { return receive_frames(message, wait); }

 private:
  using Socket::Socket;
};

/// Carries whole messages between this process and many peers. Each peer has a name that this side gave it, so no peer can
/// pretend to be another. ZeroMQ is one implementation (Router); the simulator has another.
///   Threads  thread-bound
class Transport {
 public:
  virtual ~Transport() = default;
  /// Limits the frames of peers that are connected from now on. A peer that sends a longer frame is cut off. 0 or a larger number
  /// means kMaxFrameBytes.
  virtual void limit_frames(std::uint64_t bytes) = 0;
  /// The peer must have bound already. `peer` must never have been used before. Errors: kInvalidArgument (also if there is no
  /// socket at the path, but a link for example), kNotFound, kInternal.
  virtual Status connect(const std::string& path, PeerId peer) = 0;
  /// Ends the connection. Does nothing when the peer is gone or never came. Call it when a peer is dead: until then messages for
  /// it are kept.
  virtual void disconnect(const std::string& path, PeerId peer) = 0;
  /// Sends the whole message or nothing: copies of the frames of `head`, then the frames of `tail`, a received message, from
  /// `tail_first` on, whose bytes are shared and not copied. `unsent`, if given, counts the message until it has left.
  ///   Errors  kUnavailable (never connected, or disconnected), kOverloaded (the peer's queue is full), kFailedPrecondition (out
  ///           of memory)
  virtual Status send(PeerId peer, Frames head, const Message* tail, std::size_t tail_first, Unsent* unsent = nullptr) = 0;
  Status send(PeerId peer, Frames frames) { return send(peer, frames, nullptr, 0); }
  Status send(PeerId peer, std::span<const std::byte> frame) { return send(peer, Frames(&frame, 1)); }
  /// True when a message came, false when none waits. The message does not contain the peer's name.
  virtual Result<bool> receive(PeerId& peer, Message& message) = 0;
  /// Queued messages are sent for up to `limit`. Nothing else may be called afterwards.
  virtual void close_after_flush(std::chrono::milliseconds limit) = 0;
};

/// The supervisor's socket. It connects to the paths that peers bound.
///   Threads  thread-bound
class Router final : public Socket, public Transport {
 public:
  Router() = default;
  Router(Router&&) = default;
  Router& operator=(Router&&) = default;
  static Result<Router> create(MessageContext& context);
  /// At most so many whole messages of one peer wait to be received. Then libzmq does not read its connection until half of them
  /// are gone.
  static constexpr int kMostReceived = 256;
  void limit_frames(std::uint64_t bytes) override;
  Status connect(const std::string& path, PeerId peer) override;
  /// Messages queued for the peer are sent for up to 50 ms, then dropped. Do not call it between a wait() that found this socket
  /// readable and receive(): libzmq 4.3.4 then holds half a message, and aborts if it came from this peer.
  void disconnect(const std::string& path, PeerId peer) override;
  using Transport::send;
  Status send(PeerId peer, Frames head, const Message* tail, std::size_t tail_first, Unsent* unsent = nullptr) override;
  Result<bool> receive(PeerId& peer, Message& message) override;
  void close_after_flush(std::chrono::milliseconds limit) override { Socket::close_after_flush(limit); }

 private:
  using Socket::Socket;
  Message last_message_;  // to each peer that is disconnected
};

/// A socket or a descriptor to wait for.
struct Waitable {
  const Socket* socket = nullptr;
  int fd = -1;
  bool readable = false;  ///< set by wait()
};
/// Waits until one of them is readable, `timeout` has passed (negative: never) or a signal comes. True when one is readable.
bool wait(std::span<Waitable> items, std::chrono::milliseconds timeout);

}  // namespace shoal::wire

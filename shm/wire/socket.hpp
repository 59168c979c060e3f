// The only place that knows ZeroMQ: bound DEALERs (clients, lanes) and the connecting ROUTER of the supervisor.
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
/// A message of one peer is cut off beyond this: tensors that travel as frames are smaller.
inline constexpr std::int64_t kMaxFrameBytes = std::int64_t{1} << 30;

/// Frames to send; copied.
using Frames = std::span<const std::span<const std::byte>>;
/// The supervisor's name for a peer; never used twice.
using PeerId = std::uint64_t;
/// Of messages that were sent and have not left this process yet. Threads: ZeroMQ's takes off what this one adds.
using ByteCount = std::shared_ptr<std::atomic<std::uint64_t>>;
/// Smaller messages are not counted: at most 100 000 of them wait.
inline constexpr std::size_t kLeastCounted = 4096;
enum class Wait : bool { kNo, kYes };

/// kInvalidArgument, with the limit, when `path` is too long for a local socket.
Status check_socket_path(const std::string& path);

/// Owns ZeroMQ's I/O thread. Make it after fork(); outlives its sockets.
///   Threads  thread-safe
class MessageContext {
 public:
  MessageContext();
  ~MessageContext();
  MessageContext(const MessageContext&) = delete;
  MessageContext& operator=(const MessageContext&) = delete;
  void* handle() const { return handle_; }
  /// Waits for what close_after_flush() left to be sent. Only its destructor may follow; all sockets must be closed.
  void finish();

 private:
  void* handle_;
};

/// A received message. Reusing one keeps its room for frames, so a receive loop allocates nothing of ours.
///   Lifetime  frames are valid until clear(), the next receive into it, or its end
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

  std::size_t size() const { return frames_.size(); }
  bool empty() const { return frames_.empty(); }
  std::span<const std::byte> operator[](std::size_t index) const;
  std::uint64_t size_bytes() const;  ///< of all frames together
  void clear();

 private:
  friend class Socket;
  // A zmq_msg_t, which may be moved byte by byte (zmq_msg_move does just that).
  struct alignas(8) Frame {
    std::array<unsigned char, 64> storage;
  };
  std::vector<Frame> frames_;
};

/// What both kinds of socket share. Move-only.
///   Threads  thread-bound
class Socket {
 public:
  Socket() = default;
  Socket(Socket&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Socket();

  /// Becomes readable when something *may* have happened (edge-triggered: afterwards receive until nothing comes).
  int fd() const;
  explicit operator bool() const { return handle_ != nullptr; }
  void* handle() const { return handle_; }
  /// Closes; what is not sent yet goes on being sent for at most `limit` (after a plain close for 50 ms).
  void close_after_flush(std::chrono::milliseconds limit);

 protected:
  explicit Socket(void* handle) : handle_(handle) {}
  static Result<void*> open(MessageContext& context, int type);
  Status set(int option, std::int64_t value);
  /// `tail` frames from `tail_first` on follow `head` and share their bytes.
  Status send_frames(Frames head, const Message* tail, std::size_t tail_first, Wait wait, bool more_before,
                     const ByteCount& unsent = nullptr);
  Status send_frame(std::span<const std::byte> frame, bool more, Wait wait);
  Status send_last(std::span<const std::byte> bytes, Wait wait, std::uint64_t message_bytes, const ByteCount& unsent);
  Result<bool> receive_frames(Message& message, Wait wait);
  static std::span<const std::byte> drop_first(Message& message, std::array<std::byte, 16>& copy);

  void* handle_ = nullptr;
};

/// A client's or a lane's end: binds ipc://path, has one peer.
///   Threads  thread-bound
class Dealer : public Socket {
 public:
  Dealer() = default;
  /// The file at `path`, where there is none, is made by the calling thread with its rights; to remove it is the caller's.
  /// Errors: kInvalidArgument (path too long), kPermissionDenied, kUnavailable (fewer than 16 free descriptors: a bound process
  /// at its limit is aborted by libzmq 4.3.4 when anyone connects), kInternal.
  static Result<Dealer> bind(MessageContext& context, const std::string& path);
  /// Errors: kUnavailable when there is no peer, or it takes nothing.
  Status send(Frames frames, Wait wait = Wait::kNo) { return send_frames(frames, nullptr, 0, wait, false); }
  Status send(std::span<const std::byte> frame, Wait wait = Wait::kNo) { return send(Frames(&frame, 1), wait); }
  /// True when a message came; false when none waits (with Wait::kYes: when a signal interrupted).
  Result<bool> receive(Message& message, Wait wait = Wait::kNo) { return receive_frames(message, wait); }

 private:
  using Socket::Socket;
};

/// The supervisor's end: connects to what peers bound and names each itself, so that no identity can be spoofed.
///   Threads  thread-bound
class Router : public Socket {
 public:
  Router() = default;
  static Result<Router> create(MessageContext& context);
  /// Of peers that are connected from now on; who sends a longer frame is cut off. 0, or more than kMaxFrameBytes:
  /// kMaxFrameBytes.
  void limit_frames(std::uint64_t bytes);
  /// Connect only after the peer has bound. `peer` must never have been used on this socket. Errors: kInvalidArgument, kInternal.
  Status connect(const std::string& path, PeerId peer);
  /// Ends the connection; what is queued for the peer is still sent for 50 ms, then dropped. A peer that is gone already, or
  /// never came, is no error. Whoever learns that a peer is dead calls this: until then what is sent to it is kept. Not between a
  /// wait() that found this socket readable and receive(): libzmq 4.3.4 has half a message by then, and aborts if it was the
  /// peer's.
  void disconnect(const std::string& path, PeerId peer);
  /// Errors: kUnavailable (never connected, or disconnected), kOverloaded (its queue is full).
  Status send(PeerId peer, Frames frames) { return send(peer, frames, nullptr, 0); }
  Status send(PeerId peer, std::span<const std::byte> frame) { return send(peer, Frames(&frame, 1)); }
  /// As above, then the frames of `tail` from `tail_first` on, whose bytes are shared and not copied. The bytes of a
  /// message of kLeastCounted and more are in `unsent` until its last frame has left.
  Status send(PeerId peer, Frames head, const Message* tail, std::size_t tail_first, const ByteCount& unsent = nullptr);
  /// True when a message came (its frames without the identity), false when none waits.
  Result<bool> receive(PeerId& peer, Message& message);

 private:
  using Socket::Socket;
};

/// Something to wait for: a socket or a descriptor.
struct Waitable {
  const Socket* socket = nullptr;
  int fd = -1;
  bool readable = false;  ///< set by wait()
};
/// Waits until one is readable or `timeout` has passed (negative: for ever). True when one is readable. A signal ends the wait
/// early.
bool wait(std::span<Waitable> items, std::chrono::milliseconds timeout);

}  // namespace shoal::wire

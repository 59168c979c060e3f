// The seam between those who send and receive messages and what carries them. ZeroMQ is one implementation (Router in
// socket.hpp), the simulator has another.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "shm/wire/parcel.hpp"
#include "shoal/result.hpp"

namespace shoal::wire {

/// The supervisor's name for a peer. It is never used twice.
using PeerId = std::uint64_t;
/// A number of bytes. The sending thread adds to it, ZeroMQ's thread subtracts.
using ByteCount = std::shared_ptr<std::atomic<std::uint64_t>>;
inline ByteCount make_byte_count() { return std::make_shared<std::atomic<std::uint64_t>>(0); }

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
  friend class Socket;  // counts
  ByteCount peer_ = make_byte_count(), all_, group_;
  std::uint64_t uncounted_ = 0;  // of messages that were sent after the last counted one
};

/// Where messages come from. Its owner waits until it may be readable (wait() in socket.hpp), and then receives one message after
/// the other into the same parcel, until none waits or its turn is over.
///   Threads  thread-bound
class Inbox {
 public:
  virtual ~Inbox() = default;
  /// True when a message came, false when none waits. Never waits. The messages of a bundle come one by one.
  ///   peer    gets the name that this side gave the sender
  ///   parcel  gets the message; reused from call to call, so that receiving allocates nothing in the long run
  ///   Errors  those of the transport: nothing was received. Throws std::bad_alloc: then the next call receives the message
  virtual Result<bool> receive(PeerId& peer, Parcel& parcel) = 0;
  /// The descriptor of the connection on which the last message came; -1 = not known. Only for asking whether its peer has sent
  /// more than was read (unread_connections()). Its owner may close it at any time, and the number may then be another's.
  virtual int source_fd() const { return -1; }
};

/// Where messages go.
///   Threads  thread-bound
class Outbox {
 public:
  /// A peer that did not get all that was pushed for it.
  struct Lost {
    PeerId peer = 0;
    Status why;  ///< kUnavailable (it is gone), kOverloaded (its queue is full), kFailedPrecondition (out of memory)
  };

  virtual ~Outbox() = default;
  /// Takes copies of `frames`, the first of which is the message's head, and shares the bytes of `payload`. The message leaves
  /// with the next flush(), or earlier; the messages for one peer stay in their order. `unsent`, if given, counts it until it has
  /// left; it must live until flush() or disconnect().
  ///   Errors  kUnavailable (never connected, or disconnected), kOverloaded (the peer's queue is full), kFailedPrecondition (out
  ///           of memory). Then nothing of the message is sent.
  virtual Status push(PeerId peer, Frames frames, const Payload& payload, Unsent* unsent = nullptr) = 0;
  Status push(PeerId peer, std::span<const std::byte> head, const Payload& payload = {}, Unsent* unsent = nullptr) {
    return push(peer, Frames(&head, 1), payload, unsent);
  }
  /// Sends what was pushed. Returns the peers that lost messages since the last flush. Valid until the next call of any function.
  virtual std::span<const Lost> flush() = 0;
};

/// Carries whole messages between this process and many peers. Each peer has a name that this side gave it, so no peer can
/// pretend to be another.
///   Threads  thread-bound
class Transport : public Inbox, public Outbox {
 public:
  static constexpr std::uint64_t kCutOffBytes = 256;
  /// Limits the frames of peers that are connected from now on. A peer that sends a longer frame is cut off. 0 or a larger number
  /// means kMaxFrameBytes.
  virtual void limit_frames(std::uint64_t bytes) = 0;
  /// The peer must have bound already. `peer` must never have been used before.
  ///   takes_bundles  the peer reads messages that travel together
  ///   Errors         kInvalidArgument (also if there is no socket at the path, but a link for example), kNotFound, kInternal
  virtual Status connect(const std::string& path, PeerId peer, bool takes_bundles) = 0;
  /// Sends what was pushed for the peer, then ends the connection. Does nothing when the peer is gone or never came. Call it when
  /// a peer is dead: until then messages for it are kept. True if the peer was cut off because it broke the rules of the
  /// transport: then kCutOffBytes of memory are lost for good.
  virtual bool disconnect(const std::string& path, PeerId peer) = 0;
  /// Queued messages are sent for up to `limit`. Nothing else may be called afterwards.
  virtual void close_after_flush(std::chrono::milliseconds limit) = 0;
};

}  // namespace shoal::wire

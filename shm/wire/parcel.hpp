// What a message is to those who send and receive it, whatever carries it: a head, and frames behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "shoal/result.hpp"

namespace shoal::wire {

/// Frames to send. Their bytes are copied.
using Frames = std::span<const std::span<const std::byte>>;
/// A frame that is a text.
inline std::string_view as_text(std::span<const std::byte> frame) {
  return {reinterpret_cast<const char*>(frame.data()), frame.size()};
}
/// What a message costs for each of its frames, beside their bytes.
inline constexpr std::uint64_t kFrameOverhead = 128;

/// The frames behind a message's head: texts, and tensors that lie in no arena. Copies share the bytes. Most messages have none,
/// and then this is a null pointer.
///   Threads  thread-compatible
class Payload {
 public:
  /// Where the frames lie. What carries messages has its own.
  class Store {
   public:
    virtual ~Store() = default;
    virtual std::size_t size() const = 0;
    virtual std::span<const std::byte> frame(std::size_t index) const = 0;
    /// How much memory of this process they take.
    virtual std::uint64_t memory_bytes() const = 0;
  };

  Payload() = default;
  explicit Payload(std::shared_ptr<const Store> store) : store_(std::move(store)) {}
  /// A payload with copies of the frames.
  static Payload copy_of(Frames frames);

  bool empty() const { return !store_; }
  std::size_t size() const { return store_ ? store_->size() : 0; }
  std::span<const std::byte> operator[](std::size_t index) const { return store_->frame(index); }
  std::uint64_t memory_bytes() const { return store_ ? store_->memory_bytes() : 0; }
  const std::shared_ptr<const Store>& store() const { return store_; }

 private:
  std::shared_ptr<const Store> store_;
};

/// A received message. One that is reused keeps the room of its head, so a receive loop allocates none.
///   Threads  thread-compatible
struct Parcel {
  /// Of a longer head only so much is kept. No message has such a head, so decoders refuse it.
  static constexpr std::size_t kLongestHead = 32 * 1024;
  /// One that is cleared keeps the room of a shorter head for the next message.
  static constexpr std::size_t kKeptHead = 1024;

  std::vector<std::byte> head;  ///< header and tensors
  Payload payload;

  /// Its frames: the head, then those of the payload.
  std::size_t size() const { return 1 + payload.size(); }
  std::span<const std::byte> operator[](std::size_t index) const {
    return index == 0 ? std::span<const std::byte>(head) : payload[index - 1];
  }
  std::uint64_t size_bytes() const;  ///< sum over all frames
  /// How much memory of this process it takes.
  std::uint64_t memory_bytes() const { return head.size() + kFrameOverhead + payload.memory_bytes(); }
  /// Gives its memory back, except kKeptHead at most.
  void clear();
};

/// Collects messages without payload that are sent together (BundleHeader). A single one stays as it is.
///   Threads  thread-bound
class Bundle {
 public:
  /// Longer bundles are not made, and not accepted.
  static constexpr std::size_t kMostBytes = 16 * 1024;

  bool empty() const { return count_ == 0; }
  /// Whether another message fits. A message that fits into no bundle is sent by itself.
  bool has_room_for(std::size_t head_bytes) const;
  /// There must be room. Throws std::bad_alloc; then nothing has changed.
  void add(std::span<const std::byte> head);
  /// What is to be sent: the only message, or a BundleHeader with all of them.
  std::span<const std::byte> message();
  /// Keeps its memory.
  void clear();

 private:
  std::vector<std::byte> bytes_;
  std::uint32_t count_ = 0;
};

/// Reads the messages of a bundle one by one. Accepts any bytes.
///   Lifetime  the frame outlives the reader
///   Threads   thread-bound
class BundleReader {
 public:
  BundleReader() = default;
  /// Nothing if the frame is no bundle.
  static std::optional<BundleReader> of(std::span<const std::byte> frame);

  bool is_done() const { return left_ == 0; }
  /// The next message. If the frame does not hold what its header announces, this is once the header of the bundle itself, which
  /// nobody accepts as a message, and then the reader is done.
  std::span<const std::byte> next();

 private:
  std::span<const std::byte> frame_;
  std::size_t offset_ = 0;
  std::uint32_t left_ = 0;
};

}  // namespace shoal::wire

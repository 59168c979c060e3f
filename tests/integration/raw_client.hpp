// A client that speaks the protocol by hand, and may get it wrong.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "shm/segment/segment.hpp"
#include "shm/wire/control.hpp"
#include "shm/wire/messages.hpp"
#include "shm/wire/socket.hpp"

namespace shoal::test {

/// Threads: thread-bound
class RawClient {
 public:
  /// Many of them share a context: each has a thread.
  explicit RawClient(std::string directory, std::shared_ptr<wire::MessageContext> context = nullptr)
      : directory_(std::move(directory)), context_(context ? std::move(context) : std::make_shared<wire::MessageContext>()) {}

  /// Connects to the attach socket.
  void connect();
  int attach_socket() const { return attach_.get(); }
  /// The next control message; nothing when the socket ends or none comes within 5 s.
  std::optional<wire::ControlMessage> receive_control();
  /// Connects and attaches arenas of that size, as far as PATH: where it is to bind. Empty, and the test failed, without an
  /// answer.
  std::string attach_until_path(std::uint64_t input_bytes = 4096, std::uint64_t output_bytes = 4096);
  /// Connects and attaches arenas of that size, or none of size 0, all the way to WELCOMED.
  void attach(std::uint64_t input_bytes = 4096, std::uint64_t output_bytes = 4096);

  /// Likewise; when it is refused, why.
  std::string attach_or_why_not();

  void send(std::span<const std::byte> frame);
  void send(wire::Frames frames);
  /// False when nobody takes it.
  bool try_send(wire::Frames frames) { return socket_.send(frames).ok(); }
  /// Fills in magic, kind, seq, model and signature of the one model served.
  wire::Request request(std::uint64_t seq);
  void send(const wire::Request& request);
  /// The next reply within 5 s; fails the test without one.
  wire::Reply receive_reply();
  /// The next message of any kind within 5 s: message().
  bool receive();
  const wire::Message& message() const { return message_; }
  /// Its own mapping of its input arena, writable; its output arena.
  std::span<std::byte> input() { return input_->mutable_bytes(); }
  const UniqueFd& output() const { return output_; }

 private:
  std::optional<wire::ControlMessage> begin_attach(std::uint64_t input_bytes, std::uint64_t output_bytes);
  void finish_attach(const std::string& path);

  std::string directory_;
  UniqueFd attach_;
  std::shared_ptr<wire::MessageContext> context_;
  std::optional<Segment> input_;
  UniqueFd output_;
  wire::Dealer socket_;
  wire::Message message_;
  std::uint32_t model_id_ = 0, signature_ = 0;
};

}  // namespace shoal::test

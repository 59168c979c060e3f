// A client that speaks the protocol by hand, and may get it wrong.
#pragma once

#include <optional>
#include <string>

#include "shm/segment/segment.hpp"
#include "shm/wire/control.hpp"
#include "shm/wire/messages.hpp"
#include "shm/wire/socket.hpp"

namespace shoal::test {

/// Threads: thread-bound
class RawClient {
 public:
  explicit RawClient(std::string directory) : directory_(std::move(directory)) {}

  /// Connects to the attach socket.
  void connect();
  int attach_socket() const { return attach_.get(); }
  /// The next control message; nothing when the socket ends or none comes within 5 s.
  std::optional<wire::ControlMessage> receive_control();
  /// Connects and attaches arenas of that size, all the way to WELCOMED.
  void attach(std::uint64_t input_bytes = 4096, std::uint64_t output_bytes = 4096);

  void send(std::span<const std::byte> frame);
  void send(wire::Frames frames);
  /// Fills in magic, kind, seq, model and signature of the one model served.
  wire::Request request(std::uint64_t seq);
  void send(const wire::Request& request);
  /// The next reply within 5 s; fails the test without one.
  wire::Reply receive_reply();
  const wire::Message& message() const { return message_; }

 private:
  bool receive();
  std::string directory_;
  UniqueFd attach_;
  wire::MessageContext context_;
  wire::Dealer socket_;
  wire::Message message_;
  std::uint32_t model_id_ = 0, signature_ = 0;
};

}  // namespace shoal::test

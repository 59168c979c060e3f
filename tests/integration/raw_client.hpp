// A client that speaks the protocol by hand, so that a test can break it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "shm/segment/segment.hpp"
#include "shm/wire/control.hpp"
#include "shm/wire/messages.hpp"
#include "shm/wire/socket.hpp"

namespace shoal::test {

/// Threads: thread-bound
class RawClient {
 public:
  ///   context  shared by many clients of one test, because each context has a thread
  explicit RawClient(std::string directory, std::shared_ptr<wire::MessageContext> context = nullptr)
      : directory_(std::move(directory)), context_(context ? std::move(context) : std::make_shared<wire::MessageContext>()) {}

  /// Connects to the attach socket.
  void connect();
  int attach_socket() const { return attach_.get(); }
  /// Returns the next control message; nothing when the socket ends or none comes within 5 s.
  std::optional<wire::ControlMessage> receive_control();
  /// Connects, attaches arenas of that size, and returns the path to which the daemon has bound its socket. Fails the test and
  /// returns "" without an answer.
  std::string attach_until_path(std::uint64_t input_bytes = 4096, std::uint64_t output_bytes = 4096);
  /// An ATTACH without arenas.
  wire::ControlMessage make_hello();
  /// The bound socket, which listens from now on. It blocks.
  UniqueFd take_listener();
  /// Does the whole handshake, with arenas of that size; size 0 means no arenas.
  void attach(std::uint64_t input_bytes = 4096, std::uint64_t output_bytes = 4096);
  /// Does the whole handshake. Returns why the daemon refused it, or "".
  std::string attach_or_why_not();

  /// Likewise with sparse arenas of that size each, which this process does not map. Their first page is there.
  std::string attach_sparse_or_why_not(std::uint64_t bytes);

  void send(std::span<const std::byte> frame);
  void send(wire::Frames frames);
  /// Returns false when the daemon does not take it.
  bool try_send(wire::Frames frames) { return socket_.send(frames).ok(); }
  /// Sends a control question ({"what": ...}).
  void ask(std::uint64_t seq, std::string_view question) { ASSERT_TRUE(try_ask(seq, question)); }
  /// Returns false when the daemon does not take it.
  bool try_ask(std::uint64_t seq, std::string_view question);
  /// Makes a correct request to the one model that is served.
  wire::Request request(std::uint64_t seq);
  void send(const wire::Request& request);
  /// Returns the next reply. Fails the test when none comes within 5 s.
  wire::Reply receive_reply();
  /// Receives the next message of any kind into message(). Returns false when none comes within 5 s.
  bool receive();
  const wire::Parcel& message() const { return message_; }
  /// The client's own writable mapping of its input arena, and its output arena.
  std::span<std::byte> input() { return input_->mutable_bytes(); }
  const UniqueFd& output() const { return output_; }
  /// Unmaps and closes the client's own arenas: from now on only the daemon and its workers hold them.
  void forget_arenas() {
    input_.reset();
    output_.reset();
  }

 private:
  std::optional<wire::ControlMessage> begin_attach(std::uint64_t input_bytes, std::uint64_t output_bytes);
  std::string finish_attach_or_why_not(const std::optional<wire::ControlMessage>& answer);
  void finish_attach(const std::string& path);

  std::string directory_;
  UniqueFd attach_, unbound_;
  std::shared_ptr<wire::MessageContext> context_;
  std::optional<Segment> input_;
  UniqueFd output_;
  wire::Dealer socket_;
  wire::Parcel message_;
  std::uint32_t model_id_ = 0, signature_ = 0;
};

}  // namespace shoal::test

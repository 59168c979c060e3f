// A client that speaks ZeroMQ's protocol by hand: greeting, READY and frames.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "tests/integration/raw_client.hpp"
#include "tests/support/unix_socket.hpp"
#include "tests/support/zmtp.hpp"

namespace shoal::test {

/// The daemon has connected to it when it is made.
///   Threads  thread-bound
class HandmadePeer : public zmtp::Connection {
 public:
  explicit HandmadePeer(const std::string& directory) : client_(directory), path_(client_.attach_until_path()) {
    if (path_.empty()) return;
    const UniqueFd listener = client_.take_listener();
    EXPECT_TRUE(wire::send_control(client_.attach_socket(), {.kind = wire::ControlKind::kBound}).ok());
    static_cast<Connection&>(*this) = Connection(UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  }
  HandmadePeer(const HandmadePeer&) = delete;
  HandmadePeer& operator=(const HandmadePeer&) = delete;

  /// The bytes of a message's head.
  static std::string control(wire::Kind kind, unsigned flags) {
    const wire::ControlHeader header = wire::make_control(kind, 0);
    return zmtp::frame(flags, {reinterpret_cast<const char*>(&header), sizeof header});
  }
  /// The bytes of a control question ({"what": ...}).
  static std::string question(const std::string& text) {
    return control(wire::Kind::kControl, zmtp::kMore) + zmtp::frame(0, text);
  }
  int attach_socket() const { return client_.attach_socket(); }
  /// Returns the next control message; nothing when the attach socket ends or none comes within 5 s.
  std::optional<wire::ControlMessage> receive_control() { return client_.receive_control(); }
  /// Finishes the handshake: from now on the daemon takes its messages.
  void be_welcomed() {
    shake_hands("DEALER");
    read_until(control(wire::Kind::kWelcome, 0));
    send(control(wire::Kind::kWelcomed, 0));
  }

 private:
  RawClient client_;
  std::string path_;
};

}  // namespace shoal::test

#pragma once

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <span>
#include <string>
#include <string_view>

#include "shm/base/clock.hpp"
#include "shm/wire/socket.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal::wire {

inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }
inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// A router, and dealers that a test binds.
class SocketTest : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return scratch_.path(name); }

  template <typename Receive>
  bool within_deadline(Socket& socket, Receive receive) {
    const std::uint64_t end = monotonic_now_ns() + 2'000'000'000;
    while (monotonic_now_ns() < end) {
      if (receive()) return true;
      Waitable items[] = {{.socket = &socket}};
      wait(items, std::chrono::milliseconds(10));
    }
    return false;
  }
  bool receive(Dealer& dealer) {
    return within_deadline(dealer, [&] { return dealer.receive(message_).value(); });
  }
  bool receive(PeerId& peer) {
    return within_deadline(router_, [&] { return router_.receive(peer, message_).value(); });
  }

  /// Pushes and flushes.
  Status send(PeerId peer, Frames frames, const Payload& payload = {}, Unsent* unsent = nullptr) {
    Status pushed = router_.push(peer, frames, payload, unsent);
    const auto lost = router_.flush();
    return pushed.ok() && !lost.empty() ? lost.front().why : pushed;
  }
  Status send(PeerId peer, std::span<const std::byte> head) { return send(peer, Frames(&head, 1)); }

  const test::ScratchDirectory scratch_;
  const std::string large_ = std::string(1'000'000, 'x');
  const std::array<std::span<const std::byte>, 3> large_message_ = {bytes_of("head"), bytes_of(large_), bytes_of(large_)};
  MessageContext context_;
  Router router_ = Router::create(context_).value();
  Parcel message_;
};

}  // namespace shoal::wire

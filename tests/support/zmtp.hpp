// ZeroMQ's protocol by hand (ZMTP 3.0, NULL), for peers that break it or hang up in the middle.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shm/base/unique_fd.hpp"

namespace shoal::test::zmtp {

enum Flag : unsigned { kMore = 1, kLong = 2, kCommand = 4 };

inline std::string greeting() {
  std::string bytes(64, '\0');
  bytes[0] = '\xff';
  bytes[9] = '\x7f';
  bytes[10] = 3;
  return bytes.replace(12, 4, "NULL");
}
/// A short frame, of at most 255 bytes.
inline std::string frame(unsigned flags, std::string_view text) {
  return std::string{static_cast<char>(flags), static_cast<char>(text.size())}.append(text);
}
/// A frame of any length.
inline std::string long_frame(unsigned flags, std::string_view text) {
  std::string bytes{static_cast<char>(flags | kLong)};
  for (int shift = 56; shift >= 0; shift -= 8) bytes += static_cast<char>(text.size() >> shift);
  return bytes.append(text);
}
inline std::string ready(std::string_view socket_type) {
  using namespace std::string_view_literals;
  return frame(kCommand, std::string("\5READY\13Socket-Type\0\0\0"sv) + static_cast<char>(socket_type.size()) +
                             std::string(socket_type) + std::string("\10Identity\0\0\0\0"sv));
}

/// One end of a connection to a ZeroMQ socket.
class Connection {
 public:
  Connection() = default;
  explicit Connection(UniqueFd socket) : socket_(std::move(socket)) { EXPECT_TRUE(socket_); }
  int fd() const { return socket_.get(); }
  /// Sends as much as the peer takes.
  void send(std::string_view bytes) { (void)::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  /// Sends as much as the peer takes at once. Returns how much that was.
  std::size_t send_some(std::string_view bytes) {
    const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent > 0 ? static_cast<std::size_t>(sent) : 0;
  }
  /// Sends all of it, however long that takes. Returns false when the peer has hung up.
  bool send_all(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  /// Reads and drops bytes until none have come for `quiet_ms`.
  void read_everything(int quiet_ms) {
    std::array<char, 65536> room{};
    pollfd speaks{socket_.get(), POLLIN, 0};
    while (::poll(&speaks, 1, quiet_ms) == 1 && ::recv(socket_.get(), room.data(), room.size(), 0) > 0) {
    }
  }
  /// Fails the test when the bytes do not come within 5 s.
  void read_until(std::string_view bytes) {
    std::array<char, 256> room{};
    while (heard_.find(bytes) == heard_.npos) {
      pollfd speaks{socket_.get(), POLLIN, 0};
      const ssize_t count = ::poll(&speaks, 1, 5000) == 1 ? ::recv(socket_.get(), room.data(), room.size(), 0) : 0;
      ASSERT_GT(count, 0) << "it says no more";
      heard_.append(room.data(), static_cast<std::size_t>(count));
    }
  }
  /// Exchanges greetings and READY. No message may be sent before the peer's READY.
  void shake_hands(std::string_view socket_type) {
    send(greeting());
    send(ready(socket_type));
    read_until(std::string_view("\5READY"));
  }
  /// Sends the frames of one message.
  bool send_message(const std::vector<std::string>& frames) {
    std::string bytes;
    for (std::size_t i = 0; i < frames.size(); ++i) bytes += long_frame(i + 1 < frames.size() ? kMore : 0u, frames[i]);
    return send_all(bytes);
  }
  /// Returns the frames of the next message, as the peer sent them; nothing when it hangs up or sends none for `quiet_ms`.
  std::vector<std::string> read_message(int quiet_ms = 5000) {
    constexpr std::size_t kGreeting = 64;
    if (!is_greeted_) {
      if (!hear(kGreeting, quiet_ms)) return {};
      heard_.erase(0, kGreeting);
      is_greeted_ = true;
    }
    for (std::vector<std::string> frames;;) {
      if (!hear(2, quiet_ms)) return {};
      const auto flags = static_cast<unsigned char>(heard_[0]);
      const std::size_t head = (flags & kLong) != 0 ? 9 : 2;
      if (!hear(head, quiet_ms)) return {};
      std::size_t size = 0;
      for (std::size_t i = 1; i < head; ++i) size = size << 8 | static_cast<unsigned char>(heard_[i]);
      if (!hear(head + size, quiet_ms)) return {};
      if ((flags & kCommand) == 0) frames.push_back(heard_.substr(head, size));
      heard_.erase(0, head + size);
      if (!frames.empty() && (flags & (kMore | kCommand)) == 0) return frames;
    }
  }
  void hang_up() { socket_.reset(); }

 private:
  bool hear(std::size_t bytes, int quiet_ms) {
    std::array<char, 65536> room{};
    while (heard_.size() < bytes) {
      pollfd speaks{socket_.get(), POLLIN, 0};
      const ssize_t count = ::poll(&speaks, 1, quiet_ms) == 1 ? ::recv(socket_.get(), room.data(), room.size(), 0) : 0;
      if (count <= 0) return false;
      heard_.append(room.data(), static_cast<std::size_t>(count));
    }
    return true;
  }

  UniqueFd socket_;
  std::string heard_;  // and not read
  bool is_greeted_ = false;
};

}  // namespace shoal::test::zmtp

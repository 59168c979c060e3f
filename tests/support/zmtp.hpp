// ZeroMQ's protocol by hand (ZMTP 3.0, NULL): for peers that get it wrong, or hang up in the middle.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>

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
/// A short frame: up to 255 bytes.
inline std::string frame(unsigned flags, std::string_view text) {
  return std::string{static_cast<char>(flags), static_cast<char>(text.size())}.append(text);
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
  /// As far as the other takes it.
  void send(std::string_view bytes) { (void)::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  /// Fails the test when they do not come within 5 s.
  void read_until(std::string_view bytes) {
    std::array<char, 256> room{};
    while (heard_.find(bytes) == heard_.npos) {
      pollfd speaks{socket_.get(), POLLIN, 0};
      const ssize_t count = ::poll(&speaks, 1, 5000) == 1 ? ::recv(socket_.get(), room.data(), room.size(), 0) : 0;
      ASSERT_GT(count, 0) << "it says no more";
      heard_.append(room.data(), static_cast<std::size_t>(count));
    }
  }
  /// Greeting and READY of both: no message may come before the other's.
  void shake_hands(std::string_view socket_type) {
    send(greeting());
    send(ready(socket_type));
    read_until(std::string_view("\5READY"));
  }
  void hang_up() { socket_.reset(); }

 private:
  UniqueFd socket_;
  std::string heard_;
};

}  // namespace shoal::test::zmtp

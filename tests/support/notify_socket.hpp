// What a daemon tells its service manager.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tests/support/pool_fixture.hpp"
#include "tests/support/unix_socket.hpp"

namespace shoal::test {

/// Where sd_notify's datagrams arrive.
class NotifySocket {
 public:
  explicit NotifySocket(const std::string& path) : socket_(bound_socket(path, SOCK_DGRAM)) { EXPECT_TRUE(socket_); }

  /// Everything up to the first datagram with a line that begins so; what came is added to `seen`.
  bool hears(const std::string& line, std::string& seen) const {
    return eventually([&] {
      char text[4096];
      const ssize_t size = ::recv(socket_.get(), text, sizeof text, MSG_DONTWAIT);
      if (size <= 0) return false;
      const std::string message(text, static_cast<std::size_t>(size));
      seen += message + "\n";
      return ("\n" + message).find("\n" + line) != std::string::npos;
    });
  }

 private:
  const UniqueFd socket_;
};

}  // namespace shoal::test

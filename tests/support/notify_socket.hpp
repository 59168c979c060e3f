// The service manager's end of a daemon's notifications.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tests/support/pool_fixture.hpp"
#include "tests/support/unix_socket.hpp"

namespace shoal::test {

/// Receives the datagrams of sd_notify().
class NotifySocket {
 public:
  explicit NotifySocket(const std::string& path) : socket_(bound_socket(path, SOCK_DGRAM)) { EXPECT_TRUE(socket_); }

  /// Receives datagrams until one has a line that begins with `line`. Adds all of them to `seen`.
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

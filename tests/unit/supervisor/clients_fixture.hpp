#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "shm/base/clock.hpp"
#include "shm/wire/control.hpp"
#include "supervisor/plane/clients.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/support/unix_socket.hpp"

namespace shoal::supervisor {

/// A process of its own that has connected, and whose end of the connection the test holds.
class OtherProcess {
 public:
  explicit OtherProcess(const std::string& path) {
    wire::ControlPair pair = wire::make_control_pair().value();
    pid_ = test::start_child([&] {
      // Copies of connections that the test closes must be gone before it goes on, or the daemon hears of no hang-up.
      const unsigned theirs = static_cast<unsigned>(pair.theirs.get());
      if (theirs > 3) ::close_range(3, theirs - 1, 0);
      ::close_range(theirs + 1, ~0U, 0);
      wire::ControlMessage hello;
      hello.fds.push_back(test::connected_socket(path, SOCK_SEQPACKET | SOCK_NONBLOCK));
      if (!wire::send_control(pair.theirs.get(), hello).ok()) return 1;
      return ::pause();
    });
    pollfd waiting{.fd = pair.ours.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&waiting, 1, 10'000), 1);
    auto hello = wire::receive_control(pair.ours.get());
    EXPECT_TRUE(hello.ok() && *hello && (*hello)->fds.size() == 1);
    if (hello.ok() && *hello && (*hello)->fds.size() == 1) connection = std::move((*hello)->fds[0]);
  }
  ~OtherProcess() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;

  pid_t pid() const { return pid_; }
  UniqueFd connection;

 private:
  pid_t pid_ = -1;
};

/// The daemon's side of the attach socket, and clients made by hand.
class ClientsTest : public testing::Test {
 protected:
  struct Observer final : ClientObserver {
    Status client_bound(Client&) override { return bound; }
    void client_gone(Client&) override { ++gone; }
    void client_forgotten(Client&) override { ++forgotten; }
    Status bound;
    int gone = 0, forgotten = 0;
  };

  ClientsTest() { EXPECT_TRUE(clients_.listen().ok()); }

  UniqueFd connect() const {
    UniqueFd socket = test::connected_socket(directory_.attach_path(), SOCK_SEQPACKET | SOCK_NONBLOCK);
    EXPECT_TRUE(socket);
    return socket;
  }
  static bool pollfd_is_readable(int fd) {
    pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
    return ::poll(&waiting, 1, 0) == 1;
  }
  void serve() {  // connections and messages are there already: the sockets are local
    for (int i = 0; i < 4; ++i) loop_.run_ready();
  }
  void run_next_timer() {
    if (timers_.next_ns()) timers_.run_due(*timers_.next_ns());
  }
  static wire::ControlMessage receive(const UniqueFd& socket) {
    auto received = wire::receive_control(socket.get());
    EXPECT_TRUE(received.ok()) << received.status().to_string();
    return received.ok() && *received ? *std::move(*received) : wire::ControlMessage{};
  }
  static wire::ControlMessage hello() {
    wire::ControlMessage message{.kind = wire::ControlKind::kAttach};
    message.fds.push_back(test::unbound_socket());
    return message;
  }
  // ATTACH, and the path that comes back.
  UniqueFd attach() {
    UniqueFd socket = connect();
    EXPECT_TRUE(wire::send_control(socket.get(), hello()).ok());
    serve();
    EXPECT_EQ(receive(socket).kind, wire::ControlKind::kPath);
    return socket;
  }
  static void expect_refused(const UniqueFd& socket, StatusCode code, const std::string& why) {
    const wire::ControlMessage refusal = receive(socket);
    EXPECT_EQ(refusal.kind, wire::ControlKind::kRefused);
    EXPECT_EQ(refusal.a, static_cast<std::uint64_t>(code)) << refusal.text;
    EXPECT_NE(refusal.text.find(why), std::string::npos) << refusal.text;
  }

  const test::ScratchDirectory scratch_;
  SocketDirectory directory_ = SocketDirectory::open(scratch_.path()).value();
  EventLoop loop_;
  Timers timers_;
  Observer observer_;
  Logger log_{"test"};
  const Clock clock_{};
  Clients clients_{clock_, directory_, loop_, timers_, observer_, log_};
};

}  // namespace shoal::supervisor

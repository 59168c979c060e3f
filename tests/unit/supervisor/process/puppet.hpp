// A zygote that a test plays (tests/support/puppet_zygote.cpp), and the workers that it forks: real processes.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <utility>

#include "shm/base/unique_fd.hpp"
#include "shm/wire/control.hpp"
#include "supervisor/process/model_processes.hpp"

namespace shoal::supervisor {

inline UniqueFd pidfd_of(pid_t pid, unsigned flags = 0) {
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, flags)));
}

inline bool is_dead(const UniqueFd& pidfd) {
  pollfd end{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
  return ::poll(&end, 1, 0) == 1;
}

/// A FORK that the zygote was told, and the worker it became.
struct Fork {
  std::uint64_t incarnation = 0, lanes = 0;
  std::string sockets;
  UniqueFd control, page;
  pid_t pid = -1;
  UniqueFd pidfd;

  void say(const wire::ControlMessage& message) const { EXPECT_TRUE(wire::send_control(control.get(), message).ok()); }
  void say_ready() const {
    std::string paths;
    for (std::uint64_t lane = 0; lane < lanes; ++lane) paths += lane_path(sockets, static_cast<int>(lane)) + "\n";
    say({.kind = wire::ControlKind::kReady, .id = incarnation, .text = paths});
  }
  /// End of file: the supervisor has closed its end.
  bool is_told_to_go() const {
    const auto message = wire::receive_control(control.get());
    return message.status().code() == StatusCode::kUnavailable;
  }
};

/// The test's hold on one puppet.
class Puppet {
 public:
  explicit Puppet(UniqueFd commands) : commands_(std::move(commands)) {
    wire::ControlMessage hello = receive(commands_);
    pid_ = static_cast<pid_t>(hello.a);
    pidfd_ = pidfd_of(pid_);
    if (!hello.fds.empty()) control_ = std::move(hello.fds[0]);
  }
  Puppet(Puppet&&) = default;
  Puppet& operator=(Puppet&&) = default;

  pid_t pid() const { return pid_; }
  bool is_dead() const { return supervisor::is_dead(pidfd_); }
  /// Waits for its end; what it said before is unread still.
  void kill() const {
    ::kill(pid_, SIGKILL);
    pollfd end{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&end, 1, 10'000), 1);
  }
  void close_control() { control_.reset(); }
  const UniqueFd& control() const { return control_; }

  void say(const wire::ControlMessage& message) const { EXPECT_TRUE(wire::send_control(control_.get(), message).ok()); }
  wire::ControlMessage hear() const { return receive(control_); }
  bool hears_nothing() const {
    pollfd waiting{.fd = control_.get(), .events = POLLIN, .revents = 0};
    return ::poll(&waiting, 1, 0) == 0;
  }
  Fork hear_fork() const {
    wire::ControlMessage message = hear();
    EXPECT_EQ(message.kind, wire::ControlKind::kFork);
    if (message.fds.size() != 2) return {};
    return {message.id, message.a, message.text, std::move(message.fds[0]), std::move(message.fds[1]), -1, {}};
  }
  void fork(Fork& worker) const {
    EXPECT_TRUE(wire::send_control(commands_.get(), {.kind = wire::ControlKind::kFork}).ok());
    wire::ControlMessage born = receive(commands_);
    worker.pid = static_cast<pid_t>(born.a);
    if (!born.fds.empty()) worker.pidfd = std::move(born.fds[0]);
  }
  void say_forked(const Fork& worker) const {
    wire::ControlMessage message{
        .kind = wire::ControlKind::kForked, .id = worker.incarnation, .a = static_cast<std::uint64_t>(worker.pid)};
    message.fds.push_back(duplicate_fd(worker.pidfd.get()).value());
    say(message);
  }
  /// FORK obeyed, and reported.
  Fork fork_worker() const {
    Fork worker = hear_fork();
    fork(worker);
    say_forked(worker);
    return worker;
  }
  /// Of a child that has ended.
  int reap(pid_t child) const {
    EXPECT_TRUE(
        wire::send_control(commands_.get(), {.kind = wire::ControlKind::kExited, .a = static_cast<std::uint64_t>(child)}).ok());
    return static_cast<int>(receive(commands_).b);
  }

 private:
  static wire::ControlMessage receive(const UniqueFd& socket) {
    pollfd waiting{.fd = socket.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&waiting, 1, 10'000), 1) << "nothing came";
    auto message = wire::receive_control(socket.get());
    if (message.ok() && *message) return **std::move(message);
    ADD_FAILURE() << "no message: " << message.status().to_string();
    return {};
  }

  UniqueFd commands_, control_, pidfd_;
  pid_t pid_ = -1;
};

}  // namespace shoal::supervisor

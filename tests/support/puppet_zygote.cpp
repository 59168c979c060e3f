// shoal-puppet: a zygote that a unit test plays. It hands its control socket to the test, which listens at $SHOAL_DIR/puppet, and
// forks and reaps children on the test's command.
//
//   puppet → test  kLoad    a = its pid; the control socket
//   test → puppet  kFork    puppet → test  kForked  a = pid of a child, which waits; its pidfd
//   test → puppet  kExited  a = pid of a child that has ended: it is reaped; puppet → test  kExited  b = wait status
//   End of file ends the puppet and its children.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "shm/wire/control.hpp"
#include "tests/support/unix_socket.hpp"

using shoal::UniqueFd;
using shoal::wire::ControlKind;
using shoal::wire::ControlMessage;

namespace {

[[noreturn]] void wait_for_end_of(const UniqueFd& test) {
  pollfd end{.fd = test.get(), .events = 0, .revents = 0};
  while (::poll(&end, 1, -1) != 1) {
  }
  ::_exit(0);
}

ControlMessage obey(const ControlMessage& command, const UniqueFd& test) {
  if (command.kind == ControlKind::kExited) {
    int status = 0;
    ::waitpid(static_cast<pid_t>(command.a), &status, 0);
    return {.kind = ControlKind::kExited, .a = command.a, .b = static_cast<std::uint64_t>(status)};
  }
  const pid_t child = ::fork();
  if (child == 0) wait_for_end_of(test);
  ControlMessage reply{.kind = ControlKind::kForked, .a = static_cast<std::uint64_t>(child)};
  reply.fds.emplace_back(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  return reply;
}

}  // namespace

int main() {
  const UniqueFd test = shoal::test::connected_socket(std::string(std::getenv("SHOAL_DIR")) + "/puppet", SOCK_SEQPACKET);
  ControlMessage hello{.kind = ControlKind::kLoad, .a = static_cast<std::uint64_t>(::getpid())};
  hello.fds.emplace_back(3);
  if (!test || !shoal::wire::send_control(test.get(), hello).ok()) return 1;
  hello.fds.clear();  // the test's copy is the only one
  while (true) {
    const auto command = shoal::wire::receive_control(test.get(), true);
    if (!command.ok() || !*command) return 0;
    if (!shoal::wire::send_control(test.get(), obey(**command, test)).ok()) return 0;
  }
}

#include "tools/shoal/working.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>

#include "shm/base/clock.hpp"
#include "tools/shoal/console.hpp"

namespace shoal::tool {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;
constexpr int kShowEveryMs = 200;

/// The child: it allocates nothing, because other threads of the parent may have held locks. Ends with its parent.
[[noreturn]] void show_to_terminal(int from_parent, const char* what) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) (void)::signal(number, SIG_IGN);  // it removes its line first
  std::array<char, 512> state{}, line{};
  const std::uint64_t started_ns = monotonic_now_ns();
  bool is_visible = false;
  while (true) {
    pollfd waiting{.fd = from_parent, .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, kShowEveryMs) > 0) {
      const ssize_t size = ::recv(from_parent, state.data(), state.size() - 1, 0);
      if (size <= 0) break;
      state[static_cast<std::size_t>(size)] = '\0';
    }
    const std::uint64_t seconds = (monotonic_now_ns() - started_ns) / kSecondNs;
    if (seconds == 0) continue;
    const int size = std::snprintf(line.data(), line.size(), "\r%s%s%s, %llu s\033[K", what, state[0] ? ": " : "", state.data(),
                                   static_cast<unsigned long long>(seconds));
    is_visible = true;
    if (::write(STDERR_FILENO, line.data(), std::min(static_cast<std::size_t>(size), line.size() - 1)) < 0) break;
  }
  if (is_visible) (void)!::write(STDERR_FILENO, "\r\033[K", 4);
  ::_exit(0);
}

}  // namespace

Working::Working(const std::string& what) {
  std::array<int, 2> ends{};
  if (::isatty(STDERR_FILENO) != 1 || ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) return;
  UniqueFd child_end(ends[1]);
  to_child_.reset(ends[0]);
  const std::string text = printable(what);
  child_ = ::fork();
  if (child_ != 0) return;
  ::close(ends[0]);
  show_to_terminal(ends[1], text.c_str());
}

Working::~Working() {
  to_child_.reset();
  if (child_ < 0) return;
  while (::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Working::say(const std::string& state) const {
  const std::string text = printable(state);
  if (child_ > 0) (void)!::send(to_child_.get(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace shoal::tool

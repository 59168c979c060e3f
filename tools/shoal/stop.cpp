// shoal stop: ends the daemon.
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/unique_fd.hpp"
#include "tools/shoal/commands.hpp"
#include "tools/shoal/with_daemon.hpp"

namespace shoal::tool {
namespace {

constexpr const char* kAbout =
    "Stops the running daemon: nothing new is taken, what was admitted is answered, then every process exits.";
constexpr const char* kMore =
    R"(Returns when the daemon is gone. When it still runs after --timeout the exit code is 1; it goes on stopping.

  shoal stop)";

struct Options {
  int timeout_s = 120;
};

/// Becomes readable when the process is gone. Errors: kNotFound: it is already.
Result<UniqueFd> open_process(pid_t pid) {
  UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (fd) return fd;
  if (errno == ESRCH) return not_found("process {} is gone", pid);
  return status_from_errno("watch the daemon's process", std::to_string(pid), errno);
}

Status wait_until_gone(const UniqueFd& process, int timeout_s) {
  constexpr std::uint64_t kSecondNs = 1'000'000'000;
  const std::uint64_t until_ns = monotonic_now_ns() + static_cast<std::uint64_t>(timeout_s) * kSecondNs;
  while (true) {
    const std::uint64_t now_ns = monotonic_now_ns();
    if (now_ns >= until_ns)
      return deadline_exceeded("the daemon still runs after {} s; it goes on answering what it has admitted, then stops",
                               timeout_s);
    pollfd waiting{.fd = process.get(), .events = POLLIN};
    const int ready = ::poll(&waiting, 1, static_cast<int>((until_ns - now_ns) / 1'000'000 + 1));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return status_from_errno("wait for", "the daemon", errno);
  }
}

Finish stop(Pool& pool, const Options& options) {
  const auto stats = pool.stats();
  if (!stats.ok()) return daemon_failure(stats.status());
  const auto process = open_process(nlohmann::json::parse(*stats).at("supervisor").at("pid").get<pid_t>());
  if (!process.ok()) return process.status();
  if (const Status agreed = pool.stop(); !agreed.ok()) return daemon_failure(agreed);
  return wait_until_gone(*process, options.timeout_s);
}

}  // namespace

Command make_stop(CLI::App& application) {
  const auto options = std::make_shared<Options>();
  CLI::App* app = application.add_subcommand("stop", kAbout);
  app->footer(kMore);
  app->add_option("--timeout", options->timeout_s, "seconds to wait (default 120)")->check(CLI::Range(1, 86'400));
  return {app, [options](Session&) { return with_daemon([&](Pool& pool) { return stop(pool, *options); }); }};
}

}  // namespace shoal::tool

// shoal stop: ends the daemon.
#include <poll.h>
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
#include "tools/shoal/working.hpp"

namespace shoal::tool {
namespace {

constexpr const char* kStopAbout =
    "Stops the running daemon: it refuses new requests, answers the admitted ones, and then all its processes end.";
constexpr const char* kStopMore =
    R"(Returns when the daemon has ended. If it still runs after --timeout, the exit code is 1; it goes on stopping.

  shoal stop)";

struct StopOptions {
  int timeout_s = 120;
};

/// A descriptor that becomes readable when the process ends. Errors: kNotFound (it has already ended).
Result<UniqueFd> open_process(pid_t pid) {
  UniqueFd fd = open_pidfd(pid);
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
      return deadline_exceeded("the daemon still runs after {} s; it stops when it has answered its admitted requests",
                               timeout_s);
    pollfd waiting{.fd = process.get(), .events = POLLIN};
    const int ready = ::poll(&waiting, 1, static_cast<int>((until_ns - now_ns) / 1'000'000 + 1));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return status_from_errno("wait for", "the daemon", errno);
  }
}

Finish stop(Pool& pool, const StopOptions& options) {
  const auto stats = pool.stats();
  if (!stats.ok()) return daemon_failure(stats.status());
  const auto process = open_process(nlohmann::json::parse(*stats).at("supervisor").at("pid").get<pid_t>());
  if (!process.ok()) return process.status();
  const Working working("waiting until the daemon has answered its requests");
  if (const Status agreed = pool.stop(); !agreed.ok()) return daemon_failure(agreed);
  return wait_until_gone(*process, options.timeout_s);
}

}  // namespace

Command make_stop(CLI::App& application) {
  const auto options = std::make_shared<StopOptions>();
  CLI::App* app = application.add_subcommand("stop", kStopAbout);
  app->footer(kStopMore);
  app->add_option("--timeout", options->timeout_s, "seconds to wait (default 120)")->check(CLI::Range(1, 86'400));
  return {app, [options](Invocation&) { return with_daemon([&](Pool& pool) { return stop(pool, *options); }); }};
}

}  // namespace shoal::tool

#include "tools/shoal/watch.hpp"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "shm/base/errors.hpp"

namespace shoal::tool {
namespace {

constexpr std::chrono::milliseconds kAskForNextEvery(500);

/// JSON of another form is an error, and nothing else leaves.
Result<std::string> ask_for_page(Pool& pool, const std::function<Result<std::string>(Pool&)>& look) try {
  return look(pool);
} catch (const nlohmann::json::exception& error) {
  return internal_error("the daemon's answer cannot be read: {}", error.what());
}

bool is_gone(const Status& status) { return status.code() == StatusCode::kUnavailable; }

}  // namespace

Pages::Pages(bool in_place, bool is_json) : in_place_(in_place && !is_json && ::isatty(STDOUT_FILENO) == 1), is_json_(is_json) {}

void Pages::show(const std::string& page) {
  if (!in_place_) {
    std::printf("%s%s", page.c_str(), is_json_ ? "" : "\n");
  } else {
    // Lines are written over the last page's, whose rest is removed: nothing flickers.
    std::string text = "\033[H";
    for (const char c : page) text += c == '\n' ? std::string("\033[K\n") : std::string(1, c);
    std::printf("%s\033[J", text.c_str());
  }
  std::fflush(stdout);
}

Finish watch_daemon(double interval_s, bool is_json, const std::function<Result<std::string>(Pool&)>& look) {
  const Interrupt interrupt;
  auto pool = Pool::connect({.arena_limit_bytes = 0});
  if (!pool.ok()) return daemon_failure(pool.status());
  Pages pages(true, is_json);
  const auto interval = nanoseconds_of(interval_s);
  bool is_waiting = false;
  while (!interrupt.came() && std::ferror(stdout) == 0) {
    const Result<std::string> page = pool.ok() ? ask_for_page(*pool, look) : pool.status();
    if (page.ok()) {
      pages.show(*page);
      is_waiting = false;
      interrupt.wait_for(interval);
      continue;
    }
    if (interrupt.came()) break;
    if (!is_gone(page.status())) return daemon_failure(page.status());
    if (!is_waiting) std::fprintf(stderr, "shoal: waiting for a daemon: %s\n", printable(page.status().message()).c_str());
    is_waiting = true;
    interrupt.wait_for(kAskForNextEvery);
    pool = Pool::connect({.arena_limit_bytes = 0});
  }
  return {};
}

}  // namespace shoal::tool

#include "tools/benchmarks/daemon.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "shm/base/errors.hpp"

namespace shoal::bench {
namespace {

using namespace std::chrono_literals;

std::string last_line(const std::string& file) {
  std::ifstream stream(file);
  std::string last;
  for (std::string line; std::getline(stream, line);) last = line;
  return last;
}

// Makes only async-signal-safe calls, because the parent may have threads. The daemon ends with the benchmark.
[[noreturn]] void become_daemon(char* const* argv, const char* log, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(1);
  ::dup2(::open(log, O_WRONLY | O_CREAT | O_CLOEXEC, 0600), STDERR_FILENO);
  ::execv(argv[0], argv);
  ::_exit(127);
}

}  // namespace

Result<Daemon> Daemon::start(const std::vector<std::string>& models) {
  std::string directory = std::filesystem::temp_directory_path() / "shoal-bench-XXXXXX";
  if (!::mkdtemp(directory.data())) return status_from_errno("create directory", directory, errno);
  const std::string binary = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "shoald";
  std::vector<std::string> words{binary};
  for (const std::string& model : models) words.insert(words.end(), {"--model", model});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::setenv("SHOAL_DIR", directory.c_str(), 1);
  const std::string log = directory + "/log.txt";
  const pid_t parent = ::getpid(), pid = ::fork();
  if (pid < 0) return status_from_errno("fork for", binary, errno);
  if (pid == 0) become_daemon(argv.data(), log.c_str(), parent);
  Daemon daemon(directory, pid);
  SHOAL_RETURN_IF_ERROR(daemon.wait_until_ready().with_context("the benchmark's daemon"));
  return daemon;
}

Status Daemon::wait_until_ready() {
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  Status last = unavailable("no answer");
  while (std::chrono::steady_clock::now() < deadline) {
    auto pool = Pool::connect({.directory = directory_, .arena_limit_bytes = 0});
    if (pool) {
      const auto stats = read_stats(*pool);
      if (stats && stats->all_ready) return {};
      if (stats && !stats->failure.empty()) return unavailable("{}", stats->failure);
      last = stats ? unavailable("a model is not ready") : stats.status();
    } else {
      last = pool.status();
    }
    if (::waitpid(pid_, nullptr, WNOHANG) == pid_) {
      pid_ = -1;
      return unavailable("shoald ended: {}", last_line(directory_ + "/log.txt"));
    }
    std::this_thread::sleep_for(20ms);
  }
  return last.with_context("not ready after 60 s");
}

Daemon::Daemon(Daemon&& other) noexcept : directory_(std::exchange(other.directory_, {})), pid_(std::exchange(other.pid_, -1)) {}

Daemon::~Daemon() {
  if (directory_.empty()) return;  // this daemon was moved from
  if (pid_ > 0) ::kill(pid_, SIGTERM), ::waitpid(pid_, nullptr, 0);
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

Result<DaemonStats> read_stats(Pool& pool) {
  SHOAL_ASSIGN_OR_RETURN(const std::string text, pool.stats());
  const auto json = nlohmann::json::parse(text);
  DaemonStats stats{.bytes_read = json["supervisor"].value("bytes_read", std::uint64_t{0}), .all_ready = true};
  for (const auto& model : json["models"]) {
    stats.all_ready = stats.all_ready && model["state"] == "ready";
    if (model["state"] == "failed")
      stats.failure = format("model '{}': {}", std::string(model["name"]), std::string(model["reason"]));
  }
  for (const auto& worker : json["models"][0]["workers"]) {
    if (worker["state"] == "ready") stats.worker_pids.push_back(worker["pid"]);
  }
  return stats;
}

}  // namespace shoal::bench

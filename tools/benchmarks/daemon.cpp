#include "tools/benchmarks/daemon.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "shm/base/errors.hpp"

namespace shoal::bench {
namespace {

using namespace std::chrono_literals;

Status wait_until_ready(const std::string& directory) {
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  Status last = unavailable("no answer");
  while (std::chrono::steady_clock::now() < deadline) {
    auto pool = Pool::connect({.directory = directory, .input_arena_bytes = 0, .output_arena_bytes = 0});
    if (pool) {
      const auto stats = read_stats(*pool);
      if (stats && stats->all_ready) return {};
      last = stats ? unavailable("a model is not ready") : stats.status();
    } else {
      last = pool.status();
    }
    std::this_thread::sleep_for(20ms);
  }
  return last.with_context("the benchmark's daemon is not ready after 60 s");
}

}  // namespace

Result<Daemon> Daemon::start(const std::vector<std::string>& models) {
  std::string directory = std::filesystem::temp_directory_path() / "shoal-bench-XXXXXX";
  if (!::mkdtemp(directory.data())) return status_from_errno("make", directory, errno);
  const std::string binary = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "shoald";
  std::vector<std::string> words{binary};
  for (const std::string& model : models) words.insert(words.end(), {"--model", model});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::setenv("SHOAL_DIR", directory.c_str(), 1);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, binary.c_str(), &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return status_from_errno("start", binary, error);
  Daemon daemon(directory, pid);
  SHOAL_RETURN_IF_ERROR(wait_until_ready(directory));
  return daemon;
}

Daemon::Daemon(Daemon&& other) noexcept : directory_(std::move(other.directory_)), pid_(std::exchange(other.pid_, -1)) {}

Daemon::~Daemon() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGTERM);
  ::waitpid(pid_, nullptr, 0);
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

Result<DaemonStats> read_stats(Pool& pool) {
  SHOAL_ASSIGN_OR_RETURN(const std::string text, pool.stats());
  const auto json = nlohmann::json::parse(text);
  DaemonStats stats{.bytes_read = json["supervisor"].value("bytes_read", std::uint64_t{0}), .all_ready = true};
  for (const auto& model : json["models"]) stats.all_ready = stats.all_ready && model["state"] == "ready";
  for (const auto& worker : json["models"][0]["workers"]) {
    if (worker["state"] == "ready") stats.worker_pids.push_back(worker["pid"]);
  }
  return stats;
}

}  // namespace shoal::bench

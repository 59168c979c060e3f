// A real daemon in a temporary directory, for tests that talk to it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "shoal/pool.hpp"

namespace shoal::test {

struct DaemonSettings {
  std::vector<std::string> models = {"echo=builtin:identity"};  // as given to --model
  std::string worker;                                           // name of a binary beside shoald, or a path; empty = shoal-worker
  bool wait_until_ready = true;
  std::string parent = "/tmp";  // where its directory is made
  std::vector<std::string> arguments = {};    // of shoald, beside the models
  std::vector<std::string> environment = {};  // of shoald: "NAME=VALUE"
  std::string limits = {};                    // lines of the table [limits] of its configuration; empty = no configuration
};

/// Where this test and the binaries under test are: the build puts them in one directory.
std::filesystem::path binary_directory();

/// Starts the shoald beside this test; kills it and waits for its children when destroyed. Its log is shown when a test failed.
///   Threads  thread-compatible
class DaemonFixture {
 public:
  explicit DaemonFixture(DaemonSettings settings = {});
  ~DaemonFixture();
  DaemonFixture(const DaemonFixture&) = delete;
  DaemonFixture& operator=(const DaemonFixture&) = delete;

  const std::string& directory() const { return directory_; }
  pid_t pid() const { return pid_; }
  Pool connect(PoolOptions options = {}) const;

  /// The daemon's own account.
  nlohmann::json stats() const;
  nlohmann::json model(const std::string& name = "echo") const;
  std::vector<pid_t> workers(const std::string& model_name = "echo") const;  // those that are ready
  pid_t zygote(const std::string& model_name = "echo") const;
  /// Supervisor, zygotes and workers that live now.
  std::vector<pid_t> all_processes() const;
  std::string log() const;
  /// Other limits, at a SIGHUP. Only of one that was started with some.
  void change_limits(const std::string& limits);

  /// Starts a daemon in the same directory again, after the last one has ended.
  ///   stopped  called while it stands before its first instruction, to let it go by SIGCONT; then nothing is waited for
  void start(const std::function<void(pid_t)>& stopped = {});
  /// Waits until every model has its wanted number of ready workers. False when the time is over.
  bool wait_until_ready(std::chrono::milliseconds limit = std::chrono::seconds(10)) const;
  /// The daemon's exit code; -1 when it does not end in time, 128 + signal when one killed it.
  int wait_for_exit(std::chrono::milliseconds limit = std::chrono::seconds(15));

 private:
  std::string limits_file() const { return directory_ + "/limits.toml"; }

  DaemonSettings settings_;
  std::string directory_, log_file_;
  pid_t pid_ = -1;
};

/// Polls until `condition` holds; false when the time is over.
bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds limit = std::chrono::seconds(10));
/// Pids of processes whose environment names `directory` as SHOAL_DIR; zombies are not counted.
std::vector<pid_t> processes_of(const std::string& directory);
bool is_alive(pid_t pid);
/// SIGSTOP, and wait until all its threads stand still.
void stop_process(pid_t pid);
/// shoald run to its end: exit code and what it wrote.
struct CommandResult {
  int exit_code = -1;
  std::string output;
};
CommandResult run_shoald(const std::string& arguments, const std::string& directory);

/// float32 of that shape, element i = first + i.
Tensor counting(const Shape& shape, float first = 0);

}  // namespace shoal::test

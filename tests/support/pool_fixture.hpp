// A real daemon in a temporary directory, for tests that talk to it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/pool.hpp"

namespace shoal::test {

struct DaemonSettings {
  std::vector<std::string> models = {"echo=builtin:identity"};  // as given to --model
  std::string worker;                                           // a binary beside shoald, or a path; empty = shoal-worker
  bool wait_until_ready = true;
  std::string parent = "/tmp";                // where its directory is made
  std::vector<std::string> arguments = {};    // further arguments of shoald
  std::vector<std::string> environment = {};  // further variables of shoald: "NAME=VALUE"
  uid_t user = 0;                             // not 0: shoald runs as that user, whose groups are `groups`; needs root
  std::vector<gid_t> groups = {};
  std::string limits = {};  // lines of the configuration's table [limits]; empty = no configuration
};

/// The directory of this test and of the binaries under test.
std::filesystem::path binary_directory();

/// Starts the shoald beside this test. The destructor kills it, waits for its children, and shows its log if the test failed.
/// With AddressSanitizer the destructor sends SIGTERM instead: the daemon must end with exit code 0 and without a report.
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

  /// The daemon's `stats`; null when no daemon answers.
  nlohmann::json stats() const;
  nlohmann::json model(const std::string& name = "echo") const;
  std::vector<pid_t> workers(const std::string& model_name = "echo") const;  // the ready ones
  pid_t zygote(const std::string& model_name = "echo") const;
  /// The supervisor, zygotes and workers that are alive now.
  std::vector<pid_t> all_processes() const;
  std::string log() const;
  /// Whether the log holds the text; waits for it, because another thread writes the log.
  bool logs(std::string_view text) const;
  /// What sanitizers reported in the daemon, its zygotes and its workers since the last call. Reports that nobody takes fail the
  /// test when this is destroyed. Empty in a build without AddressSanitizer.
  std::string take_sanitizer_reports() const;
  /// Writes other limits and sends SIGHUP. The daemon must have been started with limits.
  void change_limits(const std::string& limits);

  /// Starts a daemon in the same directory again, after the last one has ended.
  ///   stopped  called while the process is stopped before it executes shoald; it must send SIGCONT. Then nothing is
  ///            waited for
  void start(const std::function<void(pid_t)>& stopped = {});
  /// Waits until every model has its wanted number of ready workers. Returns false after `limit`.
  bool wait_until_ready(std::chrono::milliseconds limit = std::chrono::seconds(60)) const;
  /// Returns the daemon's exit code: -1 when it does not end in time, 128 + signal when a signal ended it.
  int wait_for_exit(std::chrono::milliseconds limit = std::chrono::seconds(15));

 private:
  std::string limits_file() const { return directory_ + "/limits.toml"; }

  DaemonSettings settings_;
  std::string directory_, log_file_;
  mutable std::size_t judged_log_bytes_ = 0;  // of the log: looked through for reports of sanitizers
  pid_t pid_ = -1;
};

/// Polls until `condition` holds. Returns false after `limit`.
bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds limit = std::chrono::seconds(10));
/// Pids of the processes whose environment has SHOAL_DIR=directory, without zombies.
std::vector<pid_t> processes_of(const std::string& directory);
bool is_alive(pid_t pid);
/// Sends SIGSTOP and waits until all threads are stopped.
void stop_process(pid_t pid);
/// Stops a model's zygote and workers: its requests wait until go_on(), because no worker replaces the stopped ones.
class StoppedModel {
 public:
  StoppedModel(const DaemonFixture& daemon, const std::string& model);
  ~StoppedModel() { go_on(); }
  StoppedModel(const StoppedModel&) = delete;
  StoppedModel& operator=(const StoppedModel&) = delete;
  /// The zygote forks new workers, and they answer.
  void go_on();

 private:
  pid_t zygote_;
};
/// Exit code and output of a shoald that has ended.
struct CommandResult {
  int exit_code = -1;
  std::string output;
};
CommandResult run_shoald(const std::string& arguments, const std::string& directory);

/// A float32 tensor of that shape; element i is first + i.
Tensor counting(const Shape& shape, float first = 0);

}  // namespace shoal::test

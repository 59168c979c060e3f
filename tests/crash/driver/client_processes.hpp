// The clients of one daemon: separate processes, each with its own history.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tests/crash/driver/checker.hpp"
#include "tests/crash/driver/plan.hpp"

namespace shoal::test {

/// Their histories are DIRECTORY/NUMBER.history, and NUMBER.killed exists for one that was. What lives is killed when destroyed.
///   Threads  thread-bound
class ClientProcesses {
 public:
  ClientProcesses(std::string daemon_directory, std::filesystem::path directory, std::vector<ClientPlan> plans,
                  PatternModels models);
  ~ClientProcesses();
  ClientProcesses(const ClientProcesses&) = delete;
  ClientProcesses& operator=(const ClientProcesses&) = delete;

  /// Starts those that are missing: one that was killed comes again, with another seed.
  void fill();
  /// One of the living, marked as killed unless the signal only stops it.
  std::optional<pid_t> pick(std::uint32_t pick, int signal);
  /// Ends all; those that do not end within a minute are killed, and their histories have no end.
  void finish();
  /// Tells one to finish what is under way and end; fill() starts another.
  void end_one(std::uint32_t pick);
  int started() const { return next_; }

 private:
  struct Living {
    pid_t pid;
    std::size_t place;
    int number;
  };
  void start(std::size_t place);
  void reap();

  std::string daemon_directory_;
  std::filesystem::path directory_;
  std::vector<ClientPlan> plans_;
  PatternModels models_;
  std::vector<Living> living_;
  int next_ = 0;
};

/// All histories in the directory.
void read_histories(const std::filesystem::path& directory, Checker& checker);

}  // namespace shoal::test

// The clients of one daemon. Each is a process with its own history.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/crash/driver/checker.hpp"
#include "tests/crash/driver/plan.hpp"

namespace shoal::test {

/// Whether this build has clients in Python (SHOAL_PYTHON). Without them, clients in C++ take their places.
bool has_python_clients();

/// Histories are DIRECTORY/NUMBER.LANGUAGE.history. NUMBER.LANGUAGE.killed exists for a client that was killed. The destructor
/// kills the others.
///   Threads  thread-bound
class ClientProcesses {
 public:
  ClientProcesses(std::string daemon_directory, std::filesystem::path directory, std::vector<ClientPlan> plans,
                  PatternModels models);
  ~ClientProcesses();
  ClientProcesses(const ClientProcesses&) = delete;
  ClientProcesses& operator=(const ClientProcesses&) = delete;

  /// Starts the missing clients, with new seeds.
  void fill();
  /// Chooses a living client, and marks it as killed unless the signal is SIGSTOP.
  std::optional<pid_t> pick(std::uint32_t pick, int signal);
  /// Ends all clients. Those that do not end within a minute are killed, so their histories have no end.
  void finish();
  /// Tells a client to finish its requests and end. fill() starts another one.
  void end_one(std::uint32_t pick);
  int started() const { return next_; }

 private:
  struct Living {
    pid_t pid;
    std::size_t place;
    std::string name;  ///< NUMBER.LANGUAGE
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

/// Reads all histories in the directory, and counts by language.
std::map<std::string, ClientCounts> read_histories(const std::filesystem::path& directory, Checker& checker);

}  // namespace shoal::test

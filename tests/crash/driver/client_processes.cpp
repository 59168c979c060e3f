#include "tests/crash/driver/client_processes.hpp"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>

#include "shm/base/check.hpp"
#include "tests/support/pool_fixture.hpp"

namespace shoal::test {
namespace {

namespace fs = std::filesystem;
using SteadyClock = std::chrono::steady_clock;
constexpr auto kPatience = std::chrono::seconds(60);

}  // namespace

ClientProcesses::ClientProcesses(std::string daemon_directory, fs::path directory, std::vector<ClientPlan> plans,
                                 PatternModels models)
    : daemon_directory_(std::move(daemon_directory)),
      directory_(std::move(directory)),
      plans_(std::move(plans)),
      models_(std::move(models)) {}

ClientProcesses::~ClientProcesses() {
  for (const Living& client : living_) ::kill(client.pid, SIGKILL), ::waitpid(client.pid, nullptr, 0);
}

void ClientProcesses::fill() {
  reap();
  for (std::size_t place = 0; place < plans_.size(); ++place) {
    if (std::ranges::find(living_, place, &Living::place) == living_.end()) start(place);
  }
}

std::optional<pid_t> ClientProcesses::pick(std::uint32_t pick, int signal) {
  reap();
  if (living_.empty()) return std::nullopt;
  const Living& victim = living_[pick % living_.size()];
  if (signal != SIGSTOP) std::ofstream(directory_ / (std::to_string(victim.number) + ".killed"));
  return victim.pid;
}

void ClientProcesses::end_one(std::uint32_t pick) {
  if (!living_.empty()) ::kill(living_[pick % living_.size()].pid, SIGTERM);
}

void ClientProcesses::finish() {
  const auto end = SteadyClock::now() + kPatience;
  for (const Living& client : living_) ::kill(client.pid, SIGCONT), ::kill(client.pid, SIGTERM);
  while (!living_.empty()) {
    if (SteadyClock::now() > end) {
      for (const Living& client : living_) ::kill(client.pid, SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    reap();
  }
}

void ClientProcesses::start(std::size_t place) {
  const int number = next_++;
  ClientPlan plan = plans_[place];
  plan.seed += static_cast<std::uint32_t>(number) * 7919;
  const std::string program = binary_directory() / "shoal-crash-client",
                    history = directory_ / (std::to_string(number) + ".history"), asked = to_json(plan).dump(),
                    models = to_json(models_).dump();
  const char* argv[] = {program.c_str(), daemon_directory_.c_str(), history.c_str(), asked.c_str(), models.c_str(), nullptr};
  pid_t pid = -1;
  SHOAL_CHECK(::posix_spawn(&pid, program.c_str(), nullptr, nullptr, const_cast<char**>(argv), environ) == 0);
  living_.push_back({pid, place, number});
}

void ClientProcesses::reap() {
  std::erase_if(living_, [](const Living& client) { return ::waitpid(client.pid, nullptr, WNOHANG) == client.pid; });
}

void read_histories(const fs::path& directory, Checker& checker) {
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.path().extension() != ".history") continue;
    std::ifstream history(entry.path());
    fs::path killed = entry.path();
    checker.read_history(history, entry.path().filename(), fs::exists(killed.replace_extension(".killed")));
  }
}

}  // namespace shoal::test

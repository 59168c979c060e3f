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

std::string program_of(Language language) {
  switch (language) {
    case Language::kCpp:
      break;
    case Language::kC:
      return binary_directory() / "shoal-crash-client-c";
    case Language::kPython:
      return binary_directory() / "shoal-crash-client-python";
  }
  return binary_directory() / "shoal-crash-client";
}

}  // namespace

bool has_python_clients() { return fs::exists(program_of(Language::kPython)); }

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
  if (signal != SIGSTOP) std::ofstream(directory_ / (victim.name + ".killed"));
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
  if (plan.language == Language::kPython && !has_python_clients()) plan.language = Language::kCpp;
  const std::string name = std::to_string(number) + "." + name_of(plan.language);
  std::vector<std::string> words{program_of(plan.language), daemon_directory_, directory_ / (name + ".history")};
  std::ranges::move(to_words(plan, models_), std::back_inserter(words));
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = -1;
  SHOAL_CHECK(::posix_spawn(&pid, argv[0], nullptr, nullptr, argv.data(), environ) == 0);
  living_.push_back({pid, place, name});
}

void ClientProcesses::reap() {
  std::erase_if(living_, [](const Living& client) { return ::waitpid(client.pid, nullptr, WNOHANG) == client.pid; });
}

std::map<std::string, ClientCounts> read_histories(const fs::path& directory, Checker& checker) {
  std::map<std::string, ClientCounts> counts;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const fs::path file = entry.path().filename();
    const bool is_history = file.extension() == ".history";
    if (!is_history && file.extension() != ".killed") continue;
    ClientCounts& count = counts[file.stem().extension().string().substr(1)];
    if (!is_history) {  // perhaps it had no history yet
      ++count.killed;
      continue;
    }
    std::ifstream history(entry.path());
    count.ok -= checker.report().ok;
    checker.read_history(history, file, fs::exists(fs::path(entry.path()).replace_extension(".killed")));
    count.ok += checker.report().ok;
  }
  return counts;
}

}  // namespace shoal::test

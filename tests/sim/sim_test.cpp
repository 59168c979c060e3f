// Runs simulated histories by seed. One that breaks a promise is made as short as possible and printed.
//   SHOAL_SIM_SECONDS  how long; default 10
//   SHOAL_SIM_BASE     a hexadecimal number: the seeds begin behind it; tools/test names the commit, so that each tries others
//   SHOAL_SIM_SEED     only this seed; its history is printed
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <random>

#include "tests/sim/world.hpp"
#include "tests/support/checkpoint.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal::test {
namespace {

using History = std::vector<Event>;

constexpr std::size_t kLength = 400;

// How often each kind of event is drawn. A history has weights of its own: some faults and wishes are left out, some events are
// multiplied, so that histories differ more than by chance.
History history_of(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<unsigned> weights(static_cast<std::size_t>(EventKind::kCount), 8);
  const auto weight = [&](EventKind kind) -> unsigned& { return weights[static_cast<std::size_t>(kind)]; };
  for (const EventKind often : {EventKind::kRequest, EventKind::kLaneTakes, EventKind::kLaneAnswers}) weight(often) = 120;
  for (const EventKind often : {EventKind::kWorkerReady, EventKind::kLoads, EventKind::kProbeAnswered, EventKind::kSearchAnswers})
    weight(often) = 60;
  weight(EventKind::kTime) = 40;
  for (const EventKind seldom : {EventKind::kLongTime, EventKind::kLoad, EventKind::kReload, EventKind::kScale, EventKind::kDrain,
                                 EventKind::kUnload, EventKind::kLoadFails, EventKind::kWorkerFails, EventKind::kSearchDies})
    weight(seldom) = 3;
  for (unsigned& one : weights) {
    const std::uint64_t change = random() % 8;
    if (change == 0 && one <= 8) one = 0;
    if (change == 1) one *= 5;
  }
  std::discrete_distribution<int> kind(weights.begin(), weights.end());
  History history = {{EventKind::kClientComes, 0},
                     {EventKind::kLoad, random()},
                     {EventKind::kSearchAnswers, 0},
                     {EventKind::kLoads, 0},
                     {EventKind::kWorkerReady, 0}};
  while (history.size() < kLength) history.push_back({static_cast<EventKind>(kind(random)), random()});
  return history;
}

struct Outcome {
  std::string broken;
  std::size_t events = 0;  // that happened
  std::size_t length = 0;  // of the history up to the event that broke a promise
};

// A check of the supervisor itself may end this process.
std::uint64_t current_seed = 0;
void name_the_seed(int) { std::cout << "the supervisor aborted (SHOAL_SIM_SEED=" << current_seed << ")\n" << std::flush; }

Outcome run(const History& history, bool prints = false) {
  static const ScratchDirectory model;
  static const bool is_written =
      (write_checkpoint(model.path(), "m", {{"_mul_scalar", "times3", {{"scalar", "3"}}, {}}}, "[-1, 4]"), true);
  EXPECT_TRUE(is_written);
  const ScratchDirectory scratch;
  World world(scratch.path(), model.path());
  Outcome outcome;
  for (const Event& event : history) {
    ++outcome.length;
    const bool has_happened = world.happen(event);
    outcome.events += has_happened;
    if (prints && has_happened) std::cout << "  " << event_name(event.kind) << ": " << world.words() << "\n";
    if (!world.broken().empty()) break;
  }
  if (world.broken().empty()) world.settle();
  outcome.broken = world.broken();
  return outcome;
}

// Leaves out parts, and then smaller parts, as long as a promise is still broken.
History shrunk(History history) {
  history.resize(run(history).length);
  for (std::size_t part = history.size() / 2; part > 0; part /= 2) {
    for (std::size_t at = 0; at < history.size();) {
      History shorter = history;
      const auto first = shorter.begin() + static_cast<std::ptrdiff_t>(at);
      shorter.erase(first, first + static_cast<std::ptrdiff_t>(std::min(part, shorter.size() - at)));
      if (run(shorter).broken.empty())
        at += part;
      else
        history = std::move(shorter);
    }
  }
  return history;
}

TEST(Simulation, EveryHistoryKeepsThePromises) {
  ::setenv("SHOAL_LOG", "off", 0);
  std::signal(SIGABRT, name_the_seed);
  const char* const one = std::getenv("SHOAL_SIM_SEED");
  const char* const seconds = std::getenv("SHOAL_SIM_SECONDS");
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(seconds ? std::atoi(seconds) : 10);
  const char* const base = std::getenv("SHOAL_SIM_BASE");
  std::uint64_t seed = one ? std::strtoull(one, nullptr, 10) : base ? (std::strtoull(base, nullptr, 16) << 24) + 1 : 1;
  std::size_t histories = 0, events = 0;
  for (bool goes_on = true; goes_on; ++seed) {
    current_seed = seed;
    const History history = history_of(seed);
    const Outcome outcome = run(history, one != nullptr);
    ++histories;
    events += outcome.events;
    goes_on = !one && std::chrono::steady_clock::now() < until;
    if (outcome.broken.empty()) continue;
    const History shortest = shrunk(history);
    std::cout << "seed " << seed << ", " << shortest.size() << " events:\n";
    ADD_FAILURE() << run(shortest, true).broken << " (SHOAL_SIM_SEED=" << seed << ")";
    return;
  }
  std::cout << histories << " histories, " << events << " events\n";
}

}  // namespace
}  // namespace shoal::test

// Runs simulated histories by seed. One that breaks a promise is made as short as possible and printed.
//   SHOAL_SIM_SECONDS  how long; default 10
//   SHOAL_SIM_BASE     a hexadecimal number: the seeds begin behind it; tools/test names the commit, so that each tries others
//   SHOAL_SIM_SEED     only this seed; its history is printed
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <random>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "tests/sim/world.hpp"
#include "tests/support/checkpoint.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal::test {
namespace {

using History = std::vector<Event>;

constexpr std::size_t kLength = 400;

bool is_even(std::uint64_t seed) { return seed % 4 == 1; }
bool is_hurried(std::uint64_t seed) { return seed % 16 == 3; }

// How often each kind of event is drawn. A history has weights of its own: some faults and wishes are left out, some events are
// multiplied, so that histories differ more than by chance.
History history_of(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<unsigned> weights(static_cast<std::size_t>(EventKind::kCount), 6);
  const auto weight = [&](EventKind kind) -> unsigned& { return weights[static_cast<std::size_t>(kind)]; };
  for (const EventKind often : {EventKind::kRequest, EventKind::kLaneTakes, EventKind::kLaneAnswers}) weight(often) = 120;
  for (const EventKind often : {EventKind::kWorkerReady, EventKind::kLoads, EventKind::kProbeAnswered, EventKind::kSearchAnswers})
    weight(often) = 60;
  for (const EventKind often : {EventKind::kTime, EventKind::kLaneBegins, EventKind::kWorkerEnds, EventKind::kWorkerCrashes})
    weight(often) = 40;
  for (const EventKind seldom : {EventKind::kLoad, EventKind::kReload, EventKind::kScale, EventKind::kLoadFails,
                                 EventKind::kWorkerFails, EventKind::kSearchDies, EventKind::kLongTime})
    weight(seldom) = 3;
  for (const EventKind seldom : {EventKind::kHangup, EventKind::kDrain, EventKind::kUnload, EventKind::kStandstill,
                                 EventKind::kLoadLies, EventKind::kSearchLies, EventKind::kControlFull, EventKind::kWorkerStuck})
    weight(seldom) = 2;
  for (unsigned& one : weights) {
    const std::uint64_t change = random() % 8;
    if (change < 4 && one <= 6) one = 0;
    if (change == 7) one *= 5;
  }
  if (random() % 2 == 0) weight(EventKind::kDrain) = weight(EventKind::kUnload) = weight(EventKind::kHangup) = 0;
  if (random() % 8 == 0) {  // the same requests are hit again and again
    weight(EventKind::kWorkerKilled) = 100;
    weight(EventKind::kLaneBegins) = weight(EventKind::kWorkerReady) = 200;
    weight(EventKind::kRequest) = 20;
    for (const EventKind never : {EventKind::kDrain, EventKind::kUnload, EventKind::kHangup, EventKind::kClientDies})
      weight(never) = 0;
  }
  if (random() % 4 == 0) weight(EventKind::kRequest) = 1000;  // more than the lanes can do
  if (is_hurried(seed)) {
    // Deadlines come near while requests wait.
    weight(EventKind::kTime) = 240;
    weight(EventKind::kWorkerEnds) = weight(EventKind::kWorkerCrashes) = 4;
  }
  std::discrete_distribution<int> kind(weights.begin(), weights.end());
  History history = {{EventKind::kClientComes, 25},
                     {EventKind::kLoad, random()},
                     {EventKind::kSearchAnswers, 0},
                     {EventKind::kLoads, 0},
                     {EventKind::kWorkerReady, 0}};
  // Of eight events: how many are the last of a turn. The supervisor receives 32 messages of clients in a turn. What others would
  // have done without a refused request is only clear if it has a turn of its own.
  const unsigned alone = seed % 8 == 2 || random() % 2 == 0 ? 8 : 1 + random() % 7;
  while (history.size() < kLength) {
    history.push_back({static_cast<EventKind>(kind(random)), random(), random() % 8 < alone || history.size() % 16 == 0});
    if (!is_hurried(seed) || history.back().kind != EventKind::kTime) continue;
    history.push_back({EventKind::kRequest, random(), false});  // the next turn finds what has become too late, and brings two
    history.push_back({EventKind::kRequest, random()});
  }
  return history;
}

// One client asks without end, others now and then. All requests are alike, and nothing fails.
History even_history_of(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  History history(3, {EventKind::kClientComes, 25});
  history.insert(history.end(), {{EventKind::kLoad, random()}, {EventKind::kLoads, 0}, {EventKind::kWorkerReady, 0}});
  constexpr EventKind kKinds[] = {EventKind::kRequest, EventKind::kRequest, EventKind::kRequest, EventKind::kLaneTakes,
                                  EventKind::kLaneAnswers};
  while (history.size() < kLength) history.push_back({kKinds[random() % std::size(kKinds)], random()});
  return history;
}

struct Outcome {
  std::string broken;
  std::size_t events = 0, workers = 0;  // that happened
  std::size_t length = 0;               // of the history up to the event that broke a promise
  std::set<std::uint64_t> refused;
  std::uint64_t trace = 0;
};

// A check of the supervisor itself may end this process.
std::uint64_t current_seed = 0;
void name_the_seed(int) { std::cout << "the supervisor aborted (SHOAL_SIM_SEED=" << current_seed << ")\n" << std::flush; }

void print(EventKind kind, const std::string& words) { std::cout << "  " << event_name(kind) << ": " << words << "\n"; }

Outcome run(const History& history, const WorldRules& rules, bool prints = false) {
  static const ScratchDirectory model, scratch;  // making one takes longer than most histories
  static const bool is_written =
      (write_checkpoint(model.path(), "m", {{"_mul_scalar", "times3", {{"scalar", "3"}}, {}}}, "[-1, 4]"), true);
  EXPECT_TRUE(is_written);
  Outcome outcome;
  try {
    World world(scratch.path(), model.path(), rules);
    for (const Event& event : history) {
      ++outcome.length;
      const bool has_happened = world.happen(event);
      outcome.events += has_happened;
      outcome.workers += has_happened && event.kind == EventKind::kWorkerReady;
      if (prints && has_happened) print(event.kind, world.words() + (event.is_last ? "" : ", and in the same turn"));
      if (!world.broken().empty()) break;
    }
    outcome.refused = world.refused();
    outcome.trace = world.trace();
    if (prints) {
      world.narrate = print;
      std::cout << "  ---- the end ----\n";
    }
    if (world.broken().empty()) world.settle();
    outcome.broken = world.broken();
  } catch (const std::exception& error) {
    outcome.broken = std::string("an exception: ") + error.what();
  }
  return outcome;
}

// Requests that are refused change nothing for others: without them all happens as it did.
Outcome run_without_refused(const History& history, bool prints) {
  Outcome outcome = run(history, {}, prints);
  if (!outcome.broken.empty() || outcome.refused.empty()) return outcome;
  const Outcome other = run(history, {.muted = outcome.refused});
  if (other.broken.empty() && other.trace != outcome.trace)
    outcome.broken = "without the requests that were refused, other things happen";
  return outcome;
}

// By its seed. Every fourth history is one of an even world, every 16th one of a hurried world; every eighth is also run without
// the requests that were refused.
Outcome run(const History& history, std::uint64_t seed, bool prints = false) {
  if (seed % 8 == 2) return run_without_refused(history, prints);
  return run(history, WorldRules{.is_even = is_even(seed), .is_hurried = is_hurried(seed)}, prints);
}

// Leaves out parts, and then smaller parts, as long as a promise is still broken.
History shrunk(History history, std::uint64_t seed) {
  history.resize(run(history, seed).length);
  for (std::size_t part = history.size() / 2; part > 0; part /= 2) {
    for (std::size_t at = 0; at < history.size();) {
      History shorter = history;
      const auto first = shorter.begin() + static_cast<std::ptrdiff_t>(at);
      shorter.erase(first, first + static_cast<std::ptrdiff_t>(std::min(part, shorter.size() - at)));
      if (run(shorter, seed).broken.empty())
        at += part;
      else
        history = std::move(shorter);
    }
  }
  return history;
}

TEST(Simulation, EveryHistoryKeepsThePromises) {
  ::setenv("SHOAL_LOG", "off", 0);
  if (std::filesystem::exists("/dev/shm")) ::setenv("TMPDIR", "/dev/shm", 0);  // a disk would take more time than all the rest
  std::signal(SIGABRT, name_the_seed);
  const char* const one = std::getenv("SHOAL_SIM_SEED");
  const char* const seconds = std::getenv("SHOAL_SIM_SECONDS");
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(seconds ? std::atoi(seconds) : 10);
  const char* const base = std::getenv("SHOAL_SIM_BASE");
  std::uint64_t seed = one ? std::strtoull(one, nullptr, 10) : base ? (std::strtoull(base, nullptr, 16) << 24) + 1 : 1;
  std::size_t histories = 0, events = 0, workers = 0;
  for (bool goes_on = true; goes_on; ++seed) {
    current_seed = seed;
    const History history = is_even(seed) ? even_history_of(seed) : history_of(seed);
    const Outcome outcome = run(history, seed, one != nullptr);
    ++histories;
    events += outcome.events;
    workers += outcome.workers;
    goes_on = !one && std::chrono::steady_clock::now() < until;
    if (outcome.broken.empty()) continue;
    const History shortest = shrunk(history, seed);
    std::cout << "seed " << seed << ", " << shortest.size() << " events:\n";
    ADD_FAILURE() << run(shortest, seed, true).broken << " (SHOAL_SIM_SEED=" << seed << ")";
    return;
  }
  std::cout << histories << " histories, " << events << " events, " << workers << " workers became ready\n";
  if (!one) EXPECT_GT(workers, histories);  // models are found and loaded
}

using Step = std::pair<Event, std::string_view>;  // and its words

void tell(World& world, std::span<const Step> story) {
  for (const auto& [event, words] : story) {
    ASSERT_TRUE(world.happen(event)) << event_name(event.kind) << ": " << world.broken();
    ASSERT_EQ(world.words().substr(0, words.size()), words) << event_name(event.kind);
    ASSERT_EQ(world.broken(), "");
  }
}

// Histories by seed seldom come here: a version that comes gets fewer workers, and the one that answers its probe becomes
// surplus.
TEST(Simulation, ASurplusWorkerThatEndsWhileItAnswersTheProbeFailsNoVersion) {
  ::setenv("SHOAL_LOG", "off", 0);
  const ScratchDirectory model, scratch;
  write_checkpoint(model.path(), "m", {{"_mul_scalar", "times3", {{"scalar", "3"}}, {}}}, "[-1, 4]");
  World world(scratch.path(), model.path());
  constexpr std::uint64_t kReloadWithTwo = 48, kScaleToOne = 0, kFirst = 1, kSecond = 17;  // kFirst, kSecond: of what comes
  const Step story[] = {{{EventKind::kLoad}, "a"},
                        {{EventKind::kSearchAnswers}, ""},
                        {{EventKind::kLoads}, "a"},
                        {{EventKind::kWorkerReady}, "worker 1 of a"},
                        {{EventKind::kReload, kReloadWithTwo}, "a"},
                        {{EventKind::kSearchAnswers}, ""},
                        {{EventKind::kLoads}, "a"},
                        {{EventKind::kScale, kScaleToOne}, "a"},
                        {{EventKind::kWorkerReady, kSecond}, "worker 3 of a"},
                        {{EventKind::kWorkerReady, kFirst}, "worker 2 of a"},
                        {{EventKind::kWorkerEnds, kSecond}, "worker 3 of a exits"},
                        {{EventKind::kProbeAnswered, kFirst}, "worker 2 of a"}};
  tell(world, story);
  std::string end;
  world.narrate = [&](EventKind, const std::string& words) { end += words + "\n"; };
  world.settle();
  EXPECT_EQ(world.broken(), "");
  EXPECT_NE(end.find("wish 2: OK"), std::string::npos) << end;
}

TEST(Simulation, AWorkerThatDoesNotDieHoldsUpNoScaleAndNoDrain) {
  ::setenv("SHOAL_LOG", "off", 0);
  const ScratchDirectory model, scratch;
  write_checkpoint(model.path(), "m", {{"_mul_scalar", "times3", {{"scalar", "3"}}, {}}}, "[-1, 4]");
  World world(scratch.path(), model.path());
  constexpr std::uint64_t kStopped = 256, kHalfAMinute = 9, kToTwo = 3, kSecond = 16;
  const Step story[] = {{{EventKind::kClientComes, 25}, ""},
                        {{EventKind::kLoad}, "a"},
                        {{EventKind::kSearchAnswers}, ""},
                        {{EventKind::kLoads}, "a"},
                        {{EventKind::kWorkerReady}, "worker 1 of a"},
                        {{EventKind::kRequest}, "client 1 asks a"},
                        {{EventKind::kPaceChanges, kStopped}, "worker 1: stopped"},
                        {{EventKind::kLongTime, kHalfAMinute}, ""},
                        {{EventKind::kWorkerStuck}, "worker 1 of a"},
                        {{EventKind::kWorkerReady}, "worker 2 of a"},
                        {{EventKind::kScale, kToTwo}, "a"},
                        {{EventKind::kWorkerReady, kSecond}, "worker 3 of a; wish 2: OK"},
                        {{EventKind::kDrain}, "a"},
                        {{EventKind::kLongTime, kHalfAMinute}, ""},
                        {{EventKind::kLongTime, kHalfAMinute}, "; wish 3: FAILED_PRECONDITION"}};
  tell(world, story);
  world.settle();
  EXPECT_EQ(world.broken(), "");
}

}  // namespace
}  // namespace shoal::test

#include "tests/crash/step/walk.hpp"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/crash/step/tracee.hpp"
#include "tests/support/pool_fixture.hpp"

namespace shoal::test {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::size_t kKills = 400;       // how many kills to try at most
constexpr std::size_t kCostlyKills = 40;  // and where each needs a start

/// The instructions to kill at: every stride-th, from another one for each commit.
struct Sample {
  std::size_t first = 0, stride = 1;
};

Sample sample_of(std::size_t instructions, bool is_costly) {
  if (std::getenv("SHOAL_TEST_LONG")) return {};
  const std::size_t most = is_costly ? kCostlyKills : kKills, stride = std::max<std::size_t>(1, (instructions + most - 1) / most);
  const char* const commit = std::getenv("SHOAL_SIM_BASE");
  return {.first = commit ? std::strtoull(commit, nullptr, 16) % stride : 0, .stride = stride};
}

/// Stops the watchdog, so that it does not end the victim while that is stopped.
class QuietWatchdog {
 public:
  explicit QuietWatchdog(pid_t pid) : pid_(pid) { send(SIGSTOP); }
  ~QuietWatchdog() { send(SIGCONT); }
  QuietWatchdog(const QuietWatchdog&) = delete;
  QuietWatchdog& operator=(const QuietWatchdog&) = delete;

 private:
  void send(int signal) const {
    if (pid_ > 0) ::kill(pid_, signal);
  }
  const pid_t pid_;
};

/// Lets the victim run to the function's first instruction. Returns false when it does not get there.
bool enter(Tracee& tracee, std::uint64_t entry, Scenario& scenario) {
  tracee.run_to(entry);
  scenario.provoke();
  bool is_there = tracee.wait();
  for (int i = 1; is_there && i < scenario.entries(); ++i) {
    tracee.run_to(entry);
    is_there = tracee.wait();
  }
  return is_there;
}

}  // namespace

Walk kill_everywhere(const std::string& function, Scenario& scenario) {
  Walk walk;
  const auto start = SteadyClock::now();
  std::vector<std::uint64_t> instructions;
  std::uint64_t base = 0;
  {
    const Victim victim = scenario.next();
    Tracee tracee(victim.tid, victim.is_ours);
    const Symbols symbols(tracee);
    base = symbols.address(function);
    if (testing::Test::HasFailure()) return walk;
    if (!enter(tracee, base, scenario)) {
      ADD_FAILURE() << "nothing enters " << function;
      return walk;
    }
    {
      const QuietWatchdog quiet(scenario.watchdog());
      instructions = tracee.walk_to_return(symbols);
      tracee.kill_process(victim.pid);
    }
    scenario.after_death();
  }
  walk.instructions = instructions.size();
  const Sample sample = sample_of(instructions.size(), scenario.is_costly());
  walk.planned = (instructions.size() - sample.first + sample.stride - 1) / sample.stride;
  for (std::size_t i = sample.first; i < instructions.size() && !testing::Test::HasFailure(); i += sample.stride) {
    const Victim victim = scenario.next();
    Tracee tracee(victim.tid, victim.is_ours);
    const Symbols symbols(tracee);
    const std::uint64_t entry = symbols.address(function), last = instructions[i] - base + entry;
    if (!enter(tracee, entry, scenario)) {
      ADD_FAILURE() << "nothing enters " << function << " before kill " << i;
      return walk;
    }
    {
      const QuietWatchdog quiet(scenario.watchdog());
      if (last != entry) {
        // The victim may take another way through the function than the first one. Then it gets to the return address, or it
        // ends: it may enter the function again, or the watchdog saw it stopped just before.
        tracee.run_to(last, scenario.ends_by_itself() ? 0 : tracee.return_address());
        if (!tracee.wait() && !scenario.ends_by_itself() && is_alive(victim.pid))
          ADD_FAILURE() << "the victim neither returned nor got to instruction " << i;
        walk.elsewhere += tracee.instruction() != last;
      }
      tracee.kill_process(victim.pid);
    }
    ++walk.kills;
    scenario.after_death();
    if (testing::Test::HasFailure())
      std::printf("after kill %zu of %zu, of which every %zu-th is tried, at %s+0x%lx\n", i, instructions.size(), sample.stride,
                  function.c_str(), last - entry);
  }
  const double seconds = std::chrono::duration<double>(SteadyClock::now() - start).count();
  std::printf("%-50s %5zu instructions, %5zu kills (%zu elsewhere), %.0f a second\n", function.c_str(), instructions.size(),
              walk.kills, walk.elsewhere, static_cast<double>(walk.kills) / seconds);
  return walk;
}

}  // namespace shoal::test

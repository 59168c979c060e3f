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

constexpr std::size_t kSample = 40;  // of the kills that cost a start each

/// Stands still itself, so that it does not end the victim before its time.
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

/// Leads it to the function's first instruction.
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

void kill_everywhere(const std::string& function, Scenario& scenario) {
  const auto start = SteadyClock::now();
  std::vector<std::uint64_t> instructions;
  std::uint64_t base = 0;
  {
    const Victim victim = scenario.next();
    const Symbols symbols(victim.pid);
    base = symbols.address(function);
    ASSERT_NE(base, 0u);
    Tracee tracee(victim.tid, victim.is_ours);
    ASSERT_TRUE(enter(tracee, base, scenario)) << "nothing enters " << function;
    {
      const QuietWatchdog quiet(scenario.watchdog());
      instructions = tracee.walk_to_return(symbols);
      tracee.kill_process(victim.pid);
    }
    scenario.after_death();
  }
  ASSERT_GT(instructions.size(), 5u) << function;
  std::size_t stride = 1, kills = 0, missed = 0;
  if (scenario.is_costly() && !std::getenv("SHOAL_TEST_LONG")) stride = std::max<std::size_t>(1, instructions.size() / kSample);
  for (std::size_t i = 0; i < instructions.size() && !testing::Test::HasFailure(); i += stride) {
    const Victim victim = scenario.next();
    const Symbols symbols(victim.pid);
    const std::uint64_t entry = symbols.address(function), last = instructions[i] - base + entry;
    Tracee tracee(victim.tid, victim.is_ours);
    ASSERT_TRUE(enter(tracee, entry, scenario)) << "nothing enters " << function << " before kill " << i;
    {
      const QuietWatchdog quiet(scenario.watchdog());
      if (last != entry) {
        // Another way than the first victim's ends at the return; or with the victim, which may enter the function again, or
        // which the watchdog saw standing just now.
        tracee.run_to(last, scenario.ends_by_itself() ? 0 : tracee.return_address());
        if (!tracee.wait() && !scenario.ends_by_itself() && is_alive(victim.pid))
          ADD_FAILURE() << "the victim neither returned nor got to instruction " << i;
        missed += tracee.instruction() != last;
      }
      tracee.kill_process(victim.pid);
    }
    ++kills;
    scenario.after_death();
    if (testing::Test::HasFailure())
      std::printf("after kill %zu of %zu, at %s+0x%lx\n", i, instructions.size(), function.c_str(), last - entry);
  }
  const double seconds = std::chrono::duration<double>(SteadyClock::now() - start).count();
  std::printf("%-50s %5zu instructions, %5zu kills (%zu elsewhere), %.0f a second\n", function.c_str(), instructions.size(),
              kills, missed, static_cast<double>(kills) / seconds);
  EXPECT_LT(missed, kills / 4 + 2) << "most kills should fall where they were meant to";
}

}  // namespace shoal::test

// Kills processes at every instruction of a function.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>

namespace shoal::test {

/// A thread that will enter the function after Scenario::provoke().
struct Victim {
  pid_t pid = -1, tid = -1;
  bool is_ours = false;  ///< comes from a BirthTrap
};

/// How the victims of one function are made, provoked and survived.
class Scenario {
 public:
  virtual ~Scenario() = default;
  virtual Victim next() = 0;       ///< makes a new victim
  virtual void provoke() = 0;      ///< makes it enter the function, soon
  virtual void after_death() = 0;  ///< checks what must hold now
  virtual bool is_costly() const { return false; }
  virtual pid_t watchdog() const { return 0; }           ///< the process that ends stopped processes; 0 = none
  virtual bool ends_by_itself() const { return false; }  ///< the victim's process ends soon after the function
  virtual int entries() const { return 1; }              ///< the victim is killed in this call; 1 = the first
};

/// What kill_everywhere() did.
struct Walk {
  std::size_t instructions = 0;  ///< of the function, as the first victim executed it
  std::size_t planned = 0;       ///< kills that were to be tried: as many as instructions, or the sample
  std::size_t kills = 0;         ///< kills that were tried; less than planned when the test has failed
  std::size_t elsewhere = 0;     ///< kills at another instruction than the planned one
};

/// Kills one victim at every instruction of the function, calls Scenario::after_death() after each kill, and prints and returns
/// the numbers. Stops at the first failure of the test.
///
/// The first victim is single-stepped through the function. Each of the program's own instructions that it executes is then the
/// last one of another victim. A call of a shared library counts as one instruction, because others can see only its system
/// calls. Of a long function, and where each victim needs a start, an even sample is tried, unless SHOAL_TEST_LONG is in the
/// environment.
Walk kill_everywhere(const std::string& function, Scenario& scenario);

}  // namespace shoal::test

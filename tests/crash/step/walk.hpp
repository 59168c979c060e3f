// Every instruction of a function once the last that its process executes.
#pragma once

#include <sys/types.h>

#include <string>

namespace shoal::test {

/// A thread that will enter the function when it is provoked.
struct Victim {
  pid_t pid = -1, tid = -1;
  bool is_ours = false;  ///< a BirthTrap's
};

/// What the victims of one function, and those that live on, have in common.
class Scenario {
 public:
  virtual ~Scenario() = default;
  virtual Victim next() = 0;       ///< a fresh victim
  virtual void provoke() = 0;      ///< makes it enter the function, soon
  virtual void after_death() = 0;  ///< what must hold now
  virtual bool is_costly() const { return false; }
  virtual pid_t watchdog() const { return 0; }           ///< the process that ends what stands still
  virtual bool ends_by_itself() const { return false; }  ///< its process ends soon after the function
  virtual int entries() const { return 1; }              ///< the last of so many calls is the one
};

/// Kills at every instruction; prints how many there were.
///
/// The first victim of the function is led through it step by step; what it executes of the program itself is the list of the
/// others' last instructions. A call of a shared library counts as one instruction: others see nothing of it but a system call.
/// SHOAL_TEST_LONG in the environment: all of them also where each costs a start; else an even sample of those.
void kill_everywhere(const std::string& function, Scenario& scenario);

}  // namespace shoal::test

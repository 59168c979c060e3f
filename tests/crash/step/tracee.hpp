// One thread of another process, stopped at any of its instructions: ptrace, with the processor's breakpoints, which no other
// thread of the process meets.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace shoal::test {

/// Where the functions of a process are, as its own program file and /proc say.
///   Threads  immutable
class Symbols {
 public:
  explicit Symbols(pid_t pid);
  /// Of the function with that name, without its arguments: "shoal::worker::Lane::answer". Fails the test when there is none.
  std::uint64_t address(const std::string& function) const;
  /// Whether the instruction belongs to the program itself, not to a shared library.
  bool is_own(std::uint64_t address) const { return text_begin_ <= address && address < text_end_; }

 private:
  const std::map<std::string, std::uint64_t>* functions_ = nullptr;  ///< by name, as in the file; read once a file
  std::uint64_t base_ = 0, text_begin_ = 0, text_end_ = 0;
};

/// Stops the next child of a process before its first instruction.
///   Threads  thread-bound: the kernel's rule
class BirthTrap {
 public:
  explicit BirthTrap(pid_t parent);
  ~BirthTrap();
  BirthTrap(const BirthTrap&) = delete;
  BirthTrap& operator=(const BirthTrap&) = delete;
  /// The child, for a Tracee: stopped, and traced by this thread. The parent goes on alone. -1 after a minute.
  ///   until_exec  led on until it has executed another program
  pid_t wait(bool until_exec = false);

 private:
  pid_t parent_;
};

/// Stops the thread when made; lets it go when destroyed.
///   Threads  thread-bound: the kernel's rule
class Tracee {
 public:
  /// `is_ours`: a BirthTrap's.
  explicit Tracee(pid_t tid, bool is_ours = false);
  ~Tracee();
  Tracee(const Tracee&) = delete;
  Tracee& operator=(const Tracee&) = delete;

  /// Lets the thread run until it is about to execute one of these instructions (0: none). Signals reach it meanwhile.
  void run_to(std::uint64_t address, std::uint64_t other = 0);
  /// Waits for that; false when the thread died or a minute is over.
  bool wait();
  /// Where it stands.
  std::uint64_t instruction() const;
  /// From a function's first instruction to its return: every instruction of the program itself, in the order they are first met.
  /// A call of a shared library is one step. The thread stands at the return address then; nothing when it died before.
  std::vector<std::uint64_t> walk_to_return(const Symbols& symbols);
  /// The address to which the function returns whose first instruction it is at.
  std::uint64_t return_address() const;
  /// SIGKILL to the process, and waits for the thread's end.
  void kill_process(pid_t pid);

 private:
  bool step();
  void resume(int request, int signal);
  std::uint64_t stack_pointer() const;

  pid_t tid_;
  bool is_alive_ = true, is_stopped_ = false;
  int pending_signal_ = 0;
};

/// Keeps a thread from ending, so that its process does not die, however it was killed: it is held in the kernel, at its exit,
/// until this is destroyed.
///   Threads  thread-bound
class ExitHold {
 public:
  explicit ExitHold(pid_t tid);
  ~ExitHold();
  ExitHold(const ExitHold&) = delete;
  ExitHold& operator=(const ExitHold&) = delete;
  /// Waits until the thread is held; false after a minute.
  bool wait() const;

 private:
  pid_t tid_;
};

}  // namespace shoal::test

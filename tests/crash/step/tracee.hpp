// Stops one thread of another process at any of its instructions, with ptrace and the processor's breakpoints. No other thread of
// the process meets these breakpoints.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace shoal::test {

/// Stops the next child of a process before its first instruction, whichever of its threads forks: the one it has, or one that
/// starts meanwhile.
///   Threads  thread-bound, because the kernel wants it
class BirthTrap {
 public:
  explicit BirthTrap(pid_t parent);
  ~BirthTrap();
  BirthTrap(const BirthTrap&) = delete;
  BirthTrap& operator=(const BirthTrap&) = delete;
  /// The child, for a Tracee: stopped, and traced by this thread. The parent goes on alone. -1 after a minute.
  ///   argument  if not empty: waits for a child that executes a program with this argument, and stops it there. Others go on.
  pid_t wait(const std::string& argument = "");

 private:
  pid_t next_child();

  std::vector<pid_t> parents_;  ///< threads that are traced
};

class Symbols;

/// Stops a thread. The destructor lets it continue.
///   Threads  thread-bound, because the kernel wants it
class Tracee {
 public:
  ///   is_ours  the thread comes from a BirthTrap: it is stopped and traced already
  explicit Tracee(pid_t tid, bool is_ours = false);
  ~Tracee();
  Tracee(const Tracee&) = delete;
  Tracee& operator=(const Tracee&) = delete;

  pid_t thread() const { return tid_; }
  /// Lets the thread run until it is about to execute one of these instructions (0 = none). It receives signals meanwhile.
  void run_to(std::uint64_t address, std::uint64_t other = 0);
  /// Waits until it gets there. Returns false when the thread dies, or after a minute.
  bool wait();
  /// The address of its next instruction.
  std::uint64_t instruction() const;
  /// Steps from a function's first instruction to its return address. Returns the program's own instructions in the order in
  /// which they were first executed; a call of a shared library is one step. Returns nothing when the thread died.
  std::vector<std::uint64_t> walk_to_return(const Symbols& symbols);
  /// The return address, when the thread is at a function's first instruction.
  std::uint64_t return_address() const;
  /// Sends SIGKILL to the process and waits until the thread has ended.
  void kill_process(pid_t pid);

 private:
  bool step();
  void resume(int request, int signal);
  std::uint64_t stack_pointer() const;

  pid_t tid_;
  bool is_alive_ = true, is_stopped_ = false;
  int pending_signal_ = 0;
};

/// Where the functions of a stopped thread's process are, as its own program file and /proc say.
///
/// It takes a Tracee and not a pid, because a process in the middle of execve() already has the new program's name in
/// /proc/PID/exe, and its mappings not yet. A stopped thread is not in the middle of a system call.
///   Threads  immutable
class Symbols {
 public:
  explicit Symbols(const Tracee& stopped);
  /// The address of the function with that name, without its arguments: "shoal::worker::Lane::answer". Fails the test and returns
  /// 0 when the program has no such function.
  std::uint64_t address(const std::string& function) const;
  /// Whether the instruction belongs to the program itself, not to a shared library.
  bool is_own(std::uint64_t address) const { return text_begin_ <= address && address < text_end_; }

 private:
  const std::map<std::string, std::uint64_t>* functions_ = nullptr;  ///< by name, as in the file; each file is read once
  std::uint64_t base_ = 0, text_begin_ = 0, text_end_ = 0;
};

/// Holds a thread at its exit until this is destroyed. Until then its process is not dead, even after SIGKILL.
///   Threads  thread-bound
class ExitHold {
 public:
  explicit ExitHold(pid_t tid);
  ~ExitHold();
  ExitHold(const ExitHold&) = delete;
  ExitHold& operator=(const ExitHold&) = delete;
  /// Waits until the thread is at its exit. Returns false after a minute.
  bool wait() const;

 private:
  pid_t tid_;
};

}  // namespace shoal::test

// What every command shares of talking to its user: exit codes, one line per error, warnings after it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "shoal/status.hpp"

namespace shoal::tool {

/// A contract: scripts rely on these.
enum ExitCode {
  kSuccess = 0,
  kAtFault = 1,  ///< the request or a file is at fault
  kUsage = 2,
  kNotAvailable = 3,  ///< no daemon, or it does not have the model (now)
};

/// How a command ended. A Status that is not OK ends it with kAtFault.
struct Finish {
  Finish() = default;
  Finish(Status why)
      : status(std::move(why)),
        code(status.ok() ? kSuccess : kAtFault) {}  // NOLINT(google-explicit-constructor): `return status;`
  Finish(Status why, ExitCode exit_code) : status(std::move(why)), code(exit_code) {}

  Status status;
  ExitCode code = kSuccess;
};

/// The end of a command whose request the daemon did not carry out: kNotAvailable where it lies with the daemon (no daemon, no
/// such model, overload), else kAtFault. A Status that is OK is a success.
Finish daemon_failure(Status why);
/// The end of a command that was called wrongly.
Finish usage_failure(Status why);

/// For CLI11's check(): what is wrong with an empty text.
std::string not_empty(const std::string& text);

/// Standard output and standard error of one command.
///   Threads  thread-bound
class Console {
 public:
  /// Printed when the command ends, after its error: the first line of standard error is the error's.
  void warn(std::string line) { warnings_.push_back(std::move(line)); }
  /// Libraries that print to stderr (image decoders) come after our own line, too.
  void hold_library_messages();
  /// Prints error and warnings. Returns the exit code.
  int finish(const Finish& finish);

 private:
  std::vector<std::string> warnings_;
};

/// Says on a terminal how far a command is that takes longer than a second.
///   Threads  thread-bound
class Progress {
 public:
  explicit Progress(std::string what, std::size_t total = 0);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void show(std::size_t done);
  /// Where there is nothing to count: what is going on, and for how many seconds.
  void show(const std::string& state);

 private:
  bool is_time();

  std::string what_;
  std::size_t total_;
  std::uint64_t started_ns_, shown_ns_;
  bool is_terminal_, is_visible_ = false;
};

/// Lines with their columns aligned: `rows` of texts, each row as long as the first; numbers (right_aligned) to the right.
std::string align_columns(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& right_aligned);
/// "12.3 MB".
std::string format_bytes(std::uint64_t bytes);

}  // namespace shoal::tool

// Output of commands: exit codes, one line per error, then warnings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "shoal/status.hpp"

namespace shoal::tool {

/// Scripts rely on these numbers.
enum ExitCode {
  kSuccess = 0,
  kAtFault = 1,  ///< the request or a file is at fault
  kUsage = 2,
  kNotAvailable = 3,  ///< no daemon, it does not answer, or the model is not available
};

/// The end of a command. A Status that is not OK means kAtFault.
struct Finish {
  Finish() = default;
  Finish(Status why)
      : status(std::move(why)),
        code(status.ok() ? kSuccess : kAtFault) {}  // NOLINT(google-explicit-constructor): `return status;`
  Finish(Status why, ExitCode exit_code) : status(std::move(why)), code(exit_code) {}

  Status status;
  ExitCode code = kSuccess;
};

/// The end of a command whose request the daemon did not carry out: kNotAvailable if the daemon is the cause (no daemon, no
/// answer, overload), else kAtFault: also if it has no such model, because that does not pass. An OK Status is a success.
Finish daemon_failure(Status why);
/// The end of a command with wrong arguments.
Finish usage_failure(Status why);

/// The end of a command that cannot start a thread.
Finish no_thread(const std::system_error& why);

/// For CLI11's check(): an error message if the text is empty.
std::string not_empty(const std::string& text);
/// Likewise, if the text is "nan", which no range excludes.
std::string not_nan(const std::string& text);

/// Standard output and standard error of one command.
///   Threads  thread-bound
class Console {
 public:
  /// Prints the warning at the end, after the error, because the first line of stderr is the error.
  void warn(std::string line) { warnings_.push_back(std::move(line)); }
  /// Delays what libraries print to stderr (image decoders) until after the error.
  void hold_library_messages();
  /// Prints error and warnings. Returns the exit code.
  int finish(const Finish& finish);

 private:
  std::vector<std::string> warnings_;
};

/// Shows progress on a terminal if a command takes longer than a second.
///   Threads  thread-bound
class Progress {
 public:
  explicit Progress(std::string what, std::size_t total = 0);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void show(std::size_t done);
  /// Without a count: shows a text and the seconds so far. Asks for the text only if it is time to show it.
  void show(const std::function<std::string()>& state);

 private:
  bool is_time();

  std::string what_;
  std::size_t total_;
  std::uint64_t started_ns_, shown_ns_;
  bool is_terminal_, is_visible_ = false;
};

/// The UTF-8 text with '?' for each control character but '\n', so that names from models and peers cannot steer a terminal.
std::string printable(std::string text);
/// Lines with aligned columns, printable. All rows have the same length; `right_aligned` says which columns are aligned to the
/// right.
std::string align_columns(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& right_aligned);
/// printf() of one number.
std::string number_text(double number, const char* pattern);
/// "12.3 MB".
std::string format_bytes(std::uint64_t bytes);

/// Replaces a file by these bytes. Errors: those of writing (names the file).
Status write_file(const std::filesystem::path& file, std::string_view bytes);

}  // namespace shoal::tool

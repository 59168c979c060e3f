// Log lines on stderr: an event, then key=value pairs. Only shm/log uses spdlog.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "shm/log/log_line.hpp"

namespace spdlog {
class logger;
}

namespace shoal {

enum class LogLevel { kDebug, kInfo, kWarn, kError, kOff };
/// kDirect writes each line before it returns: for children, which may die at any moment. kDropping passes lines to a thread and
/// drops the oldest line when stderr stalls: for the supervisor, which must not wait for the reader of its log.
enum class LogMode { kDirect, kDropping };

/// Reads "debug", "info", "warn", "error" or "off" from $SHOAL_LOG. The default is info.
LogLevel log_level_from_environment();
/// Reads "json" or "text" from $SHOAL_LOG_FORMAT. The default is text. A JSON line is one object: time, level, component and
/// process of the writer, event, and the event's fields.
LogFormat log_format_from_environment();

/// A named logger. Each component has one.
///   Threads  thread-safe
class Logger {
 public:
  explicit Logger(std::string name, LogMode mode = LogMode::kDirect);
  ~Logger();  ///< kDropping: waits for at most a second until the lines are written; the others are lost
  Logger(const Logger&) = delete;
  Logger& operator=(const Logger&) = delete;

  template <typename... Args>
  void debug(std::string_view pattern, const Args&... args) {
    write(LogLevel::kDebug, pattern, args...);
  }
  template <typename... Args>
  void info(std::string_view pattern, const Args&... args) {
    write(LogLevel::kInfo, pattern, args...);
  }
  template <typename... Args>
  void warn(std::string_view pattern, const Args&... args) {
    write(LogLevel::kWarn, pattern, args...);
  }
  template <typename... Args>
  void error(std::string_view pattern, const Args&... args) {
    write(LogLevel::kError, pattern, args...);
  }

 private:
  template <typename... Args>
  void write(LogLevel level, std::string_view pattern, const Args&... args) {
    if (level < level_) return;
    const std::array<LogArgument, sizeof...(args)> arguments{log_argument(args)...};
    write_line(level, log_line(format_, pattern, arguments));
  }
  void write_line(LogLevel level, const std::string& line);

  class Sink;
  LogLevel level_;
  LogFormat format_;
  std::shared_ptr<Sink> sink_;
  std::shared_ptr<spdlog::logger> logger_;
};

}  // namespace shoal

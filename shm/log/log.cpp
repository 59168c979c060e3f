#include "shm/log/log.hpp"

#include <spdlog/async.h>
#include <spdlog/async_logger.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>

#include "shm/base/mutex.hpp"

namespace shoal {

/// Writes to the descriptor and not to stdio's stderr: since glibc 2.37 exit() waits for a thread that is stuck in the latter.
class Logger::Sink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  /// Waits until the logger's flush() has come through its queue: all lines before it are written.
  void wait_until_flushed(std::chrono::steady_clock::time_point until) SHOAL_EXCLUDES(flushed_mutex_) {
    const MutexLock lock(flushed_mutex_);
    while (!is_flushed_ && flushed_.wait_until(flushed_mutex_, until)) continue;
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    for (std::size_t written = 0; written < line.size();) {
      const ssize_t size = ::write(STDERR_FILENO, line.data() + written, line.size() - written);
      if (size < 0 && errno != EINTR) return;
      if (size > 0) written += static_cast<std::size_t>(size);
    }
  }
  void flush_() override SHOAL_EXCLUDES(flushed_mutex_) {
    const MutexLock lock(flushed_mutex_);
    is_flushed_ = true;
    flushed_.notify_one();
  }

 private:
  Mutex flushed_mutex_;
  Condition flushed_;
  bool is_flushed_ SHOAL_GUARDED_BY(flushed_mutex_) = false;
};

namespace {

constexpr std::size_t kQueuedLines = 8192;
constexpr std::chrono::seconds kFlushLimit{1};

// Never destroyed: that would wait for a thread that may be stuck in write().
const std::shared_ptr<spdlog::details::thread_pool>& log_thread() {
  static const auto* const thread = new auto(std::make_shared<spdlog::details::thread_pool>(kQueuedLines, 1));
  return *thread;
}

std::shared_ptr<spdlog::logger> make_logger(std::string name, spdlog::sink_ptr sink, LogMode mode, LogFormat format) {
  std::shared_ptr<spdlog::logger> logger;
  if (mode == LogMode::kDropping) {
    logger = std::make_shared<spdlog::async_logger>(std::move(name), std::move(sink), log_thread(),
                                                    spdlog::async_overflow_policy::overrun_oldest);
  } else {
    logger = std::make_shared<spdlog::logger>(std::move(name), std::move(sink));
  }
  logger->set_level(spdlog::level::trace);
  logger->set_pattern(format == LogFormat::kJson
                          ? R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","component":"%n","process":%P,%v})"
                          : "%Y-%m-%dT%H:%M:%S.%e %l %n[%P] %v");
  return logger;
}

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::err;
}

}  // namespace

LogLevel log_level_from_environment() {
  const char* text = std::getenv("SHOAL_LOG");
  const std::string_view level = text ? text : "info";
  if (level == "debug") return LogLevel::kDebug;
  if (level == "warn") return LogLevel::kWarn;
  if (level == "error") return LogLevel::kError;
  if (level == "off") return LogLevel::kOff;
  return LogLevel::kInfo;
}

LogFormat log_format_from_environment() {
  const char* text = std::getenv("SHOAL_LOG_FORMAT");
  return text && std::string_view(text) == "json" ? LogFormat::kJson : LogFormat::kText;
}

Logger::Logger(std::string name, LogMode mode)
    : level_(log_level_from_environment()),
      format_(log_format_from_environment()),
      sink_(std::make_shared<Sink>()),
      logger_(make_logger(std::move(name), sink_, mode, format_)) {}

Logger::~Logger() {
  logger_->flush();
  sink_->wait_until_flushed(std::chrono::steady_clock::now() + kFlushLimit);
}

void Logger::write_line(LogLevel level, const std::string& line) {
  // The line is an argument, not the pattern, because names of models and files may contain braces.
  logger_->log(spdlog_level(level), "{}", line);
}

}  // namespace shoal

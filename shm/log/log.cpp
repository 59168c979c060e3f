#include "shm/log/log.hpp"

#include <spdlog/async.h>
#include <spdlog/async_logger.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>

namespace shoal {
namespace {

constexpr std::size_t kQueuedLines = 8192;

std::shared_ptr<spdlog::logger> make_sink(std::string name, LogMode mode, LogFormat format) {
  auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  std::shared_ptr<spdlog::logger> logger;
  if (mode == LogMode::kDropping) {
    if (!spdlog::thread_pool()) spdlog::init_thread_pool(kQueuedLines, 1);
    logger = std::make_shared<spdlog::async_logger>(std::move(name), std::move(sink), spdlog::thread_pool(),
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
  return LogLevel::kInfo;
}

LogFormat log_format_from_environment() {
  const char* text = std::getenv("SHOAL_LOG_FORMAT");
  return text && std::string_view(text) == "json" ? LogFormat::kJson : LogFormat::kText;
}

Logger::Logger(std::string name, LogMode mode)
    : level_(log_level_from_environment()),
      format_(log_format_from_environment()),
      sink_(make_sink(std::move(name), mode, format_)) {}
Logger::~Logger() { sink_->flush(); }

void Logger::write_line(LogLevel level, const std::string& line) {
  // The line is an argument, not the pattern, because names of models and files may contain braces.
  sink_->log(spdlog_level(level), "{}", line);
}

}  // namespace shoal

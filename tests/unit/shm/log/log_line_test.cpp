#include "shm/log/log_line.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "shm/log/log.hpp"

namespace shoal {
namespace {

template <typename... Args>
std::string text(std::string_view pattern, const Args&... args) {
  const std::array<LogArgument, sizeof...(args)> arguments{log_argument(args)...};
  return log_line(LogFormat::kText, pattern, arguments);
}
template <typename... Args>
nlohmann::json parsed(std::string_view pattern, const Args&... args) {
  const std::array<LogArgument, sizeof...(args)> arguments{log_argument(args)...};
  return nlohmann::json::parse("{" + log_line(LogFormat::kJson, pattern, arguments) + "}");
}

TEST(LogLine, TextIsThePatternWithItsArguments) {
  EXPECT_EQ(text("serving directory={} models={} pid={}", "/tmp/x", 2, 77), "serving directory=/tmp/x models=2 pid=77");
  EXPECT_EQ(text("draining reason=\"{}\"", "signal 15"), "draining reason=\"signal 15\"");
  EXPECT_EQ(text("killed reason=\"left a command unanswered\" pid={}", 7), "killed reason=\"left a command unanswered\" pid=7");
}

TEST(LogLine, JsonKeepsNumbersAndJoinsWords) {
  EXPECT_EQ(parsed("worker_died model={} pid={} what=\"signal {} at {}\"", "resnet", 77, 11, "0x0"),
            (nlohmann::json{{"event", "worker_died"}, {"model", "resnet"}, {"pid", 77}, {"what", "signal 11 at 0x0"}}));
  EXPECT_EQ(parsed("e a={} b={} c={}", 18'446'744'073'709'551'615ull, -1.5, true),
            (nlohmann::json{{"event", "e"}, {"a", 18'446'744'073'709'551'615ull}, {"b", -1.5}, {"c", 1}}));
  EXPECT_EQ(parsed("e a={}", std::nan(""))["a"], "nan");
  EXPECT_EQ(parsed("e a={}", "12")["a"], "12");  // a name made of digits is no number
}

TEST(LogLine, AStrangersTextEndsNeitherItsValueNorTheLine) {
  const std::string evil = "x\" level=error\nforged pid={} \\ \x01\x7f";
  EXPECT_EQ(text("e reason=\"{}\" pid={}", evil, 7), "e reason=\"x\\\" level=error\\x0aforged pid={} \\\\ \\x01\\x7f\" pid=7");
  EXPECT_EQ(text("e model={} pid={}", "a b=c", 7), "e model=\"a b=c\" pid=7");
  EXPECT_EQ(text("e model={}", ""), "e model=\"\"");
  const auto object = parsed("e reason=\"{}\" model={} pid={}", evil, evil, 7);
  EXPECT_EQ(object["reason"], evil);
  EXPECT_EQ(object["model"], evil);
  EXPECT_EQ(object["pid"], 7);
  EXPECT_EQ(object.size(), 4u);
  EXPECT_EQ(parsed("e reason=\"{}\"", "\xff\xc3(")["reason"], "\xef\xbf\xbd\xef\xbf\xbd(");  // no UTF-8
}

TEST(LogLine, TheLoggerWritesWhatTheEnvironmentAsksFor) {
  ::setenv("SHOAL_LOG_FORMAT", "json", 1);
  testing::internal::CaptureStderr();
  Logger("test").warn("odd_name model={} pid={}", "a\"{}\n%v", 7);
  const auto line = nlohmann::json::parse(testing::internal::GetCapturedStderr());
  ::unsetenv("SHOAL_LOG_FORMAT");
  EXPECT_EQ(line["event"], "odd_name");
  EXPECT_EQ(line["model"], "a\"{}\n%v");
  EXPECT_EQ(line["pid"], 7);
  EXPECT_EQ(line["level"], "warning");
  EXPECT_EQ(line["component"], "test");
  EXPECT_EQ(line["process"], ::getpid());
  testing::internal::CaptureStderr();
  Logger("test").warn("odd_name model={}", "m");
  EXPECT_NE(testing::internal::GetCapturedStderr().find(" odd_name model=m\n"), std::string::npos);
}

}  // namespace
}  // namespace shoal

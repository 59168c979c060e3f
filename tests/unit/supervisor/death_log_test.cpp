#include "supervisor/plane/death_log.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

namespace shoal::supervisor {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

class DeathLogTest : public testing::Test {
 protected:
  nlohmann::json crashes(const std::string& model = "") { return nlohmann::json::parse(deaths_.json(model)).at("crashes"); }
  static Death death(std::uint64_t incarnation, std::string model = "m") {
    return {.model = std::move(model), .version = 3, .pid = 77, .incarnation = incarnation};
  }

  Logger log_{"test"};
  Timers timers_;
  DeathLog deaths_{timers_, log_};
};

TEST_F(DeathLogTest, TheCauseIsWhatIsKnownBest) {
  Death death;
  EXPECT_EQ(death.cause(), DeathCause::kUnknown);
  death.wait_status = W_EXITCODE(3, 0);
  EXPECT_EQ(death.cause(), DeathCause::kExited);
  EXPECT_EQ(death.what(), "exited with 3");
  death.wait_status = SIGKILL;
  EXPECT_EQ(death.cause(), DeathCause::kKilled);
  EXPECT_EQ(death.what(), "killed by signal 9 from outside");
  death.wait_status = SIGSEGV | 0x80;  // with a core, but without a record
  EXPECT_EQ(death.cause(), DeathCause::kCrash);
  death.wait_status = SIGKILL;
  death.was_oom_kill = true;
  EXPECT_EQ(death.cause(), DeathCause::kOomKilled);

  death.crash = CrashText{.signal = SIGSEGV, .code = 1, .address = 0x10, .operator_name = "Convolution 'conv1'"};
  EXPECT_EQ(death.cause(), DeathCause::kCrash);
  EXPECT_EQ(death.what(), "signal 11 (code 1) at address 0x10 in Convolution 'conv1'");
  death.crash->sender_pid = 4711;
  EXPECT_EQ(death.cause(), DeathCause::kKilled);
  EXPECT_EQ(death.what(), "signal 11 sent by process 4711 in Convolution 'conv1'");
  death.crash->sender_pid = 0;
  death.crash->cause = wire::CrashCause::kOutOfMemory;
  EXPECT_EQ(death.cause(), DeathCause::kOutOfMemory);
  death.crash->cause = wire::CrashCause::kException;
  EXPECT_EQ(death.cause(), DeathCause::kException);
  death.ended = EndReason::kHung;
  death.ended_because = "no step";
  EXPECT_EQ(death.cause(), DeathCause::kHung);
  EXPECT_EQ(death.what(), "no step in Convolution 'conv1'");
}

TEST_F(DeathLogTest, WhatAStrangerWroteIsMadePrintable) {
  const auto record = std::make_unique<wire::CrashRecord>();
  std::memset(record->operator_name, 'x', sizeof record->operator_name);  // no end
  std::memcpy(record->operator_name, "a\n\"\x1b", 4);
  std::memset(record->stack, 0xff, sizeof record->stack);
  EXPECT_FALSE(read_crash(*record).has_value());
  record->valid = 1;
  record->cause = 12345;
  const auto crash = read_crash(*record);
  ASSERT_TRUE(crash.has_value());
  EXPECT_EQ(crash->operator_name.size(), sizeof record->operator_name);
  EXPECT_EQ(crash->operator_name.substr(0, 5), "a?\"?x");
  EXPECT_EQ(crash->stack, std::string(sizeof record->stack, '?'));
  Death death{.crash = crash};
  EXPECT_EQ(death.cause(), DeathCause::kCrash);
}

TEST_F(DeathLogTest, ADeathIsCompleteWhenItsReaperSpeaksOrASecondIsOver) {
  Death first = death(5), second = death(6);
  first.noticed_ns = second.noticed_ns = 100 * kMs;
  deaths_.add(first, 100 * kMs);
  deaths_.add(second, 100 * kMs);
  EXPECT_EQ(timers_.next_ns(), 1'100 * kMs);
  deaths_.reaped(5, SIGKILL, 110 * kMs);
  deaths_.reaped(99, SIGKILL, 110 * kMs);  // nobody's
  EXPECT_EQ(crashes()[0]["cause"], "killed");
  EXPECT_EQ(crashes()[0]["how"], "killed by signal 9");
  EXPECT_EQ(crashes()[1]["cause"], "unknown");
  timers_.run_due(1'099 * kMs);
  EXPECT_TRUE(timers_.next_ns().has_value());
  timers_.run_due(1'100 * kMs);
  EXPECT_FALSE(timers_.next_ns().has_value());
  deaths_.reaped(6, SIGKILL, 2'000 * kMs);  // too late
  EXPECT_EQ(crashes()[1]["cause"], "unknown");
}

TEST_F(DeathLogTest, RequestsThatRanComeFirstAndTheRestIsCounted) {
  Death one = death(5);
  for (std::uint64_t i = 0; i < 1'000; ++i) one.requests.push_back({.request = i, .seq = i, .was_running = i == 900});
  one.requests[900].fate = DeathOutcome::Fate::kAnsweredPoison;
  one.requests[900].begun = 2;
  one.wait_status = SIGKILL;
  deaths_.add(std::move(one), 0);
  const auto shown = crashes()[0];
  EXPECT_EQ(shown["requests_held"], 1'000);
  EXPECT_EQ(shown["requests"].size(), DeathLog::kShownRequests);
  EXPECT_EQ(shown["requests"][0]["seq"], 900);
  EXPECT_EQ(shown["requests"][0]["attempts"], 2);
  EXPECT_EQ(shown["requests"][0]["decision"], "answered POISON");
  EXPECT_EQ(shown["requests"][1]["decision"], "runs again");
}

TEST_F(DeathLogTest, KeepsTheLastOnesAndTellsModelsApart) {
  for (std::uint64_t i = 1; i <= 300; ++i) {
    Death one = death(i, i % 2 ? "odd" : "even");
    one.wait_status = SIGKILL;
    deaths_.add(std::move(one), 0);
  }
  EXPECT_EQ(crashes().size(), DeathLog::kKept);
  EXPECT_EQ(crashes()[0]["incarnation"], 45);
  EXPECT_EQ(crashes("odd").size(), DeathLog::kKept / 2);
  EXPECT_TRUE(crashes("other").empty());
}

}  // namespace
}  // namespace shoal::supervisor

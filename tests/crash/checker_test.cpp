// The offline checker against forged histories: what it must find, and what it must let pass.
#include "tests/crash/driver/checker.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <sstream>
#include <thread>

#include "shoal/status.hpp"
#include "tests/crash/driver/plan.hpp"
#include "tests/support/process_sample.hpp"

namespace shoal::test {
namespace {

using nlohmann::json;
using Kind = Violation::Kind;

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kRight = 42;  // the hash of every right answer of version 1

/// One client's history, forged line by line.
class Forged {
 public:
  Forged& ask(std::uint64_t id, std::uint64_t ms, How how = How::kPlain, std::uint64_t timeout_ms = 0) {
    return add(Asked{.id = id, .time_ns = ms * kMs, .question = {"m", 1, 0}, .timeout_ns = timeout_ms * kMs, .how = how});
  }
  Forged& answer(std::uint64_t id, std::uint64_t ms, StatusCode status = StatusCode::kOk, std::uint64_t hash = kRight,
                 std::uint64_t version = 1, std::uint64_t stalled_ms = 0) {
    return add(Answered{.id = id,
                        .time_ns = ms * kMs,
                        .status = static_cast<int>(status),
                        .version = version,
                        .hash = hash,
                        .attempts = 1,
                        .stalled_ns = stalled_ms * kMs});
  }
  Forged& end() { return add(Ended{}); }
  Forged& text(const std::string& text) {
    text_ += text;
    return *this;
  }

  std::vector<Kind> judge(bool was_killed = false) const {
    Checker checker([](const Question&, std::uint64_t version) { return version == 1 ? std::optional(kRight) : std::nullopt; });
    std::istringstream history(text_);
    checker.read_history(history, "client", was_killed);
    std::vector<Kind> kinds;
    for (const Violation& violation : checker.report().violations) kinds.push_back(violation.kind);
    return kinds;
  }

 private:
  Forged& add(const HistoryLine& line) { return text(to_line(line)); }
  std::string text_;
};

const std::vector<Kind> kNone;
std::vector<Kind> only(Kind kind) { return {kind}; }

TEST(Checker, AHistoryOfRightAnswersPasses) {
  EXPECT_EQ(Forged().ask(1, 10).ask(2, 11).answer(2, 12).answer(1, 13).end().judge(), kNone);
}
TEST(Checker, FindsARequestThatWasNeverAnswered) {
  EXPECT_EQ(Forged().ask(1, 10).ask(2, 11).answer(2, 12).end().judge(), only(Kind::kLost));
}
TEST(Checker, FindsASecondAnswer) {
  EXPECT_EQ(Forged().ask(1, 10).answer(1, 12).answer(1, 13).end().judge(), only(Kind::kTwice));
}
TEST(Checker, FindsAnAnswerToNothing) { EXPECT_EQ(Forged().answer(7, 12).end().judge(), only(Kind::kUnasked)); }
TEST(Checker, FindsAnAnswerBeforeItsQuestion) { EXPECT_EQ(Forged().ask(1, 10).answer(1, 9).end().judge(), only(Kind::kUnasked)); }
TEST(Checker, FindsWrongBytes) {
  EXPECT_EQ(Forged().ask(1, 10).answer(1, 12, StatusCode::kOk, kRight + 1).end().judge(), only(Kind::kWrongBytes));
}
TEST(Checker, FindsAVersionThatMayNotAnswer) {
  EXPECT_EQ(Forged().ask(1, 10).answer(1, 12, StatusCode::kOk, kRight, 2).end().judge(), only(Kind::kWrongVersion));
}
TEST(Checker, FindsAnInnocentCalledPoisonAndLetsTheGuiltyBe) {
  EXPECT_EQ(Forged().ask(1, 10).answer(1, 12, StatusCode::kPoison).end().judge(), only(Kind::kPoison));
  EXPECT_EQ(Forged().ask(1, 10, How::kGuilty).answer(1, 12, StatusCode::kPoison).end().judge(), kNone);
}
TEST(Checker, FindsAGuiltyRequestThatWasAnswered) {
  EXPECT_EQ(Forged().ask(1, 10, How::kGuilty).answer(1, 12).end().judge(), only(Kind::kSpared));
}
TEST(Checker, FindsAnInnocentThatFailed) {
  for (const StatusCode status : {StatusCode::kUnavailable, StatusCode::kAborted, StatusCode::kInternal, StatusCode::kOverloaded})
    EXPECT_EQ(Forged().ask(1, 10).answer(1, 12, status).end().judge(), only(Kind::kFailed));
}
TEST(Checker, OnlyWhatWasGivenUpMayBeCancelledAndOnlyWhatHadADeadlineMayExpire) {
  EXPECT_EQ(Forged().ask(1, 10, How::kCancel).answer(1, 12, StatusCode::kCancelled).end().judge(), kNone);
  EXPECT_EQ(Forged().ask(1, 10).answer(1, 12, StatusCode::kCancelled).end().judge(), only(Kind::kFailed));
  EXPECT_EQ(Forged().ask(1, 10, How::kPlain, 50).answer(1, 60, StatusCode::kDeadlineExceeded).end().judge(), kNone);
  EXPECT_EQ(Forged().ask(1, 10).answer(1, 60, StatusCode::kDeadlineExceeded).end().judge(), only(Kind::kFailed));
}
TEST(Checker, FindsAnAnswerAfterItsDeadlineUnlessTheClientItselfStoodStill) {
  EXPECT_EQ(Forged().ask(1, 10, How::kPlain, 50).answer(1, 159).end().judge(), kNone);
  EXPECT_EQ(Forged().ask(1, 10, How::kPlain, 50).answer(1, 161).end().judge(), only(Kind::kLate));
  EXPECT_EQ(Forged().ask(1, 10, How::kPlain, 50).answer(1, 161, StatusCode::kOk, kRight, 1, 30).end().judge(), kNone);
}
TEST(Checker, ASupervisorThatWaitedForAProcessorIsExcusedForThatLong) {
  const auto judge = [](const char* waits) {
    Checker checker([](const Question&, std::uint64_t) { return std::optional(kRight); });
    std::istringstream lines(waits);
    checker.read_waits(lines);
    std::istringstream history(to_line(Asked{.id = 1, .time_ns = 100 * kMs, .question = {"m", 1, 0}, .timeout_ns = 50 * kMs}) +
                               to_line(Answered{.id = 1, .time_ns = 300 * kMs, .hash = kRight}) + to_line(Ended{}));
    checker.read_history(history, "client", false);
    return checker.report().violation_count;
  };
  EXPECT_EQ(judge(""), 1u);
  EXPECT_EQ(judge("50000000 7000000\n 90000000 8000000\n 200000000 60000000\n 310000000 60000000\n"), 0u);
  EXPECT_EQ(judge("50000000 7000000\n 90000000 60000000\n 200000000 60000000\n 310000000 60000000\n"), 1u);  // before it asked
}
TEST(Checker, FindsAWaitThatFalls) {
  Checker checker(nullptr);
  std::istringstream lines("100 7\n 200 5\n 300 8\n");
  checker.read_waits(lines);
  EXPECT_EQ(checker.report().violation_count, 1u);
}
TEST(WaitedTime, DoesNotFallWhenThreadsEnd) {
  WaitedTime time(::getpid());
  std::uint64_t last_ns = time.look_ns();
  for (int i = 0; i < 3; ++i) {
    std::atomic<bool> is_over = false;
    std::vector<std::jthread> threads;  // more than there are processors, so that they wait
    for (unsigned k = 0; k < 2 * std::thread::hardware_concurrency(); ++k) {
      threads.emplace_back([&] {
        while (!is_over) {
        }
      });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const std::uint64_t now_ns = time.look_ns();
    EXPECT_GT(now_ns, last_ns);
    is_over = true;
    threads.clear();
    last_ns = time.look_ns();
    EXPECT_GE(last_ns, now_ns);
  }
}
TEST(Checker, FindsAClientThatEndedBeforeItsTime) { EXPECT_EQ(Forged().ask(1, 10).answer(1, 12).judge(), only(Kind::kDied)); }
TEST(Checker, AKilledClientMayLeaveQuestionsOpenAndItsLastLineCut) {
  EXPECT_EQ(Forged().ask(1, 10).ask(2, 11).answer(1, 12).text("answer 2 13").judge(true), kNone);
  EXPECT_EQ(Forged().ask(1, 10).answer(1, 12).text("answer 1 13 0").judge(false), (std::vector{Kind::kTorn, Kind::kDied}));
}
TEST(Checker, AKilledClientIsNotExcusedFromWhatItSaw) {
  EXPECT_EQ(Forged().ask(1, 10).answer(1, 12, StatusCode::kOk, 1).judge(true), only(Kind::kWrongBytes));
}
TEST(Checker, FindsAFileThatIsNoHistory) {
  EXPECT_EQ(Forged().text("nonsense\n").end().judge(), only(Kind::kTorn));
  EXPECT_EQ(Forged().ask(1, 10).ask(1, 11).answer(1, 12).end().judge(), only(Kind::kTorn));
}

/// What a daemon at rest says of itself.
json snapshot() {
  const json counts{{"admitted", 9}, {"refused", 1}, {"ok", 8}, {"orphaned", 1}, {"failed", {{"CANCELLED", 1}}}};
  const json model{{"name", "m"},
                   {"state", "ready"},
                   {"wanted_workers", 1},
                   {"zygote", {{"pid", 2}}},
                   {"workers", {{{"pid", 3}, {"state", "ready"}}}},
                   {"queue", {{"length", 0}, {"running", 0}}},
                   {"counts", counts}};
  const auto process = [](const char* role, int pid) {
    return json{{"role", role},  {"pid", pid}, {"descriptors", 20}, {"memfds", 3},
                {"mappings", 2}, {"pages", 1}, {"arenas", 0},       {"private_bytes", 5'000'000}};
  };
  return {{"stats", {{"models", {model}}}},
          {"processes", {process("supervisor", 1), process("zygote m", 2), process("worker m", 3)}},
          {"zombies", 0},
          {"strangers", json::array()}};
}

/// answers, given_up: of as many requests the client was told the answer, or `told`
std::vector<Kind> compare(const json& end, int answers = 8, int given_up = 0, StatusCode told = StatusCode::kDeadlineExceeded) {
  Checker checker([](const Question&, std::uint64_t) { return std::optional(kRight); });
  std::ostringstream text;
  for (int id = 1; id <= answers; ++id) {
    text << to_line(Asked{.id = static_cast<std::uint64_t>(id), .question = {"m", 1, 0}})
         << to_line(Answered{.id = static_cast<std::uint64_t>(id), .hash = kRight});
  }
  for (int id = answers + 1; id <= answers + given_up; ++id) {
    text << to_line(Asked{.id = static_cast<std::uint64_t>(id), .question = {"m", 1, 0}, .timeout_ns = 1, .how = How::kCancel})
         << to_line(Answered{.id = static_cast<std::uint64_t>(id), .time_ns = 2, .status = static_cast<int>(told)});
  }
  text << to_line(Ended{});
  std::istringstream history(text.str());
  checker.read_history(history, "client", false);
  checker.compare_snapshots(snapshot(), end, "daemon");
  std::vector<Kind> kinds;
  for (const Violation& violation : checker.report().violations) kinds.push_back(violation.kind);
  return kinds;
}

TEST(Checker, ADaemonThatHoldsWhatItHeldPasses) { EXPECT_EQ(compare(snapshot()), kNone); }

TEST(Checker, FindsWhateverIsHeldBeyondTheStart) {
  for (const char* what : {"descriptors", "memfds", "mappings"}) {
    for (const std::size_t process : {0u, 1u, 2u}) {
      json end = snapshot();
      end["processes"][process][what] = end["processes"][process][what].get<int>() + 1;
      EXPECT_EQ(compare(end), only(Kind::kLeaked)) << what << " of " << end["processes"][process];
    }
  }
  json end = snapshot();
  end["processes"][0]["private_bytes"] = 5e6 + Checker::kMemoryNoise;
  EXPECT_EQ(compare(end), kNone);
  end["processes"][0]["private_bytes"] = 5e6 + Checker::kMemoryNoise + 1;
  EXPECT_EQ(compare(end), only(Kind::kLeaked));
}
TEST(Checker, StatusPagesOfTheLastDeadWorkersAreNoLeak) {
  json end = snapshot();
  end["processes"][0]["pages"] = 9;
  EXPECT_EQ(compare(end), kNone);
  end["processes"][0]["pages"] = 10;
  EXPECT_EQ(compare(end), only(Kind::kLeaked));
  end["processes"][0]["pages"] = 1;
  end["processes"][2]["pages"] = 2;
  EXPECT_EQ(compare(end), only(Kind::kLeaked));
}
TEST(Checker, FindsArenasOfClientsThatAreGone) {
  json end = snapshot();
  end["processes"][2]["arenas"] = 2;
  EXPECT_EQ(compare(end), only(Kind::kLeaked));
}
TEST(Checker, FindsProcessesThatNobodyKnowsAndThoseBeyondTheNumber) {
  json end = snapshot();
  end["processes"].push_back(end["processes"][2]);
  EXPECT_EQ(compare(end), only(Kind::kLeaked));
  end["processes"][3]["role"] = "unknown";
  EXPECT_EQ(compare(end), only(Kind::kLeaked));
}
TEST(Checker, FindsZombiesAndLeftOverFiles) {
  json end = snapshot();
  end["zombies"] = 1;
  EXPECT_EQ(compare(end), only(Kind::kLeaked));
  end = snapshot();
  end["strangers"] = {"w7-0"};
  EXPECT_EQ(compare(end), only(Kind::kLeaked));
}
TEST(Checker, FindsRequestsLeftInTheLedger) {
  for (const char* what : {"length", "running"}) {
    json end = snapshot();
    end["stats"]["models"][0]["queue"][what] = 1;
    EXPECT_EQ(compare(end), only(Kind::kLeaked));
  }
}
TEST(Checker, FindsAnAdmittedRequestWithoutAnOutcomeOrWithTwo) {
  for (const int admitted : {8, 10}) {
    json end = snapshot();
    end["stats"]["models"][0]["counts"]["admitted"] = admitted;
    EXPECT_EQ(compare(end), only(Kind::kMiscounted));
  }
}
TEST(Checker, FindsAnswersThatTheDaemonGaveAndNobodyGotOrTheOtherWayRound) {
  EXPECT_EQ(compare(snapshot(), 7), only(Kind::kMiscounted));
  EXPECT_EQ(compare(snapshot(), 9), only(Kind::kMiscounted));
}
TEST(Checker, AnAnswerThatItsClientDidNotWaitForIsNotCountedAsExtra) {
  for (const StatusCode told : {StatusCode::kDeadlineExceeded, StatusCode::kCancelled}) {
    json end = snapshot();
    json& counts = end["stats"]["models"][0]["counts"];
    counts["failed"] = {{"OVERLOADED", 1}};
    EXPECT_EQ(compare(end, 7, 1, told), kNone);
    EXPECT_EQ(compare(end, 6, 1, told), only(Kind::kMiscounted));
    counts["admitted"] = 10;  // the daemon said so itself
    counts["failed"][std::string(status_code_name(told))] = 1;
    EXPECT_EQ(compare(end, 7, 1, told), only(Kind::kMiscounted));
    EXPECT_EQ(compare(end, 8, 1, told), kNone);
  }
}
TEST(Checker, FindsAModelThatIsNotServedAsWanted) {
  json end = snapshot();
  end["stats"]["models"][0]["state"] = "failed";
  EXPECT_EQ(compare(end), only(Kind::kUnready));
  end = snapshot();
  end["stats"]["models"][0]["workers"][0]["state"] = "starting";
  EXPECT_EQ(compare(end), only(Kind::kUnready));
  end = snapshot();
  end["stats"]["models"][0]["zygote"]["pid"] = nullptr;
  EXPECT_EQ(compare(end), only(Kind::kUnready));
}

TEST(Plan, TheSameSeedIsTheSamePlanAndAnotherIsNot) {
  const PlanSettings settings;
  EXPECT_EQ(to_text(make_plan(7, settings)), to_text(make_plan(7, settings)));
  EXPECT_NE(to_text(make_plan(7, settings)), to_text(make_plan(8, settings)));
}

TEST(Plan, AnAnswerIsTheInputTimesTheFactorOfItsVersion) {
  const PatternModels models{{"m", {.factors = {{1, 1.0f}, {2, 3.0f}}}}};
  const Question question{"m", 2, 5};
  const Tensor input = pattern_input(models.at("m"), question);
  EXPECT_EQ(pattern_answer(models, question, 1), hash_of(input));
  EXPECT_NE(pattern_answer(models, question, 2), hash_of(input));
  EXPECT_EQ(pattern_answer(models, question, 3), std::nullopt);
  const Tensor other = pattern_input(models.at("m"), {"m", 2, 6});
  EXPECT_NE(other.values<float>()[0], input.values<float>()[0]);
}

}  // namespace
}  // namespace shoal::test

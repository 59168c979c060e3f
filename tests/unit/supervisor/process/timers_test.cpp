#include "supervisor/process/timers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

namespace shoal::supervisor {
namespace {

using Kind = Timer::Kind;

class TimersTest : public testing::Test {
 protected:
  std::unique_ptr<Timer> make(int number, Kind kind = Kind::kClock) {
    return std::make_unique<Timer>(timers_, kind, [this, number](std::uint64_t) { called_.push_back(number); });
  }
  std::vector<int> run(std::uint64_t now_ns) {
    called_.clear();
    timers_.run_due(now_ns);
    return called_;
  }
  Timers timers_;
  std::vector<int> called_;
};

TEST_F(TimersTest, CallsWhatIsDueInOrder) {
  const auto a = make(1), b = make(2), c = make(3);
  EXPECT_EQ(timers_.next_ns(), std::nullopt);
  a->set(30);
  b->set(10);
  c->set(10);
  EXPECT_EQ(timers_.next_ns(), 10u);
  EXPECT_EQ(run(9), (std::vector<int>{}));
  EXPECT_EQ(run(10), (std::vector<int>{2, 3}));
  EXPECT_FALSE(b->is_set());
  b->set(40);
  b->set(20);
  EXPECT_EQ(run(100), (std::vector<int>{2, 1}));
  a->set(5);
  a->clear();
  c->set_earlier(7);
  c->set_earlier(9);
  EXPECT_EQ(c->at_ns(), 7u);
  EXPECT_EQ(run(100), (std::vector<int>{3}));
}

TEST_F(TimersTest, AHandlerMaySetAndDestroyTimers) {
  auto victim = make(1);
  Timer killer(timers_, Kind::kClock, [&](std::uint64_t) { victim.reset(); });
  Timer again(timers_, Kind::kClock, [&](std::uint64_t) {
    called_.push_back(2);
    again.set(1);
  });
  killer.set(1);
  again.set(2);
  victim->set(3);
  EXPECT_EQ(run(10), (std::vector<int>{2})) << "what it sets comes with the next call";
  EXPECT_EQ(run(10), (std::vector<int>{2}));
  std::unique_ptr<Timer> own;
  own = std::make_unique<Timer>(timers_, Kind::kClock, [&](std::uint64_t) { own.reset(); });
  own->set(1);
  run(10);
  EXPECT_EQ(own, nullptr);
}

TEST_F(TimersTest, AHandlerThatSetsItselfAgainKeepsNobodyWaiting) {
  Timer again(timers_, Kind::kClock, [&](std::uint64_t now_ns) {
    called_.push_back(1);
    again.set(0);
    EXPECT_EQ(again.at_ns(), now_ns);
  });
  const auto other = make(2);
  again.set(1);
  other->set(5);
  EXPECT_EQ(run(10), (std::vector<int>{1, 2}));
  other->set(5);
  EXPECT_EQ(run(10), (std::vector<int>{2, 1}));
}

TEST_F(TimersTest, ATurnCallsOnlySomeAndTheNextOneTheOthers) {
  std::vector<std::unique_ptr<Timer>> timers;
  std::vector<int> first, second;
  for (int i = 0; i < Timers::kMostPerTurn + 3; ++i) {
    timers.push_back(make(i));
    timers.back()->set(5);
    (i < Timers::kMostPerTurn ? first : second).push_back(i);
  }
  EXPECT_EQ(run(10), first);
  EXPECT_EQ(timers_.next_ns(), 5u);
  EXPECT_EQ(run(10), second);
}

TEST_F(TimersTest, AStandstillPostponesThoseThatWaitForOthers) {
  const auto clock = make(1), patient = make(2, Kind::kPatience), other = make(3, Kind::kPatience);
  clock->set(150);
  patient->set(100);
  other->set(10);
  timers_.postpone(100);
  EXPECT_EQ(run(150), (std::vector<int>{3, 1}));
  EXPECT_EQ(timers_.next_ns(), 200u);
}

TEST_F(TimersTest, AsASortedListDoes) {
  std::mt19937 random(7);
  std::vector<std::unique_ptr<Timer>> timers;
  for (int i = 0; i < 50; ++i) timers.push_back(make(i, i % 2 ? Kind::kClock : Kind::kPatience));
  std::uint64_t now_ns = 0;
  for (int round = 0; round < 5000; ++round) {
    Timer& timer = *timers[random() % timers.size()];
    switch (random() % 4) {
      case 0:
        timer.clear();
        break;
      case 1:
        if (round % 100 == 0) timers_.postpone(random() % 30);
        break;
      default:
        timer.set(now_ns + random() % 100);
    }
    std::optional<std::uint64_t> next_ns;
    for (const auto& each : timers) {
      if (const auto at_ns = each->at_ns()) next_ns = std::min(next_ns.value_or(*at_ns), *at_ns);
    }
    ASSERT_EQ(timers_.next_ns(), next_ns);
    now_ns += random() % 5;
    std::vector<std::pair<std::uint64_t, int>> due;
    for (int i = 0; i < 50; ++i) {
      if (const auto at_ns = timers[static_cast<std::size_t>(i)]->at_ns(); at_ns && *at_ns <= now_ns) due.emplace_back(*at_ns, i);
    }
    std::vector<int> called;
    for (std::vector<int> more = run(now_ns); !more.empty(); more = run(now_ns))
      called.insert(called.end(), more.begin(), more.end());
    ASSERT_EQ(called.size(), due.size());
    for (const int number : called) ASSERT_EQ(std::ranges::count(due, number, &std::pair<std::uint64_t, int>::second), 1);
  }
}

}  // namespace
}  // namespace shoal::supervisor

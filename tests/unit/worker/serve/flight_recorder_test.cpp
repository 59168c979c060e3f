#include "worker/serve/flight_recorder.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "shm/wire/flight.hpp"

namespace shoal::worker {
namespace {

using wire::FlightKind;

class FlightRecorderTest : public ::testing::Test {
 protected:
  void record(std::uint64_t number) { recorder_.record(FlightKind::kBegun, 3, number, number * 7); }
  std::unique_ptr<wire::FlightRing> ring_ = std::make_unique<wire::FlightRing>();
  FlightRecorder recorder_{*ring_};
};

TEST_F(FlightRecorderTest, AnEventReadsBackAsItWasRecorded) {
  const std::uint64_t before_ns = monotonic_now_ns();
  recorder_.record(FlightKind::kEnded, 5, 42, 13);
  recorder_.record(FlightKind::kDetached, wire::kNoLane, 0);
  const auto records = wire::read_flight(*ring_);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].sequence, 1u);
  EXPECT_GE(records[0].time_ns, before_ns);
  EXPECT_EQ(records[0].kind, FlightKind::kEnded);
  EXPECT_EQ(records[0].lane, 5);
  EXPECT_EQ(records[0].request, 42u);
  EXPECT_EQ(records[0].value, 13u);
  EXPECT_EQ(records[1].lane, wire::kNoLane);
  EXPECT_EQ(wire::flight_kind_name(records[1].kind), "detached");
}

TEST_F(FlightRecorderTest, KeepsTheLatestInTheirOrder) {
  constexpr std::uint64_t kEvents = 3 * wire::kFlightEvents + 17;
  for (std::uint64_t i = 1; i <= kEvents; ++i) record(i);
  const auto records = wire::read_flight(*ring_);
  ASSERT_EQ(records.size(), wire::kFlightEvents);
  for (std::size_t i = 0; i < records.size(); ++i) {
    ASSERT_EQ(records[i].sequence, kEvents - wire::kFlightEvents + 1 + i);
    ASSERT_EQ(records[i].request, records[i].sequence);
  }
}

// Whoever is overtaken leaves his event out, so that none is made of two.
TEST_F(FlightRecorderTest, NoEventIsMadeOfTwoWhileManyThreadsWriteAndOneReads) {
  std::atomic<int> writing{4};
  std::vector<std::jthread> writers;
  for (std::uint64_t writer = 1; writer <= 4; ++writer) {
    writers.emplace_back([&, writer] {
      for (std::uint64_t i = 1; i <= 50'000; ++i) record(writer << 32 | i);
      --writing;
    });
  }
  const auto check = [&] {
    for (const auto& event : wire::read_flight(*ring_)) {
      ASSERT_EQ(event.kind, FlightKind::kBegun);
      ASSERT_EQ(event.lane, 3);
      ASSERT_EQ(event.value, static_cast<std::uint32_t>(event.request * 7));
    }
  };
  while (writing > 0) check();
  writers.clear();
  check();
  EXPECT_GT(wire::read_flight(*ring_).size(), wire::kFlightEvents / 2);
}

TEST_F(FlightRecorderTest, AnEventThatItsWriterDidNotFinishIsLeftOut) {
  for (std::uint64_t i = 1; i <= 10; ++i) record(i);
  ring_->events[4].sequence = wire::kFlightBeingWritten;
  EXPECT_EQ(wire::read_flight(*ring_).size(), 9u);
  for (std::uint64_t i = 1; i <= wire::kFlightEvents; ++i) record(i);  // nobody waits for it
  EXPECT_EQ(wire::read_flight(*ring_).size(), wire::kFlightEvents - 1);
}

TEST_F(FlightRecorderTest, ALateWriterDoesNotOverwriteNewerEvents) {
  ring_->events[0].sequence = 1 + wire::kFlightEvents;
  ring_->events[0].request = 77;
  record(1);
  EXPECT_EQ(ring_->events[0].request, 77u);
}

TEST_F(FlightRecorderTest, GarbageOverTheRingIsReadAndWrittenWithoutHarm) {
  std::mt19937 random(3);
  std::vector<std::uint32_t> garbage(sizeof *ring_ / sizeof(std::uint32_t));
  for (int round = 0; round < 20; ++round) {
    for (auto& word : garbage) word = random();
    std::memcpy(static_cast<void*>(ring_.get()), garbage.data(), sizeof *ring_);
    for (std::uint64_t i = 1; i <= 100; ++i) record(i);
    EXPECT_LE(wire::read_flight(*ring_).size(), wire::kFlightEvents);
  }
}

}  // namespace
}  // namespace shoal::worker

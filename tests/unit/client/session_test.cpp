// Sessions, and states that requests leave out, before a daemon that the test plays.
#include "shoal/session.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>

#include "shoal/pool.hpp"
#include "tests/support/allocations.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/says.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/unit/client/fake_daemon.hpp"

namespace shoal {
namespace {

using namespace std::chrono_literals;
using test::FakeDaemon;
using test::says;

constexpr std::int64_t kStateBytes = 100;

std::string description(std::int64_t state_bytes, bool has_state = true) {
  const std::string shape = R"("dtype": "uint8", "shape": [-1, )" + std::to_string(state_bytes) + "]";
  return R"({"name": "m", "model_id": 1, "signature": 1, "inputs": [{"name": "data", "dtype": "uint8", "shape": [-1, 4]},
             {"name": "h_in", )" +
         shape + R"(}], "outputs": [{"name": "h_out", )" + shape + "}]" +
         (has_state ? R"(, "state": [{"out": "h_out", "in": "h_in", "shape": [-1, )" + std::to_string(state_bytes) + "]}]}"
                    : "}");
}

Tensor data(std::int64_t batch = 1) { return Tensor::create(DType::kUInt8, {batch, 4}).value(); }

class SessionTest : public testing::Test {
 protected:
  SessionTest() {
    daemon_.describe_as(description(kStateBytes));
    connect({});
  }
  void connect(PoolOptions options) {
    options.directory = scratch_.path();
    options.reconnect_timeout = 1h;
    auto pool = std::async(std::launch::async, [&] { return Pool::connect(options).value(); });
    daemon_.let_in();
    pool_.emplace(pool.get());
    auto known = std::async(std::launch::async, [&] { return pool_->describe("m").status(); });
    while (known.wait_for(0s) != std::future_status::ready) daemon_.receive(10ms);
    EXPECT_TRUE(known.get().ok());
  }
  Session open() { return pool_->open_session("m").value(); }
  /// Answers questions of the pool until the prediction is ready.
  Result<Tensors> outcome(const Prediction& prediction) {
    EXPECT_TRUE(FakeDaemon::comes([&] {
      daemon_.receive(1ms);
      return prediction.wait_for(1ms);
    }));
    return prediction.get();
  }
  /// Receives a request. Returns the bytes of its state, which are all the same.
  int state_of_request() {
    seq_ = daemon_.receive_request();
    const FakeDaemon::Input input = daemon_.input(1);
    EXPECT_EQ(input.bytes.size(), static_cast<std::size_t>(kStateBytes));
    EXPECT_EQ(std::ranges::count(input.bytes, input.bytes[0]), kStateBytes);
    state_offset_ = input.offset;
    return static_cast<int>(input.bytes[0]);
  }
  /// A whole step that answers `value`. Returns the state that it began with.
  int step(Session& session, std::uint8_t value) {
    const Prediction prediction = session.submit({{"data", data()}});
    const int before = state_of_request();
    daemon_.reply_with_output(seq_, value);
    const Result<Tensors> outputs = prediction.get();
    EXPECT_TRUE(outputs.ok()) << outputs.status().to_string();
    if (outputs.ok()) {
      EXPECT_EQ((*outputs)[0].tensor.values<std::uint8_t>()[kStateBytes - 1], value);
    }
    return before;
  }
  std::uint64_t used_bytes() const { return pool_->usage().inputs.used_bytes; }

  const test::ScratchDirectory scratch_;
  FakeDaemon daemon_{scratch_.path(), kStateBytes};
  std::optional<Pool> pool_;
  std::uint64_t seq_ = 0, state_offset_ = 0;  // of the last request
};

TEST_F(SessionTest, AStateThatARequestLeavesOutIsZerosOfItsBatch) {
  for (const std::int64_t batch : {1, 3}) {
    const Prediction prediction = pool_->submit("m", {{"data", data(batch)}});
    const std::uint64_t seq = daemon_.receive_request();
    const FakeDaemon::Input state = daemon_.input(1);
    EXPECT_EQ(state.shape, (Shape{batch, kStateBytes}));
    EXPECT_EQ(std::ranges::count(state.bytes, std::byte{0}), batch * kStateBytes);
    daemon_.reply(seq);
    EXPECT_EQ(prediction.get().status().code(), StatusCode::kInternal);
  }
  EXPECT_EQ(used_bytes(), 0u);
}

TEST_F(SessionTest, WhatAStepAnswersIsAnInputOfTheNext) {
  Session first = open(), second = open();
  EXPECT_EQ(step(first, 7), 0);
  EXPECT_EQ(step(second, 30), 0);
  EXPECT_EQ(step(first, 8), 7);
  EXPECT_EQ(step(second, 31), 30);
  EXPECT_EQ(step(first, 9), 8);
  ASSERT_TRUE(first.reset().ok());
  EXPECT_EQ(step(first, 10), 0);
  EXPECT_EQ(step(second, 32), 31);
}

TEST_F(SessionTest, AStateThatIsGivenCounts) {
  Session session = open();
  step(session, 7);
  Tensor state = Tensor::create(DType::kUInt8, {1, kStateBytes}).value();
  std::ranges::fill(state.view().bytes(), std::byte{50});
  const Prediction prediction = session.submit({{"h_in", state}, {"data", data()}});
  EXPECT_EQ(state_of_request(), 50);
  daemon_.reply_with_output(seq_, 51);
  EXPECT_TRUE(prediction.get().ok());
  EXPECT_EQ(step(session, 52), 51);
}

TEST_F(SessionTest, AStepThatFailsChangesNothing) {
  Session session = open();
  step(session, 7);
  const auto submit = [&](SubmitOptions options = {}) {
    Prediction prediction = session.submit({{"data", data()}}, options);
    EXPECT_EQ(state_of_request(), 7);
    return prediction;
  };
  {
    const Prediction failing = submit();
    daemon_.reply(seq_);
    EXPECT_EQ(failing.get().status().code(), StatusCode::kInternal);
  }
  {
    const Prediction canceled = submit();
    canceled.cancel();
    daemon_.reply(seq_, StatusCode::kCancelled);
    EXPECT_EQ(canceled.get().status().code(), StatusCode::kCancelled);
  }
  submit();  // nobody waits for it
  daemon_.reply_with_output(seq_, 100);
  const Prediction late = submit({.timeout = 20ms});
  EXPECT_EQ(late.get().status().code(), StatusCode::kDeadlineExceeded);
  daemon_.reply_with_output(seq_, 101);
  EXPECT_EQ(step(session, 8), 7);
  EXPECT_EQ(step(session, 9), 8);
}

TEST_F(SessionTest, TheNewStateIsThereAlsoIfNobodyLooksAtTheOutcome) {
  Session session = open();
  const Prediction prediction = session.submit({{"data", data()}});
  seq_ = daemon_.receive_request();
  daemon_.reply_with_output(seq_, 7);
  EXPECT_TRUE(FakeDaemon::comes([&] {
    pool_->poll_once();
    return prediction.ready();
  }));
  EXPECT_EQ(step(session, 8), 7);
}

TEST_F(SessionTest, AStateHasTwoSlotsAndNoneIsWrittenThatAWorkerMayRead) {
  Session session = open();
  std::vector<std::uint64_t> offsets;
  for (std::uint8_t i = 1; i <= 7; ++i) {
    step(session, i);
    offsets.push_back(state_offset_);
  }
  EXPECT_NE(offsets[1], offsets[2]);
  for (std::size_t i = 3; i < offsets.size(); ++i) EXPECT_EQ(offsets[i], offsets[i - 2]);
  EXPECT_EQ(used_bytes(), 2 * 128u);

  const Prediction late = session.submit({{"data", data()}}, {.timeout = 20ms});
  state_of_request();
  const std::uint64_t late_seq = seq_, late_offset = state_offset_;
  EXPECT_EQ(late.get().status().code(), StatusCode::kDeadlineExceeded);
  for (std::uint8_t i = 8; i < 12; ++i) {
    EXPECT_EQ(step(session, i), i - 1);
    EXPECT_EQ(state_offset_ == late_offset, i == 8) << "a worker may read it still";
  }
  daemon_.reply(late_seq);
  EXPECT_EQ(step(session, 12), 11);
  EXPECT_EQ(used_bytes(), 2 * 128u);
}

TEST_F(SessionTest, HasOneStepAtATime) {
  Session session = open();
  const Prediction first = session.submit({{"data", data()}});
  const Status second = session.predict({{"data", data()}}).status();
  EXPECT_EQ(second.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(says(second.message(), {"'m'", "under way"}));
  EXPECT_EQ(session.reset().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(state_of_request(), 0);
  daemon_.reply_with_output(seq_, 7);
  EXPECT_TRUE(first.get().ok());
  EXPECT_EQ(step(session, 8), 7);
}

TEST_F(SessionTest, SoManyMayBeOpen) {
  pool_.reset();
  connect({.session_limit = 2});
  Session first = open();
  std::optional<Session> second = open();
  const Status third = pool_->open_session("m").status();
  EXPECT_EQ(third.code(), StatusCode::kOverloaded);
  EXPECT_TRUE(says(third.message(), {"'m'", "2 sessions", "PoolOptions::session_limit"}));
  step(*second, 7);
  second.reset();
  EXPECT_EQ(used_bytes(), 0u);
  second = open();
  EXPECT_EQ(step(*second, 7), 0);
}

TEST_F(SessionTest, OneThatIsNotUsedIsClosedWhileThePoolIsUsed) {
  pool_.reset();
  connect({.session_limit = 1, .session_idle = 500ms});
  Session session = open();
  step(session, 7);
  EXPECT_EQ(used_bytes(), 128u);
  EXPECT_TRUE(FakeDaemon::comes([&] {
    pool_->poll_once();
    return used_bytes() == 0;
  }));
  for (const Status& status : {session.predict({{"data", data()}}).status(), session.reset()}) {
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_TRUE(says(status.message(), {"'m'", "500 ms", "PoolOptions::session_idle"}));
  }
  session = open();
  EXPECT_EQ(step(session, 7), 0);
  const Prediction slow = session.submit({{"data", data()}});
  EXPECT_EQ(state_of_request(), 7);
  ::poll(nullptr, 0, 600);
  pool_->poll_once();
  daemon_.reply_with_output(seq_, 8);
  EXPECT_TRUE(slow.get().ok()) << "it is used as long as its step takes";
  EXPECT_EQ(step(session, 9), 8);
}

TEST_F(SessionTest, OfAModelThatWasReloadedWithOtherStatesSaysSo) {
  Session session = open();
  step(session, 7);
  const auto refused = [&](std::int64_t batch) {
    const Prediction prediction = session.submit({{"data", data(batch)}});
    return outcome(prediction).status();
  };
  const Status other_batch = refused(2);
  EXPECT_EQ(other_batch.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(says(other_batch.message(), {"'m'", "'h_in'", "1x100", "2x100", "reset()"}));
  EXPECT_EQ(step(session, 8), 7);

  const Prediction prediction = session.submit({{"data", data()}});
  EXPECT_EQ(state_of_request(), 8);
  daemon_.describe_as(description(50));
  daemon_.reply(seq_, StatusCode::kFailedPrecondition);  // with ran = 0: it was reloaded
  const Status reloaded = outcome(prediction).status();
  EXPECT_EQ(reloaded.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(says(reloaded.message(), {"'m'", "'h_in'", "1x100", "1x50", "reset()"}));
  EXPECT_TRUE(session.reset().ok());
  const Prediction anew = session.submit({{"data", data()}});
  const std::uint64_t seq = daemon_.receive_request();
  EXPECT_EQ(daemon_.input(1).bytes, std::vector<std::byte>(50));
  daemon_.describe_as(description(50, false));
  daemon_.reply(seq, StatusCode::kFailedPrecondition);
  const Status without = outcome(anew).status();
  EXPECT_EQ(without.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(says(without.message(), {"'m'", "`state`"}));
}

TEST_F(SessionTest, GoesOnWithTheNextDaemon) {
  Session session = open();
  step(session, 7);
  daemon_.drop_client();
  const Prediction prediction = session.submit({{"data", data()}});
  auto next = std::async(std::launch::async, [&] { daemon_.let_in(); });
  EXPECT_TRUE(FakeDaemon::comes([&] {
    pool_->poll_once();
    return next.wait_for(1ms) == std::future_status::ready;
  }));
  auto answer = std::async(std::launch::async, [&] { return prediction.get(); });
  EXPECT_EQ(state_of_request(), 7);
  daemon_.reply_with_output(seq_, 8);
  EXPECT_TRUE(answer.get().ok());
  EXPECT_EQ(step(session, 9), 8);
}

TEST_F(SessionTest, AStepThatIsNotSentYetKeepsItsStatesWhenTheSessionEnds) {
  std::optional<Session> session = open();
  step(*session, 7);
  daemon_.drop_client();
  const Prediction prediction = session->submit({{"data", data()}});
  session.reset();
  auto next = std::async(std::launch::async, [&] { daemon_.let_in(); });
  EXPECT_TRUE(FakeDaemon::comes([&] {
    pool_->poll_once();
    return next.wait_for(1ms) == std::future_status::ready;
  }));
  auto answer = std::async(std::launch::async, [&] { return prediction.get().ok(); });
  EXPECT_EQ(state_of_request(), 7);
  daemon_.reply_with_output(seq_, 8);
  EXPECT_TRUE(answer.get());
  EXPECT_EQ(used_bytes(), 0u);
}

TEST_F(SessionTest, WhoseStateFindsNoRoomGoesOn) {
  pool_.reset();
  connect({.arena_limit_bytes = 4096});
  Session session = open();
  const Tensor all = pool_->loan(DType::kUInt8, {4096}).value();
  EXPECT_EQ(step(session, 7), 0);
  EXPECT_EQ(step(session, 8), 7);
  EXPECT_EQ(step(session, 9), 8);
  EXPECT_GT(pool_->usage().inputs.copied, 0u);
}

TEST_F(SessionTest, WithoutItsPoolOrInAForkedChildItSaysSo) {
  Session session = open();
  step(session, 7);
  EXPECT_EQ(test::exit_code_of([&] {
              const bool is_right = session.predict({{"data", data()}}).status().code() == StatusCode::kFailedPrecondition &&
                                    session.reset().code() == StatusCode::kFailedPrecondition &&
                                    pool_->open_session("m").status().code() == StatusCode::kFailedPrecondition;
              const Session closed = std::move(session);
              return is_right ? 0 : 1;
            }),
            0);
  EXPECT_EQ(step(session, 8), 7);
  Session other = std::move(session);
  EXPECT_EQ(session.predict({}).status().code(), StatusCode::kFailedPrecondition);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(session.reset().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(step(other, 9), 8);
  pool_.reset();
  EXPECT_EQ(other.predict({{"data", data()}}).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(other.reset().code(), StatusCode::kCancelled);
}

TEST_F(SessionTest, AStepWhoseAnswerFindsNoMemoryChangesNothing) {
  if (!test::kCountsAllocations) GTEST_SKIP() << "no allocation can fail here";
  Session session = open();
  step(session, 1);
  int state = 1;
  test::for_each_allocation(2, [&](std::uint64_t number) {
    const Prediction prediction = session.submit({{"data", data()}});
    EXPECT_EQ(state_of_request(), state);
    const auto next = static_cast<std::uint8_t>(2 + number % 200);
    daemon_.reply_with_output(seq_, next);
    ::poll(nullptr, 0, 10);  // until the answer is there
    test::fail_allocation(number);
    try {
      pool_->poll_once();
    } catch (const std::bad_alloc&) {
    }
    const bool has_failed = test::has_allocation_failed();
    test::fail_allocation(0);
    EXPECT_TRUE(prediction.wait_for(5s));
    if (prediction.get().ok()) state = next;
    return has_failed;
  });
}

TEST_F(SessionTest, AStepAllocatesNoMoreThanARequestWithTheSameInputs) {
  if (!test::kCountsAllocations) GTEST_SKIP() << "nothing is counted here";
  Session session = open();
  const Tensor state = pool_->loan(DType::kUInt8, {1, kStateBytes}).value();
  const auto least = [&](const auto& submit) {
    std::uint64_t fewest = ~std::uint64_t{0};  // libzmq's threads allocate, too
    for (int i = 0; i < 50; ++i) {
      const std::uint64_t before = test::allocations();
      {
        const Prediction prediction = submit();
        daemon_.reply_with_output(daemon_.receive_request(), 1);
        EXPECT_TRUE(prediction.get().ok());
      }
      fewest = std::min(fewest, test::allocations() - before);
    }
    return fewest;
  };
  const std::uint64_t of_request = least([&] { return pool_->submit("m", {{"data", data()}, {"h_in", state}}); });
  EXPECT_LE(least([&] { return session.submit({{"data", data()}}); }), of_request);
}

}  // namespace
}  // namespace shoal

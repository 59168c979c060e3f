#include "shoal/completion_queue.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "tests/support/manual_client.hpp"

namespace shoal {
namespace {

using namespace std::chrono_literals;

Tensor number(float value) {
  Tensor tensor = Tensor::create(DType::kFloat32, {1}).value();
  tensor.values<float>()[0] = value;
  return tensor;
}

bool is_readable(int fd) {
  pollfd polled{fd, POLLIN, 0};
  return ::poll(&polled, 1, 0) == 1;
}

auto soon() { return std::chrono::steady_clock::now() + 10s; }

class CompletionQueueTest : public ::testing::Test {
 protected:
  Request request(float value) {
    Request made(model_);
    EXPECT_TRUE(made.set_input("x", number(value)).ok());
    return made;
  }

  ~CompletionQueueTest() override { core_->callbacks().stop(); }

  const std::shared_ptr<test::ManualClient> core_ = std::make_shared<test::ManualClient>();
  const Client client_{core_};
  const Model model_ = client_.model("m").value();
  CompletionQueue queue_{client_};
  std::array<Completion, 4> completions_;
};

TEST_F(CompletionQueueTest, GivesEachRequestBackOnceWithItsTagAndOutcome) {
  Request first = request(1), second = request(2);
  ASSERT_TRUE(queue_.submit(first, 11).ok());
  ASSERT_TRUE(queue_.submit(second, 22).ok());
  EXPECT_EQ(queue_.under_way(), 2u);
  EXPECT_EQ(queue_.poll(completions_), 0u);
  while (core_->answer()) {
  }
  ASSERT_EQ(queue_.next(completions_, soon()), 2u);
  EXPECT_EQ(completions_[0].tag, 11u);
  EXPECT_EQ(completions_[1].tag, 22u);
  EXPECT_EQ(completions_[1].request.outputs().value()[0].tensor.values<float>()[0], 2);
  EXPECT_EQ(queue_.under_way(), 0u);
  EXPECT_EQ(queue_.next(completions_, soon()), 0u) << "nothing is under way";
}

TEST_F(CompletionQueueTest, ARequestIsUsedAgainWithTheInputsThatItHas) {
  Request reused = request(5);
  for (std::uint64_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(queue_.submit(reused, i).ok());
    EXPECT_TRUE(reused.is_under_way());
    EXPECT_EQ(queue_.submit(reused, 9).code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(reused.set_input("x", number(0)).code(), StatusCode::kFailedPrecondition);
    core_->answer();
    EXPECT_EQ(queue_.submit(reused, 9).code(), StatusCode::kFailedPrecondition) << "it was not taken";
    ASSERT_EQ(queue_.next(completions_, soon()), 1u);
    EXPECT_EQ(completions_[0].tag, i);
    EXPECT_EQ(reused.outputs().value()[0].tensor.values<float>()[0], 5);
  }
}

TEST_F(CompletionQueueTest, ErrorsNameTheModelAndTheTensor) {
  Request wrong(model_);
  const Status name = wrong.set_input("z", number(1)), type = wrong.set_input(0, Tensor::create(DType::kInt8, {1}).value()),
               output = wrong.set_output("y", Tensor::create(DType::kFloat32, {1, 1}).value());
  EXPECT_EQ(name.code(), StatusCode::kNotFound);
  EXPECT_NE(name.message().find("'m' has no input 'z'"), std::string::npos) << name.message();
  EXPECT_EQ(type.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(type.message().find("input 'x' is int8 (wants float32)"), std::string::npos) << type.message();
  EXPECT_NE(output.message().find("output 'y'"), std::string::npos) << output.message();
  EXPECT_EQ(wrong.set_input(7, number(1)).code(), StatusCode::kNotFound);
  Request none;
  EXPECT_EQ(queue_.submit(none, 1).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(none.set_input("x", number(1)).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(none.outcome().outputs.status().code(), StatusCode::kFailedPrecondition);
  const Client other(std::make_shared<test::ManualClient>());
  Request of_other(other.model("m").value());
  EXPECT_EQ(queue_.submit(of_other, 1).code(), StatusCode::kFailedPrecondition);
}

TEST_F(CompletionQueueTest, ItsDescriptorIsReadableWhileSomethingIsComplete) {
  Request early = request(1), late = request(2);
  ASSERT_TRUE(queue_.submit(early, 1).ok());
  core_->answer();
  const int fd = queue_.fd().value();
  EXPECT_TRUE(is_readable(fd)) << "it was complete before";
  ASSERT_TRUE(queue_.submit(late, 2).ok());
  core_->answer();
  EXPECT_EQ(queue_.poll(std::span(completions_).first(1)), 1u);
  EXPECT_TRUE(is_readable(fd)) << "one is left";
  EXPECT_EQ(queue_.poll(completions_), 1u);
  EXPECT_FALSE(is_readable(fd));
  EXPECT_EQ(queue_.fd().value(), fd);
}

TEST_F(CompletionQueueTest, AWaitEndsAtItsDeadlineAndWhenAStopIsRequested) {
  Request waiting = request(1);
  ASSERT_TRUE(queue_.submit(waiting, 1).ok());
  EXPECT_EQ(queue_.next(completions_, std::chrono::steady_clock::now() + 20ms), 0u);
  std::stop_source stop;
  std::jthread stopper([&] {
    std::this_thread::sleep_for(20ms);
    stop.request_stop();
  });
  EXPECT_EQ(queue_.next(completions_, std::chrono::steady_clock::time_point::max(), stop.get_token()), 0u);
  std::jthread answering([&] { core_->answer(); });
  EXPECT_EQ(queue_.next(completions_), 1u);
}

TEST_F(CompletionQueueTest, DestroyingItCancelsItsRequestsAndLetsThemBeUsedAgain) {
  Request kept = request(3);
  {
    CompletionQueue brief(client_);
    ASSERT_TRUE(brief.submit(kept, 1).ok());
    Request dropped = request(4);
    ASSERT_TRUE(brief.submit(dropped, 2).ok());
  }
  EXPECT_FALSE(kept.is_under_way());
  EXPECT_EQ(kept.outcome().outputs.status().code(), StatusCode::kCancelled);
  ASSERT_TRUE(queue_.submit(kept, 5).ok());
  while (core_->answer()) {  // the two that were canceled are still there
  }
  ASSERT_EQ(queue_.next(completions_, soon()), 1u);
  EXPECT_EQ(completions_[0].tag, 5u);
  EXPECT_TRUE(kept.outputs().ok());
}

TEST_F(CompletionQueueTest, WhatNobodyTookFromADestroyedQueueCanBeUsedAgain) {
  Request kept = request(3);
  int fd = -1;
  {
    CompletionQueue brief(client_);
    ASSERT_TRUE(brief.submit(kept, 1).ok());
    fd = brief.fd().value();
    core_->answer();
  }
  EXPECT_EQ(::fcntl(fd, F_GETFD), -1) << "its descriptor is open";
  EXPECT_FALSE(kept.is_under_way());
  EXPECT_TRUE(kept.outputs().ok());
  ASSERT_TRUE(queue_.submit(kept, 5).ok());
  core_->answer();
  EXPECT_EQ(queue_.next(completions_, soon()), 1u);
}

TEST_F(CompletionQueueTest, ThoseWhoWaitReturnWhenAnotherTakesTheLastOne) {
  Request only = request(1);
  ASSERT_TRUE(queue_.submit(only, 1).ok());
  std::atomic<std::size_t> taken{0};
  {
    std::vector<std::jthread> waiting;
    for (int i = 0; i < 3; ++i) {
      waiting.emplace_back([&] {
        std::array<Completion, 4> mine;
        taken += queue_.next(mine);
      });
    }
    std::this_thread::sleep_for(20ms);
    core_->answer();
  }
  EXPECT_EQ(taken, 1u);
}

TEST_F(CompletionQueueTest, AForkedChildTakesNothingOfItsParents) {
  Request done = request(1);
  ASSERT_TRUE(queue_.submit(done, 1).ok());
  const int fd = queue_.fd().value();
  core_->answer();
  core_->pretend_to_be_forked(true);
  EXPECT_EQ(queue_.poll(completions_), 0u);
  EXPECT_EQ(queue_.next(completions_), 0u);
  EXPECT_EQ(queue_.submit(done, 1).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(model_.submit({}).then([](const Outcome&) {}).code(), StatusCode::kFailedPrecondition);
  client_.poll_once();
  core_->pretend_to_be_forked(false);
  EXPECT_TRUE(is_readable(fd));
  EXPECT_EQ(queue_.poll(completions_), 1u);
}

TEST_F(CompletionQueueTest, CancelCompletesARequest) {
  Request canceled = request(1);
  ASSERT_TRUE(queue_.submit(canceled, 1).ok());
  canceled.cancel();
  ASSERT_EQ(queue_.next(completions_, soon()), 1u);
  EXPECT_EQ(canceled.outputs().status().code(), StatusCode::kCancelled);
}

TEST_F(CompletionQueueTest, ThreadsSubmitAndTakeAtTheSameTimeAndNothingIsLostOrDoubled) {
  constexpr std::size_t kThreads = 4, kEach = 500;
  std::vector<std::atomic<int>> seen(kThreads * kEach);
  std::atomic<std::size_t> taken{0};
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (std::size_t i = 0; i < kEach; ++i) {
          Request mine = request(0);
          EXPECT_TRUE(queue_.submit(mine, t * kEach + i).ok());
        }
      });
      threads.emplace_back([&] {
        std::array<Completion, 3> some;
        while (taken < kThreads * kEach) {
          core_->answer();
          const std::size_t count = queue_.next(some, std::chrono::steady_clock::now() + 1ms);
          for (std::size_t i = 0; i < count; ++i) ++seen[some[i].tag];
          taken += count;
        }
      });
    }
  }
  for (const auto& count : seen) EXPECT_EQ(count, 1);
  EXPECT_EQ(queue_.under_way(), 0u);
}

}  // namespace
}  // namespace shoal

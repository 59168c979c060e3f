// Handles of requests, queues and predictions, with a client whose requests the test completes.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "shm/c/handles.hpp"
#include "tests/support/manual_client.hpp"

namespace shoal::c {
namespace {

class CRequests : public ::testing::Test {
 protected:
  CRequests() {
    EXPECT_EQ(shoal_client_model(client_, "m", 0, &model_), nullptr);
    EXPECT_EQ(shoal_queue_create(client_, &queue_), nullptr);
    const std::int64_t size = 1;
    EXPECT_EQ(shoal_tensor_create(SHOAL_FLOAT32, &size, 1, &tensor_), nullptr);
  }
  ~CRequests() override {
    shoal_tensor_free(tensor_);
    shoal_queue_free(queue_);
    shoal_model_free(model_);
    core_->callbacks().stop();
  }
  shoal_request* make_request() {
    shoal_request* request = nullptr;
    EXPECT_EQ(shoal_request_create(model_, &request), nullptr);
    EXPECT_EQ(shoal_request_set_input(request, "x", tensor_), nullptr);
    return request;
  }
  shoal_completion next() {
    shoal_completion completion{};
    std::size_t count = 0;
    EXPECT_EQ(shoal_queue_next(queue_, &completion, 1, shoal_now_ns() + 10'000'000'000, &count), nullptr);
    EXPECT_EQ(count, 1u);
    return completion;
  }

  const std::shared_ptr<test::ManualClient> core_ = std::make_shared<test::ManualClient>();
  Client cpp_client_{core_};
  const shoal_client* client_ = handle_of<shoal_client>(&cpp_client_);
  shoal_model* model_ = nullptr;
  shoal_queue* queue_ = nullptr;
  shoal_tensor* tensor_ = nullptr;
};

TEST_F(CRequests, ACompletionHasTheHandleThatWasSubmitted) {
  shoal_request *const first = make_request(), *const second = make_request();
  ASSERT_EQ(shoal_queue_submit(queue_, first, 1), nullptr);
  ASSERT_EQ(shoal_queue_submit(queue_, second, 2), nullptr);
  EXPECT_TRUE(shoal_request_is_under_way(first));
  while (core_->answer()) {
  }
  for (int i = 0; i < 2; ++i) {
    const shoal_completion done = next();
    EXPECT_EQ(done.request, done.tag == 1 ? first : second);
    EXPECT_EQ(shoal_outcome_code(shoal_request_outcome(done.request)), SHOAL_OK);
  }
  shoal_request_free(first);
  shoal_request_free(second);
}

TEST_F(CRequests, OneThatIsFreedWhileUnderWayIsCanceledAndHasNoHandle) {
  shoal_request* const request = make_request();
  ASSERT_EQ(shoal_queue_submit(queue_, request, 7), nullptr);
  shoal_request_free(request);
  const shoal_completion done = next();
  EXPECT_EQ(done.tag, 7u);
  EXPECT_EQ(done.request, nullptr);
}

TEST_F(CRequests, AQueueThatIsFreedLeavesItsRequestsToTheCaller) {
  shoal_request* const request = make_request();
  ASSERT_EQ(shoal_queue_submit(queue_, request, 7), nullptr);
  shoal_queue_free(queue_);
  EXPECT_EQ(shoal_outcome_code(shoal_request_outcome(request)), SHOAL_CANCELLED);
  ASSERT_EQ(shoal_queue_create(client_, &queue_), nullptr);
  ASSERT_EQ(shoal_queue_submit(queue_, request, 8), nullptr);
  while (core_->answer()) {
  }
  EXPECT_EQ(next().request, request);
  shoal_request_free(request);
}

TEST_F(CRequests, HoldTheMemoryOfTheirInputs) {
  static int deletions = 0;
  deletions = 0;
  float number = 3;
  const std::int64_t size = 1;
  shoal_tensor* wrapped = nullptr;
  ASSERT_EQ(shoal_tensor_wrap(
                SHOAL_FLOAT32, &size, 1, &number, sizeof number, [](void*, void*) { ++deletions; }, nullptr, &wrapped),
            nullptr);
  shoal_request* const request = make_request();
  ASSERT_EQ(shoal_request_set_input_at(request, 0, wrapped), nullptr);
  shoal_tensor_free(wrapped);
  EXPECT_EQ(deletions, 0);
  ASSERT_EQ(shoal_request_set_input_at(request, 0, tensor_), nullptr);
  EXPECT_EQ(deletions, 1);
  shoal_request_free(request);
}

TEST_F(CRequests, CallbacksAreCalledOnceEach) {
  std::atomic<int> codes[2] = {-1, -1};
  const auto keep = [](const shoal_outcome* outcome, void* arg) {
    *static_cast<std::atomic<int>*>(arg) = shoal_outcome_code(outcome);
  };
  const shoal_named_tensor input{nullptr, tensor_};
  for (auto& code : codes) {
    shoal_prediction* prediction = nullptr;
    ASSERT_EQ(shoal_model_submit(model_, &input, 1, nullptr, &prediction), nullptr);
    EXPECT_FALSE(shoal_prediction_ready(prediction));
    ASSERT_EQ(shoal_prediction_then(prediction, keep, &code), nullptr);
    if (&code != codes) shoal_prediction_cancel(prediction);
    shoal_prediction_free(prediction);  // the request goes on
  }
  while (core_->answer()) {
  }
  core_->callbacks().stop();  // waits for the thread that runs them
  EXPECT_EQ(codes[0], SHOAL_OK);
  EXPECT_EQ(codes[1], SHOAL_CANCELLED);
}

TEST_F(CRequests, ACallbackRunsWhereItsExecutorLikes) {
  struct Loop {
    std::promise<shoal_task*> task;
    std::thread::id caller;
  } loop;
  const auto enqueue = [](shoal_task* task, void* arg) { static_cast<Loop*>(arg)->task.set_value(task); };
  const auto keep_thread = [](const shoal_outcome* outcome, void* arg) {
    EXPECT_EQ(shoal_outcome_code(outcome), SHOAL_OK);
    static_cast<Loop*>(arg)->caller = std::this_thread::get_id();
  };
  const shoal_named_tensor input{nullptr, tensor_};
  shoal_prediction* prediction = nullptr;
  ASSERT_EQ(shoal_model_submit(model_, &input, 1, nullptr, &prediction), nullptr);
  ASSERT_EQ(shoal_prediction_then_on(prediction, enqueue, &loop, keep_thread, &loop), nullptr);
  shoal_prediction_free(prediction);  // the request goes on
  core_->answer();
  shoal_task* const task = loop.task.get_future().get();
  EXPECT_EQ(loop.caller, std::thread::id());
  shoal_task_run(task);
  EXPECT_EQ(loop.caller, std::this_thread::get_id());
}

TEST_F(CRequests, ManyThreadsSubmitToOneQueue) {
  constexpr int kThreads = 8, kEach = 50;
  std::atomic<bool> is_over{false};
  std::thread answering([&] {
    while (!is_over || core_->waiting() > 0) {
      if (!core_->answer()) std::this_thread::yield();
    }
  });
  std::atomic<int> taken{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < kEach; ++i) {
        shoal_request* const request = make_request();
        EXPECT_EQ(shoal_request_set_id(request, static_cast<std::uint64_t>(kEach * thread + i)), nullptr);
        EXPECT_EQ(shoal_queue_submit(queue_, request, static_cast<std::uint64_t>(kEach * thread + i)), nullptr);
        shoal_completion done{};
        std::size_t count = 0;
        while (count == 0) EXPECT_EQ(shoal_queue_next(queue_, &done, 1, SHOAL_FOREVER, &count), nullptr);
        EXPECT_EQ(shoal_request_id(done.request), done.tag);
        shoal_request_free(done.request);
        ++taken;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  is_over = true;
  answering.join();
  EXPECT_EQ(taken, kThreads * kEach);
}

}  // namespace
}  // namespace shoal::c

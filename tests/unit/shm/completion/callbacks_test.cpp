// Prediction::then() and Model::infer().
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <coroutine>
#include <filesystem>
#include <future>
#include <iterator>
#include <optional>
#include <thread>

#include "shoal/completion_queue.hpp"
#include "tests/support/function_client.hpp"
#include "tests/support/manual_client.hpp"

namespace shoal {
namespace {

using namespace std::chrono_literals;

Tensors input_of(float value) {
  Tensor tensor = Tensor::create(DType::kFloat32, {1}).value();
  tensor.values<float>()[0] = value;
  return {{"x", std::move(tensor)}};
}

float first_of(const Tensors& outputs) { return outputs.at(0).tensor.values<float>()[0]; }

std::ptrdiff_t thread_count() {
  [[maybe_unused]] static const bool has_started = [] {  // with the first thread starts one of ThreadSanitizer's own
    std::thread([] {}).join();
    return true;
  }();
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
}

/// A coroutine that nobody waits for.
struct Started {
  struct promise_type {
    Started get_return_object() { return {}; }
    std::suspend_never initial_suspend() { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};

/// A coroutine whose owner destroys it.
struct Owned {
  struct promise_type {
    Owned get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_never initial_suspend() { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
  std::coroutine_handle<promise_type> handle;
};

class CallbacksTest : public ::testing::Test {
 protected:
  ~CallbacksTest() override { core_->callbacks().stop(); }

  std::shared_ptr<test::ManualClient> core_ = std::make_shared<test::ManualClient>();
  Client client_{core_};
  Model model_ = client_.model("m").value();
};

TEST_F(CallbacksTest, OneRunsOnceInTheLibrarysThread) {
  const auto before = thread_count();
  std::promise<std::pair<float, std::thread::id>> called;  // set twice, it throws
  {
    const Prediction dropped = model_.submit(input_of(4));
    EXPECT_EQ(thread_count(), before) << "a thread without need";
    ASSERT_TRUE(
        dropped.then([&](const Outcome& outcome) {
                 called.set_value({first_of(*outcome.outputs), std::this_thread::get_id()});
               })
            .ok());
  }
  EXPECT_EQ(thread_count(), before + 1);
  core_->answer();
  const auto [value, thread] = called.get_future().get();
  EXPECT_EQ(value, 4);
  EXPECT_NE(thread, std::this_thread::get_id());
}

TEST_F(CallbacksTest, OneThatComesLateRunsAllTheSame) {
  const Prediction prediction = model_.submit(input_of(4));
  core_->answer();
  std::promise<void> called;
  ASSERT_TRUE(prediction.then([&](const Outcome&) { called.set_value(); }).ok());
  EXPECT_EQ(called.get_future().wait_for(10s), std::future_status::ready);
  std::promise<float> second;  // each request may have several
  ASSERT_TRUE(prediction.then([&](const Outcome& outcome) { second.set_value(first_of(*outcome.outputs)); }).ok());
  EXPECT_EQ(second.get_future().get(), 4);
}

TEST_F(CallbacksTest, AnExecutorRunsThem) {
  std::promise<std::function<void()>> posted;
  bool has_run = false;
  ASSERT_TRUE(model_.submit(input_of(1))
                  .then([&](const Outcome&) { has_run = true; }, [&](std::function<void()> task) { posted.set_value(task); })
                  .ok());
  core_->answer();
  const auto task = posted.get_future().get();
  EXPECT_FALSE(has_run);
  task();
  EXPECT_TRUE(has_run);
}

TEST_F(CallbacksTest, AProgramWithALoopOfItsOwnGetsNoThread) {
  const auto before = thread_count();
  client_.poll_once();
  std::optional<std::thread::id> thread;
  ASSERT_TRUE(model_.submit(input_of(1)).then([&](const Outcome&) { thread = std::this_thread::get_id(); }).ok());
  CompletionQueue queue(client_);
  EXPECT_TRUE(queue.fd().ok());
  EXPECT_EQ(thread_count(), before);
  core_->answer();
  EXPECT_FALSE(thread);
  client_.poll_once();
  EXPECT_EQ(thread, std::this_thread::get_id());
}

TEST_F(CallbacksTest, ACoroutineGoesOnWithTheOutputs) {
  std::promise<float> sum;
  const auto run = [&](Model model) -> Started {
    float total = 0;
    for (int i = 0; i < 3; ++i) {
      const Result<Tensors> outputs = co_await model.infer(input_of(static_cast<float>(i)));
      total += first_of(*outputs);
    }
    sum.set_value(total);
  };
  run(model_);
  auto result = sum.get_future();
  while (result.wait_for(1ms) != std::future_status::ready) core_->answer();
  EXPECT_EQ(result.get(), 3);
}

// A coroutine reads what its lambda has captured from the lambda, which must live as long.
TEST_F(CallbacksTest, ACoroutineUsesARequestAgainAndHearsWhyItCannot) {
  std::promise<Status> refused;
  Request request(model_);
  ASSERT_TRUE(request.set_input("x", input_of(7)[0].tensor).ok());
  CompletionQueue queue(client_);
  ASSERT_TRUE(queue.submit(request, 1).ok());
  const auto refuse = [&](Model model, Request busy) -> Started {
    const Result<Tensors> outputs = co_await model.infer(std::move(busy));
    refused.set_value(outputs.status());
  };
  refuse(model_, request);
  EXPECT_EQ(refused.get_future().get().code(), StatusCode::kFailedPrecondition);
  core_->answer();
  std::array<Completion, 1> completions;
  ASSERT_EQ(queue.next(completions), 1u);

  std::promise<float> answered;
  const auto use_twice = [&](Model model, Request free) -> Started {
    for (int i = 0; i < 2; ++i) {
      const Result<Tensors> outputs = co_await model.infer(free);
      if (i == 1) answered.set_value(first_of(*outputs));
    }
  };
  use_twice(model_, request);
  auto result = answered.get_future();
  while (result.wait_for(1ms) != std::future_status::ready) core_->answer();
  EXPECT_EQ(result.get(), 7);
}

// A loop over requests that end at once must not nest.
TEST_F(CallbacksTest, ACoroutineSendsManyRequestsThatAreRefusedAtOnce) {
  const Client refusing(std::make_shared<test::FunctionClient>(*model_.info(), [](const Tensors&, const SubmitOptions&) {
    return Status(StatusCode::kCancelled, "the pool was destroyed");
  }));
  const Model model = refusing.model("m").value();
  int refused = 0;
  [](Model its, int& count) -> Started {
    for (int i = 0; i < 200'000; ++i) {
      const Result<Tensors> outputs = co_await its.infer(input_of(1));
      count += !outputs.ok();
    }
  }(model, refused);
  EXPECT_EQ(refused, 200'000);
}

TEST_F(CallbacksTest, OneMayRegisterAnother) {
  int depth = 0, deepest = 0, ran = 0;
  std::promise<void> last;
  std::function<void(const Outcome&)> again = [&](const Outcome&) {
    deepest = std::max(deepest, ++depth);
    const bool is_last = ++ran == 1000;
    if (!is_last) EXPECT_TRUE(model_.submit(input_of(1)).then(again).ok());
    core_->answer();
    --depth;
    if (is_last) last.set_value();  // the test ends, and its variables with it
  };
  ASSERT_TRUE(model_.submit(input_of(1)).then(again).ok());
  core_->answer();
  EXPECT_EQ(last.get_future().wait_for(10s), std::future_status::ready);
  EXPECT_EQ(deepest, 1);
}

TEST_F(CallbacksTest, AStopCancelsTheRequestThatACoroutineWaitsFor) {
  std::stop_source stop;
  std::promise<Status> ended;
  const auto wait = [&](Model model) -> Started {
    const Result<Tensors> outputs = co_await model.infer(input_of(1), {}, stop.get_token());
    ended.set_value(outputs.status());
  };
  wait(model_);
  stop.request_stop();
  EXPECT_EQ(ended.get_future().get().code(), StatusCode::kCancelled);
}

TEST_F(CallbacksTest, ACoroutineThatIsDestroyedWhileItWaitsCancelsItsRequest) {
  for (const bool has_executor : {false, true}) {
    std::promise<std::function<void()>> left;
    const Executor executor = [&](std::function<void()> run) { left.set_value(std::move(run)); };
    bool goes_on = false;
    Request request(model_);
    ASSERT_TRUE(request.set_input("x", input_of(7)[0].tensor).ok());
    const auto wait = [&](Model model, Request its) -> Owned {
      (void)co_await model.infer(std::move(its), {}, has_executor ? executor : nullptr);
      goes_on = true;
    };
    const Owned waiting = wait(model_, request);
    EXPECT_TRUE(request.is_under_way());
    waiting.handle.destroy();
    if (has_executor) left.get_future().get()();
    const auto end = std::chrono::steady_clock::now() + 10s;
    while (request.is_under_way() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    EXPECT_EQ(request.outputs().status().code(), StatusCode::kCancelled) << "and it may be submitted again";
    EXPECT_FALSE(goes_on);
  }
}

}  // namespace
}  // namespace shoal

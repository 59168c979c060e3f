// Requests that wait for a context of the engine.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <latch>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "shoal/engine.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/custom_operator.hpp"
#include "tests/support/says.hpp"
#include "tests/unit/worker/engine/engine_fixture.hpp"

namespace shoal {
namespace {

/// Runs of the operator `_hold` say that they have begun, and wait.
struct Hold {
  std::latch begun{1}, go_on{1};
};
Hold* hold = nullptr;

Status hold_it(const worker::Node&, std::span<const TensorView> src, std::span<TensorView> dst) {
  if (src[0].values<float>()[0] == 0) {
    hold->begun.count_down();
    hold->go_on.wait();
  }
  std::ranges::copy(src[0].bytes(), dst[0].bytes().begin());
  return {};
}

/// An engine whose one context is busy with its first request, `held`, until `hold` lets it go on.
class BusyEngineTest : public EngineTest {
 protected:
  BusyEngineTest() {
    test::register_custom_mxnet_operator({.name = "_hold", .oracle = hold_it});
    hold = &hold_;
    test::write_checkpoint(directory_ / "holding", "holding", {{"_hold", "it", {}, {}}}, "[-1]");
  }
  Engine busy_engine(EngineOptions options = {}) {
    options.tuning_ms = 0;  // a run on blank inputs never ends
    Engine engine = Engine::load(directory_ / "holding", std::move(options)).value();
    held_ = engine.submit("", {{"data", tensor_of(Shape{1}, {0})}});
    hold_.begun.wait();
    return engine;
  }
  const Tensors one_{{"data", tensor_of(Shape{1}, {1})}};
  Hold hold_;
  Prediction held_;
};

// It has none of the engine's threads, and the requests of the parent are the parent's.
TEST_F(BusyEngineTest, AForkedChildIsToldToLoadItAgain) {
  Engine engine = busy_engine();
  const Prediction waiting = engine.submit("", one_);
  const int code = test::exit_code_of([&] {
    ::alarm(20);
    const auto is_refusal = [](const Status& status) {
      return status.code() == StatusCode::kFailedPrecondition && test::says(status.message(), {"forked", "again"});
    };
    if (!is_refusal(engine.run(one_).status())) return 1;
    if (!is_refusal(engine.submit("", one_).get().status())) return 2;
    if (!is_refusal(engine.describe().status())) return 3;
    if (!is_refusal(waiting.get().status())) return 4;
    const Engine destroyed = std::move(engine);
    return 0;
  });
  EXPECT_EQ(code, 0);
  hold_.go_on.count_down();
  EXPECT_TRUE(waiting.get().ok());
}

TEST_F(BusyEngineTest, RefusesAtOnceWhenItsQueueIsFull) {
  Engine engine = busy_engine();
  std::vector<Prediction> waiting;
  for (int i = 0; i < 1024; ++i) waiting.push_back(engine.submit("", one_));
  const Prediction one_more = engine.submit("", one_);
  const bool is_refused = one_more.ready();
  EXPECT_FALSE(waiting.back().ready());
  EXPECT_TRUE(is_refused) << "1025 requests wait";
  if (is_refused) {
    EXPECT_EQ(one_more.get().status().code(), StatusCode::kOverloaded);
    EXPECT_NE(one_more.get().status().message().find("EngineOptions::queue_limit"), std::string::npos);
    EXPECT_EQ(one_more.outcome().ran, Ran::kNo);
  }
  waiting[3].cancel();
  const Prediction in_its_place = engine.submit("", one_);
  EXPECT_FALSE(in_its_place.ready());
  hold_.go_on.count_down();
  EXPECT_TRUE(in_its_place.get().ok());
}

TEST_F(BusyEngineTest, ItsQueueIsAsLongAsItsOptionsSay) {
  Engine engine = busy_engine({.queue_limit = 1});
  const Prediction waiting = engine.submit("", one_), refused = engine.submit("", one_);
  EXPECT_FALSE(waiting.ready());
  ASSERT_TRUE(refused.ready());
  EXPECT_EQ(refused.get().status().code(), StatusCode::kOverloaded);
  hold_.go_on.count_down();
  EXPECT_TRUE(waiting.get().ok());
}

// As with a Pool: the caller may use their memory for the next request. A loan is used where it lies.
TEST_F(BusyEngineTest, InputsThatAreNoLoansAreCopied) {
  Engine engine = busy_engine();
  Tensor own = tensor_of(Shape{1}, {1}), loan = engine.client().loan(DType::kFloat32, {1}).value();
  loan.values<float>()[0] = 1;
  const Prediction of_own = engine.submit("", {{"data", own}}), of_loan = engine.submit("", {{"data", loan}});
  own.values<float>()[0] = loan.values<float>()[0] = 2;
  hold_.go_on.count_down();
  EXPECT_EQ(of_own.get().value().at(0).tensor.values<float>()[0], 1);
  EXPECT_EQ(of_loan.get().value().at(0).tensor.values<float>()[0], 2);
}

TEST_F(BusyEngineTest, AWaitEndsWhenAStopIsRequested) {
  Engine engine = busy_engine();
  std::stop_source source;
  const std::jthread stopper([&] { source.request_stop(); });
  EXPECT_FALSE(held_.wait_for(std::chrono::hours(1), source.get_token()));
  hold_.go_on.count_down();
  EXPECT_TRUE(held_.wait_for(std::chrono::hours(1), source.get_token()) || held_.get().ok()) << "the request goes on";
}

TEST_F(BusyEngineTest, ARequestWithANegativeTimeoutFailsAtOnce) {
  Engine engine = busy_engine();
  EXPECT_EQ(engine.submit("", one_, {.timeout = std::chrono::seconds(-1)}).get().status().code(), StatusCode::kDeadlineExceeded);
  hold_.go_on.count_down();
}

// As a worker says it.
TEST_F(BusyEngineTest, ARequestThatIsCancelledWhileItRunsMayHaveRun) {
  Engine engine = busy_engine();
  const Prediction waiting = engine.submit("", one_);
  held_.cancel();
  waiting.cancel();
  hold_.go_on.count_down();
  EXPECT_EQ(held_.get().status().code(), StatusCode::kCancelled);
  EXPECT_EQ(held_.outcome().ran, Ran::kMaybe);
  EXPECT_EQ(waiting.outcome().ran, Ran::kNo);
}

TEST_F(EngineTest, WaitingRequestsAreCancelledWhenItIsDestroyed) {
  std::vector<Prediction> predictions;
  {
    Engine engine = Engine::load("builtin:identity").value();
    for (int i = 0; i < 1000; ++i) predictions.push_back(engine.submit("", {{"data", tensor_of(Shape{2}, {1, 2})}}));
  }
  for (const Prediction& prediction : predictions) {
    const auto& outputs = prediction.get();
    EXPECT_TRUE(outputs.ok() || outputs.status().code() == StatusCode::kCancelled);
  }
}

}  // namespace
}  // namespace shoal

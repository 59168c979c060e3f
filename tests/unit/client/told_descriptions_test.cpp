// What the daemon tells of its models without being asked.
#include <gtest/gtest.h>

#include <chrono>
#include <future>

#include "shoal/completion_queue.hpp"
#include "shoal/pool.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/unit/client/fake_daemon.hpp"

namespace shoal {
namespace {

using namespace std::chrono_literals;
using test::FakeDaemon;

class ToldDescriptionsTest : public testing::Test {
 protected:
  Pool connect() {
    auto pool = std::async(std::launch::async, [&] {
      return Pool::connect({.directory = scratch_.path(), .reconnect_timeout = 1h, .control_timeout = 1h}).value();
    });
    daemon_.let_in();
    return pool.get();
  }
  static Tensors input() { return {{"data", Tensor::create(DType::kUInt8, Shape{1}).value()}}; }

  const test::ScratchDirectory scratch_;
  FakeDaemon daemon_{scratch_.path()};
};

// Those that cannot be read are asked for.
TEST_F(ToldDescriptionsTest, TheFirstRequestOfAModelThatTheWelcomeDescribesLeavesBeforeAnybodyWaits) {
  daemon_.welcome_with({"{", "", R"({"name": "other"})", daemon_.description(), daemon_.description()});
  Pool pool = connect();
  Prediction known = pool.submit("m", input());
  const std::uint64_t seq = daemon_.receive_request();
  Prediction unknown = pool.submit("other", input());
  EXPECT_FALSE(daemon_.receive(20ms)) << "it only describes the model";
  daemon_.reply(seq);
  EXPECT_TRUE(FakeDaemon::comes([&] { return known.ready(); }));
  EXPECT_FALSE(unknown.ready());
  daemon_.reply(daemon_.receive_request());
  EXPECT_TRUE(FakeDaemon::comes([&] { return unknown.ready(); }));
}

TEST_F(ToldDescriptionsTest, WhatWasToldBeforeIsNoAnswerToAQuestion) {
  daemon_.welcome_with({daemon_.description()});
  Pool pool = connect();
  for (const int columns : {3, 5}) {
    daemon_.describe_as(R"({"name": "m", "model_id": 1, "signature": 2, "inputs": [{"name": "data", "dtype": "uint8", )"
                        R"("shape": [2, )" +
                        std::to_string(columns) + R"(]}], "outputs": []})");
    daemon_.answer(0, daemon_.description());
  }
  const Prediction asked = pool.submit("m", {{"data", Tensor::create(DType::kUInt8, Shape{2, 5}).value()}});
  auto answered = std::async(std::launch::async, [&] { return asked.wait_for(1h); });
  daemon_.reply(daemon_.receive_request());
  EXPECT_TRUE(answered.get());
  EXPECT_EQ(asked.outcome().outputs.status().code(), StatusCode::kInternal) << "the daemon's answer";
}

TEST_F(ToldDescriptionsTest, AnInputIsComparedWithWhatTheDaemonHasToldSince) {
  daemon_.welcome_with({daemon_.description()});
  Pool pool = connect();
  auto asked = std::async(std::launch::async, [&] { return pool.client().model("m"); });
  while (asked.wait_for(0s) != std::future_status::ready) daemon_.receive(10ms);
  Request request(asked.get().value());
  const Tensor pair = Tensor::create(DType::kUInt8, Shape{2, 3}).value();
  EXPECT_EQ(request.set_input(0, pair).code(), StatusCode::kInvalidArgument);
  daemon_.answer(0, R"({"name": "m", "model_id": 1, "signature": 2, "inputs": [{"name": "data", "dtype": "uint8", )"
                    R"("shape": [2, 3]}], "outputs": []})");
  EXPECT_TRUE(FakeDaemon::comes([&] { return request.set_input(0, pair).ok(); }));
  EXPECT_EQ(request.set_input(0, input()[0].tensor).code(), StatusCode::kInvalidArgument);
}

// One that the daemon before did not answer, and one that was submitted while there was none.
TEST_F(ToldDescriptionsTest, AWelcomeSendsWhatWaitedForItOnce) {
  daemon_.welcome_with({daemon_.description()});
  Pool pool = connect();
  Prediction early = pool.submit("m", input());
  daemon_.receive_request();
  daemon_.drop_client();
  while (!daemon_.has_visitor()) pool.poll_once();
  Prediction late = pool.submit("m", input());
  auto answered = std::async(std::launch::async, [&] { return early.wait_for(1h) && late.wait_for(1h); });
  daemon_.let_in();
  for (int i = 0; i < 2; ++i) daemon_.reply(daemon_.receive_request());
  EXPECT_TRUE(answered.get());
  EXPECT_FALSE(daemon_.receive(20ms)) << "nothing is sent twice";
  for (const Prediction* each : {&early, &late}) EXPECT_EQ(each->outcome().outputs.status().code(), StatusCode::kInternal);
}

}  // namespace
}  // namespace shoal

// No failed allocation ends the program, loses one of the engine's contexts or leaves a request without an outcome.
#include <gtest/gtest.h>

#include <cstring>
#include <new>
#include <optional>

#include "shoal/engine.hpp"
#include "tests/support/allocations.hpp"
#include "worker/engine/identity_model.hpp"

namespace shoal {
namespace {

Tensors input() {
  Tensor tensor = Tensor::create(DType::kFloat32, {1, 4}).value();
  std::memset(tensor.view().data, 0, tensor.view().size_bytes());
  return {{"data", std::move(tensor)}};
}

class EngineAllocations : public testing::Test {
 protected:
  // A context that is not given back makes every later run wait for ever.
  template <typename Fail>
  void expect_outcomes(const Fail& fail) {
    test::for_each_allocation(1, [&](std::uint64_t number) {
      std::optional<Result<Tensors>> outputs;
      fail(number);
      try {
        outputs.emplace(engine_.run(input_));
      } catch (const std::bad_alloc&) {
      }
      const bool has_failed = test::has_allocation_failed();
      test::fail_allocation(0);
      if (!has_failed) return false;
      EXPECT_TRUE(outputs) << "an exception left run()";
      if (outputs && !outputs->ok()) {
        EXPECT_EQ(outputs->status().code(), StatusCode::kFailedPrecondition);
      }
      EXPECT_TRUE(engine_.run(input_).ok());
      return true;
    });
  }

  Engine engine_ = Engine::load(worker::kIdentityPath, {.contexts = 1}).value();
  const Tensors input_ = input();
};

TEST_F(EngineAllocations, OneThatFailsLosesNoContext) { expect_outcomes(test::fail_allocation); }

TEST_F(EngineAllocations, AllThatFailLoseNoContext) { expect_outcomes(test::fail_allocations_from); }

TEST_F(EngineAllocations, ASubmittedRequestThatFindsNoneEndsSo) {
  int thrown = 0;
  test::for_each_allocation(3, [&](std::uint64_t number) {
    Engine engine = Engine::load(worker::kIdentityPath, {.contexts = 1}).value();
    Tensors inputs = input_;
    std::optional<Prediction> asked;
    test::fail_allocation(number);
    try {
      asked.emplace(engine.submit("", std::move(inputs)));
    } catch (const std::bad_alloc&) {  // there is not even a request
      ++thrown;
    }
    const bool has_failed = test::has_allocation_failed();
    test::fail_allocation(0);
    if (!asked) return true;
    EXPECT_EQ(asked->get().status().code(), has_failed ? StatusCode::kFailedPrecondition : StatusCode::kOk);
    EXPECT_TRUE(engine.submit("", input_).get().ok());
    return has_failed;
  });
  EXPECT_LE(thrown, 3) << "the request, its list of inputs, and its Prediction";
}

TEST_F(EngineAllocations, PredictionsAreDestroyedWithoutAny) {
  std::optional<Prediction> answered(engine_.submit("", input_));
  ASSERT_TRUE(answered->outcome().outputs.ok());
  std::optional<Prediction> waiting(engine_.submit("", input_));
  test::fail_allocations_from(1);
  answered.reset();
  waiting.reset();
  EXPECT_FALSE(test::has_allocation_failed());
  test::fail_allocation(0);
}

}  // namespace
}  // namespace shoal

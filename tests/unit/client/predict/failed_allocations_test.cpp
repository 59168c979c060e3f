// A failed allocation is an error, and the predictor can be used afterwards. Not so while a model is read and compiled: the JSON
// library allocates where it frees, and oneDNN 2.6.3's cache of primitives is damaged.
#include <gtest/gtest.h>

#include "tests/support/allocations.hpp"
#include "tests/unit/client/predict/predict_fixture.hpp"

namespace shoal::test {
namespace {

/// Calls `call`, which returns 0 or -1, and lets each of its allocations fail once.
template <typename Call>
void expect_errors(const Call& call) {
  for_each_allocation(0, [&](std::uint64_t number) {
    fail_allocation(number);
    const int result = call();
    const bool has_failed = has_allocation_failed();
    fail_allocation(0);
    EXPECT_TRUE(result == 0 || error_says({"memory"}));
    return has_failed;
  });
}

TEST(PredictAllocations, ThatFailAreErrors) {
  const PredictorPtr predictor = create(decimal(), {{"data", {1, 4}}});
  expect_errors([&] { return MXPredForward(predictor.get()); });
  EXPECT_EQ(ask(predictor, {1, 2, 3, 4}), (std::vector<float>{2, 21, 301, 4001}));
}

TEST(PredictAllocations, ThatFailAreErrorsOfAList) {
  const std::string bytes = list({record(Era::kV2, {2}, 3, "ab"), record(Era::kV2, {2}, 0, floats(2))}, {"mean", "b"});
  expect_errors([&] {
    NDListHandle list = nullptr;
    std::uint32_t length = 0;
    const int result = MXNDListCreate(bytes.data(), static_cast<int>(bytes.size()), &list, &length);
    if (result == 0) MXNDListFree(list);
    return result;
  });
}

// Rounding is a kernel of Shoal's: oneDNN's primitives allocate in each run.
TEST(PredictAllocations, ARunMakesNoneOfItsOwn) {
  if (!kCountsAllocations) GTEST_SKIP() << "no program replaces ThreadSanitizer's operator new";
  const Checkpoint model{symbol_of(variable("data") + "," + node("rint", "rounded", "[[0, 0, 0]]"), "[[1, 0, 0]]"), list({}, {})};
  const PredictorPtr predictor = create(model, {{"data", {64, 4}}});
  std::vector<float> data(256), room(256);
  std::iota(data.begin(), data.end(), 0.f);
  const auto run = [&] {
    MXPredSetInput(predictor.get(), "data", data.data(), 256);
    MXPredForward(predictor.get());
    MXPredGetOutput(predictor.get(), 0, room.data(), 256);
  };
  run();
  const std::uint64_t before = allocations();
  for (int i = 0; i < 100; ++i) run();
  EXPECT_EQ(allocations(), before);
  EXPECT_EQ(room[4], 4);
}

}  // namespace
}  // namespace shoal::test

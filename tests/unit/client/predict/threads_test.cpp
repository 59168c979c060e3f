// Any number of threads predict at the same time, each with predictors of its own: no result belongs to another request.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <random>
#include <thread>

#include "tests/support/vectors.hpp"
#include "tests/unit/client/predict/predict_fixture.hpp"

namespace shoal::test {
namespace {

constexpr int kThreads = 20, kRequests = 32;
constexpr std::uint32_t kRows = 64;

/// Input of a request, which no other request has.
std::vector<float> rows_of(int thread, int request, std::uint32_t rows = kRows) {
  std::vector<float> data;
  for (std::uint32_t row = 0; row < rows; ++row) {
    for (const int value : {thread, request, thread * kRequests + request, static_cast<int>(row)})
      data.push_back(static_cast<float>(value));
  }
  return data;
}
std::vector<float> answer_to(const std::vector<float>& data) {
  std::vector<float> answer;
  for (std::size_t i = 0; i < data.size(); i += 4) {
    for (const float value : decimal_of({data[i], data[i + 1], data[i + 2], data[i + 3]})) answer.push_back(value);
  }
  return answer;
}

/// Runs `body` in that many threads, which begin together.
void in_threads(const std::function<void(int thread)>& body) {
  std::atomic<int> waiting{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      ++waiting;
      while (waiting < kThreads) std::this_thread::yield();
      body(thread);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void expect_own_answers(const PredictorPtr& predictor, int thread) {
  for (int request = 0; request < kRequests; ++request) {
    const std::vector<float> data = rows_of(thread, request);
    ASSERT_EQ(ask(predictor, data), answer_to(data)) << "thread " << thread << ", request " << request;
  }
}

TEST(PredictThreads, WithAPredictorEachGetTheirOwnAnswers) {
  in_threads([](int thread) { expect_own_answers(create(decimal(), {{"data", {kRows, 4}}}), thread); });
}

// MXNet shares the arrays of the inputs here, and binds in the first run of each thread.
TEST(PredictThreads, WithPredictorsOfOneModelGetTheirOwnAnswers) {
  const auto predictors = create_several(decimal(), {{"data", {kRows, 4}}}, kThreads);
  ASSERT_EQ(predictors.size(), std::size_t{kThreads}) << MXGetLastError();
  in_threads([&](int thread) { expect_own_answers(predictors[static_cast<std::size_t>(thread)], thread); });
}

TEST(PredictThreads, ReshapeWhileOthersRun) {
  const auto predictors = create_several(decimal(), {{"data", {kRows, 4}}}, kThreads);
  ASSERT_EQ(predictors.size(), std::size_t{kThreads}) << MXGetLastError();
  in_threads([&](int thread) {
    for (int request = 0; request < kRequests; ++request) {
      const auto rows = static_cast<std::uint32_t>(1 + (thread + request) % 8);
      const PredictorPtr reshaped = reshape(predictors[static_cast<std::size_t>(thread)], {{"data", {rows, 4}}});
      ASSERT_TRUE(reshaped) << MXGetLastError();
      const std::vector<float> data = rows_of(thread, request, rows);
      ASSERT_EQ(ask(reshaped, data), answer_to(data));
    }
  });
}

// They share one model, if one lives at the time. A thread loads it while others wait, run and free.
TEST(PredictThreads, MakeRunAndFreePredictorsOfEqualBytes) {
  in_threads([](int thread) {
    for (int request = 0; request < kRequests; ++request) {
      const auto rows = static_cast<std::uint32_t>(1 + (thread + request) % 4);
      Checkpoint model = decimal();
      const bool is_other = (thread + request) % 5 == 0;
      if (is_other) model.params = params_of("arg:factor", {2, 2, 2, 2});
      const PredictorPtr predictor = create(model, {{"data", {rows, 4}}});
      ASSERT_TRUE(predictor) << MXGetLastError();
      const std::vector<float> data = rows_of(thread, request, rows);
      std::vector<float> wanted = answer_to(data);
      if (is_other) std::ranges::transform(data, wanted.begin(), [](float value) { return 2 * value + 1; });
      ASSERT_EQ(ask(predictor, data), wanted) << "thread " << thread << ", request " << request;
    }
  });
}

TEST(PredictThreads, MayHandAPredictorOn) {
  const PredictorPtr predictor = create(decimal(), {{"data", {1, 4}}});
  for (int thread = 0; thread < kThreads; ++thread) {
    const auto value = static_cast<float>(thread);
    std::thread([&] { EXPECT_EQ(ask(predictor, {value, 0, 0, 0})[0], value + 1); }).join();
  }
}

/// A real network, whose layers need scratch memory.
class PredictThreadsOfANetwork : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto prefix = testing::test_data() / "models" / "mnist-lenet-mx05" / "mnist-lenet-0";
    if (!std::filesystem::exists(prefix.string() + "-symbol.json")) GTEST_SKIP() << "no " << prefix << "; set SHOAL_TEST_DATA";
    lenet_ = read_checkpoint(prefix.string(), 10);
    std::mt19937 random(3);
    std::uniform_real_distribution<float> pixel(0, 1);
    for (int i = 0; i < kThreads * kRequests; ++i) {
      std::vector<float>& picture = pictures_.emplace_back(28 * 28);
      for (float& value : picture) value = pixel(random);
    }
  }

  /// Asks `alone` for the answers, and compares them bit by bit with those of `of_thread(thread)`.
  void expect_answers(const PredictorPtr& alone, const std::function<const PredictorPtr&(int thread)>& of_thread) {
    std::vector<std::vector<float>> wanted;
    for (const auto& picture : pictures_) wanted.push_back(ask(alone, picture));
    EXPECT_NE(wanted[0], wanted[1]);
    in_threads([&](int thread) {
      const PredictorPtr& predictor = of_thread(thread);
      for (int request = 0; request < kRequests; ++request) {
        const auto index = static_cast<std::size_t>(thread * kRequests + request);
        ASSERT_EQ(ask(predictor, pictures_[index]), wanted[index]) << "thread " << thread << ", request " << request;
      }
    });
  }

  const InputShapes shape_{{"data", {1, 1, 28, 28}}};
  Checkpoint lenet_;
  std::vector<std::vector<float>> pictures_;
};

TEST_F(PredictThreadsOfANetwork, WithAPredictorEachGetTheirOwnAnswers) {
  std::vector<PredictorPtr> predictors(kThreads);
  expect_answers(create(lenet_, shape_), [&](int thread) -> const PredictorPtr& {
    return predictors[static_cast<std::size_t>(thread)] = create(lenet_, shape_);
  });
}

TEST_F(PredictThreadsOfANetwork, WithPredictorsOfOneModelGetTheirOwnAnswers) {
  const auto predictors = create_several(lenet_, shape_, kThreads + 1);
  ASSERT_EQ(predictors.size(), std::size_t{kThreads + 1}) << MXGetLastError();
  expect_answers(predictors.back(),
                 [&](int thread) -> const PredictorPtr& { return predictors[static_cast<std::size_t>(thread)]; });
}

}  // namespace
}  // namespace shoal::test

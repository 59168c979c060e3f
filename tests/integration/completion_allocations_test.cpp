// What a request that is used again costs its client: no allocation, and no copy of tensors in shared memory.
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shoal/completion_queue.hpp"
#include "tests/support/allocations.hpp"
#include "tests/support/pool_fixture.hpp"

namespace shoal::test {
namespace {

constexpr int kWarmUp = 300, kCounted = 2000;
constexpr std::size_t kInFlight = 64;
constexpr std::uint64_t kPerPeak = 100;  // of many requests one may allocate, where a list is longer than ever before

class CompletionAllocations : public ::testing::TestWithParam<bool> {
 protected:
  /// Submits the request again and again, one at a time.
  void run(Request& request, int times) {
    for (int i = 0; i < times; ++i) {
      ASSERT_TRUE(queue_.submit(request, 1).ok());
      ASSERT_EQ(queue_.next(completions_), 1u);
      ASSERT_TRUE(completions_[0].request.outputs().ok()) << completions_[0].request.outputs().status().to_string();
      completions_[0] = {};
    }
  }

  DaemonFixture daemon_;
  Pool pool_ = daemon_.connect();
  const Client client_ = pool_.client();
  CompletionQueue queue_{client_};
  std::array<Completion, 1> completions_;
};

INSTANTIATE_TEST_SUITE_P(Inputs, CompletionAllocations, ::testing::Bool(),
                         [](const auto& param) { return param.param ? "Loaned" : "OfTheCaller"; });

TEST_P(CompletionAllocations, ARequestThatIsUsedAgainAllocatesNothing) {
  if (!kCountsAllocations) GTEST_SKIP() << "this build counts no allocations";
  Request request(client_.model("echo").value());
  Tensor input = GetParam() ? client_.loan(DType::kFloat32, {64}).value() : counting({64});
  input.values<float>()[0] = 1;
  ASSERT_TRUE(request.set_input("data", input).ok());
  run(request, kWarmUp);
  const std::uint64_t before = allocations();
  run(request, kCounted);
  EXPECT_EQ(allocations() - before, 0u) << "in " << kCounted << " requests, those of libzmq's threads included";
}

TEST_P(CompletionAllocations, AnOwnOutputIsWrittenInPlace) {
  const Model model = client_.model("echo").value();
  const std::string output = model.info()->outputs.at(0).name;
  Request request(model);
  ASSERT_TRUE(request.set_input("data", counting({64}, 7)).ok());
  Tensor own = GetParam() ? client_.loan_output(DType::kFloat32, {64}).value() : Tensor::create(DType::kFloat32, {64}).value();
  ASSERT_TRUE(request.set_output(output, own).ok());
  run(request, 3);
  EXPECT_EQ(own.values<float>()[1], 8.0F);
  EXPECT_EQ(request.outputs().value().at(0).tensor.view().data, own.view().data);
  const ArenaUsage usage = pool_.usage().outputs;
  EXPECT_EQ(usage.copied, GetParam() ? 0u : 3u);

  Tensor small = GetParam() ? client_.loan_output(DType::kFloat32, {32}).value() : Tensor::create(DType::kFloat32, {32}).value();
  ASSERT_TRUE(request.set_output(output, small).ok());
  ASSERT_TRUE(queue_.submit(request, 1).ok());
  ASSERT_EQ(queue_.next(completions_), 1u);
  const Status status = request.outputs().status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("the memory for output '" + output + "' has shape 32"), std::string::npos)
      << status.to_string();
}

TEST(CompletionAllocationsOfMany, RequestsThatAreUsedAgainAllocateNothing) {
  if (!kCountsAllocations) GTEST_SKIP() << "this build counts no allocations";
  const std::string name = "a-name-that-is-too-long-for-a-string-without-memory-of-its-own";
  const DaemonFixture daemon({.models = {name + "=builtin:identity"}});
  Pool pool = daemon.connect();
  const Client client = pool.client();
  const Model model = client.model(name).value();
  std::vector<Request> idle;
  while (idle.size() < kInFlight) {
    idle.emplace_back(model);
    ASSERT_TRUE(idle.back().set_input("data", client.loan(DType::kFloat32, {64}).value()).ok());
  }
  CompletionQueue queue(client);
  std::array<Completion, kInFlight> completions;
  const auto run = [&](int rounds) {
    for (int round = 0; round < rounds; ++round) {
      for (; !idle.empty(); idle.pop_back()) ASSERT_TRUE(queue.submit(idle.back(), 1).ok());
      while (idle.size() < kInFlight) {
        const std::size_t count = queue.next(completions);
        ASSERT_GT(count, 0u);
        for (std::size_t i = 0; i < count; ++i) {
          const Result<Tensors>& outputs = completions[i].request.outputs();
          ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
          idle.push_back(std::move(completions[i].request));
        }
      }
    }
  };
  run(kWarmUp / 3);
  if (::testing::Test::HasFatalFailure()) return;
  const std::uint64_t before = allocations();
  run(kCounted / 10);
  const std::uint64_t requests = kCounted / 10 * kInFlight;
  EXPECT_LT(allocations() - before, requests / kPerPeak) << "in " << requests << " requests";
}

TEST(CompletionCopies, ALoanedInputIsNotCopied) {
  const DaemonFixture daemon;
  const Pool pool = daemon.connect();
  const Client client = pool.client();
  CompletionQueue queue(client);
  std::array<Completion, 1> completions;
  Request request(client.model("echo").value());
  Tensor loan = client.loan(DType::kFloat32, {1 << 18}).value();
  loan.values<float>()[0] = 5;
  const std::uint64_t loaned_bytes = pool.usage().inputs.used_bytes;
  EXPECT_GE(loaned_bytes, loan.view().size_bytes());
  const auto used_bytes_while_it_waits = [&] {
    StoppedModel stopped(daemon, "echo");
    EXPECT_TRUE(queue.submit(request, 1).ok());
    const std::uint64_t bytes = pool.usage().inputs.used_bytes;
    stopped.go_on();
    EXPECT_EQ(queue.next(completions), 1u);
    EXPECT_EQ(request.outputs().value().at(0).tensor.values<float>()[0], 5.0F);
    return bytes;
  };
  ASSERT_TRUE(request.set_input("data", loan).ok());
  EXPECT_EQ(used_bytes_while_it_waits(), loaned_bytes);
  EXPECT_EQ(pool.usage().inputs.copied, 0u);

  Tensor own = counting({1 << 18}, 5);
  ASSERT_TRUE(request.set_input("data", own).ok());
  EXPECT_GE(used_bytes_while_it_waits(), loaned_bytes + own.view().size_bytes()) << "the arena does not count what it holds";
}

TEST(CompletionCopies, AnOutputCanBeReadWhenItsPoolIsGone) {
  const DaemonFixture daemon;
  std::optional<Pool> pool = daemon.connect();
  Tensors outputs = pool->predict("echo", {{"data", counting({1 << 18}, 3)}}).value();
  outputs = pool->predict("echo", {{"data", counting({1 << 18}, 3)}}).value();  // its size is known now: it lies in the arena
  EXPECT_GT(pool->usage().outputs.used_bytes, 0u);
  pool.reset();
  const std::span<float> values = outputs.at(0).tensor.values<float>();
  for (std::size_t i = 0; i < values.size(); i += 1024) ASSERT_EQ(values[i], 3 + static_cast<float>(i));
  values.back() = 1;
}

}  // namespace
}  // namespace shoal::test

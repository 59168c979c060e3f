// What a request that is used again costs its client: no allocation, and no copy of tensors in shared memory.
#include <gtest/gtest.h>

#include <array>

#include "shoal/completion_queue.hpp"
#include "tests/support/allocations.hpp"
#include "tests/support/pool_fixture.hpp"

namespace shoal::test {
namespace {

constexpr int kWarmUp = 300, kCounted = 2000;

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

}  // namespace
}  // namespace shoal::test

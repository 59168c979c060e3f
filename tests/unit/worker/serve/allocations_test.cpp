// A lane allocates nothing for a request of a kind that it has had before, alone or joined.
#include <gtest/gtest.h>

#include "tests/support/allocations.hpp"
#include "tests/support/lane_parts.hpp"
#include "worker/engine/identity_model.hpp"

namespace shoal::worker {
namespace {

constexpr std::size_t kMembers = 5;
constexpr int kRounds = 50;

class LaneAllocations : public ::testing::Test {
 protected:
  LaneAllocations() {
    const Tensor input = Tensor::create(DType::kFloat32, {1, 16}).value();
    for (std::size_t i = 0; i < kMembers; ++i) messages_.add(test::framed_request(i + 1, input), input);
  }

  template <typename Answer>
  std::uint64_t count(const Answer& answer) {
    for (int i = 0; i < kRounds; ++i) answer();
    const std::uint64_t before = test::allocations();
    for (int i = 0; i < kRounds; ++i) answer();
    return test::allocations() - before;
  }

  IdentityModel model_{8};
  test::LaneParts parts_{"echo", model_, {{"data", DType::kFloat32, Shape{-1, 16}}}};
  RequestRunner runner_{parts_.environment, 0, parts_.line, parts_.bell};
  test::RequestMessages messages_;
};

TEST_F(LaneAllocations, NoneForARequest) {
  EXPECT_EQ(count([&] { ASSERT_EQ(runner_.answer(messages_[0]).size(), 3u); }), 0u);
}

TEST_F(LaneAllocations, NoneForRequestsThatRunTogether) {
  int replies = 0;
  const RequestRunner::Send send = [&](Frames) { ++replies; };
  EXPECT_EQ(count([&] { ASSERT_TRUE(runner_.answer_joined(messages_.all(), send)); }), 0u);
  EXPECT_EQ(replies, 2 * kRounds * static_cast<int>(kMembers));
}

}  // namespace
}  // namespace shoal::worker

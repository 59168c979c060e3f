// A lane allocates nothing for a request of a kind that it has had before, alone or joined.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/support/lane_parts.hpp"
#include "worker/engine/identity_model.hpp"

namespace {
std::atomic<std::uint64_t> allocations{0};
}

void* operator new(std::size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace shoal::worker {
namespace {

constexpr std::size_t kMembers = 5;
constexpr int kRounds = 50;

class LaneAllocations : public ::testing::Test {
 protected:
  LaneAllocations() {
    for (std::size_t i = 0; i < kMembers; ++i) {
      wire::Request request;
      request.header = {.kind = static_cast<std::uint16_t>(wire::Kind::kRequest), .request_id = i + 1, .attempt = 1};
      request.inputs = {wire::to_wire(input_.view())};
      request.inputs[0].location = static_cast<std::uint8_t>(wire::Location::kFrame);
      wire::encode_request(request, heads_[i]);
      frames_[i] = {heads_[i], input_.view().bytes()};
      messages_.push_back(frames_[i]);
    }
  }

  template <typename Answer>
  std::uint64_t count(const Answer& answer) {
    for (int i = 0; i < kRounds; ++i) answer();
    const std::uint64_t before = allocations;
    for (int i = 0; i < kRounds; ++i) answer();
    return allocations - before;
  }

  const Tensor input_ = Tensor::create(DType::kFloat32, {1, 16}).value();
  IdentityModel model_{8};
  test::LaneParts parts_{"echo", model_, {{"data", DType::kFloat32, Shape{-1, 16}}}};
  RequestRunner runner_{parts_.environment, 0, parts_.line, -1};
  std::vector<std::byte> heads_[kMembers];
  std::vector<std::span<const std::byte>> frames_[kMembers];
  std::vector<Frames> messages_;
};

TEST_F(LaneAllocations, NoneForARequest) {
  EXPECT_EQ(count([&] { ASSERT_EQ(runner_.answer(messages_[0]).size(), 3u); }), 0u);
}

TEST_F(LaneAllocations, NoneForRequestsThatRunTogether) {
  int replies = 0;
  const RequestRunner::Send send = [&](Frames) { ++replies; };
  EXPECT_EQ(count([&] { ASSERT_TRUE(runner_.answer_joined(messages_, send)); }), 0u);
  EXPECT_EQ(replies, 2 * kRounds * static_cast<int>(kMembers));
}

}  // namespace
}  // namespace shoal::worker

#include "worker/serve/quarantine.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <thread>

namespace shoal::worker {
namespace {

TensorView view(std::array<float, 4>& values, const Shape& shape, DType dtype = DType::kFloat32) {
  return {dtype, shape, reinterpret_cast<std::byte*>(values.data())};
}

TEST(HashInputs, ChangesWithBytesShapeAndTypeAndWithNothingElse) {
  std::array<float, 4> a{1, 2, 3, 4}, same = a, other{1, 2, 3, 5};
  const TensorView base = view(a, {2, 2});
  const std::uint64_t hash = hash_inputs({&base, 1});
  const auto hash_of = [](const TensorView& one) { return hash_inputs({&one, 1}); };
  EXPECT_EQ(hash_of(view(same, {2, 2})), hash);
  EXPECT_NE(hash_of(view(other, {2, 2})), hash);
  EXPECT_NE(hash_of(view(a, {4})), hash);
  EXPECT_NE(hash_of(view(a, {4, 1})), hash);
  EXPECT_NE(hash_of(view(a, {2, 2}, DType::kInt32)), hash);
  const TensorView two[] = {base, base};
  EXPECT_NE(hash_inputs(two), hash);
  EXPECT_NE(hash_inputs({}), 0u);
}

TEST(Quarantine, HoldsTheListThatCameLast) {
  Quarantine quarantine;
  EXPECT_TRUE(quarantine.is_empty());
  ASSERT_TRUE(quarantine.replace("00000000000000ff\nfedcba9876543210", 1).ok());
  EXPECT_FALSE(quarantine.is_empty());
  EXPECT_TRUE(quarantine.contains(0xff));
  EXPECT_TRUE(quarantine.contains(0xfedcba9876543210));
  EXPECT_FALSE(quarantine.contains(1));
  ASSERT_TRUE(quarantine.replace("0000000000000001\n", 1).ok());
  EXPECT_FALSE(quarantine.contains(0xff));
  EXPECT_TRUE(quarantine.contains(1));
  ASSERT_TRUE(quarantine.replace("", 1).ok());
  EXPECT_TRUE(quarantine.is_empty());
}

TEST(Quarantine, TheListThatARequestWasSentUnderIsWaitedForOnce) {
  using namespace std::chrono_literals;
  Quarantine quarantine;
  ASSERT_TRUE(quarantine.replace("", 254).ok());
  quarantine.wait_for(255, 1ms);  // it does not come
  quarantine.wait_for(255, 10min);
  std::thread control([&] {
    std::this_thread::sleep_for(20ms);
    EXPECT_TRUE(quarantine.replace("00000000000000ff\n", 1).ok());  // the next
  });
  quarantine.wait_for(1, 10min);
  EXPECT_TRUE(quarantine.contains(0xff));
  quarantine.wait_for(254, 10min);  // an older one
  control.join();
}

TEST(Quarantine, AListThatCannotBeReadChangesNothing) {
  Quarantine quarantine;
  ASSERT_TRUE(quarantine.replace("00000000000000ff\n", 1).ok());
  for (const char* text : {"ff\n", "00000000000000fg\n", "\n", "00000000000000ff00\n", "00000000000000fe\n\n"}) {
    EXPECT_EQ(quarantine.replace(text, 1).code(), StatusCode::kInvalidArgument) << text;
  }
  EXPECT_TRUE(quarantine.contains(0xff));
  EXPECT_FALSE(quarantine.contains(0xfe));
}

}  // namespace
}  // namespace shoal::worker

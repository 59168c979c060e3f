#include "client/src/arena.hpp"

#include <gtest/gtest.h>

#include "tests/support/child_process.hpp"

namespace shoal::client {
namespace {

TEST(Arena, ASlotComesBackWhenItsLastHolderLetsGo) {
  const auto arena = Arena::create("test", 4096, Seals::kOneWriter).value();
  auto slot = arena->allocate(4096);
  ASSERT_TRUE(slot);
  const auto other_holder = std::make_unique<std::shared_ptr<Slot>>(slot);
  slot.reset();
  EXPECT_EQ(arena->allocate(1), nullptr);
  other_holder->reset();
  EXPECT_NE(arena->allocate(1), nullptr);
}

TEST(Arena, ASlotKeepsTheMemoryMapped) {
  auto arena = Arena::create("test", 4096, Seals::kOneWriter).value();
  const auto slot = arena->allocate(64);
  arena.reset();
  slot->data()[63] = std::byte{1};
  EXPECT_EQ(slot->data()[63], std::byte{1});
}

TEST(Arena, CarriesTheSealsThatTheDaemonAsksFor) {
  EXPECT_TRUE(check_sealed(Arena::create("test", 4096, Seals::kOneWriter).value()->fd(), Seals::kOneWriter).ok());
  EXPECT_TRUE(check_sealed(Arena::create("test", 4096, Seals::kFixedSize).value()->fd(), Seals::kFixedSize).ok());
}

TEST(Arena, OnlyAlignedTensorsInsideTravelWithoutACopy) {
  const auto arena = Arena::create("test", 4096, Seals::kOneWriter).value();
  const auto slot = arena->allocate(256);
  EXPECT_EQ(arena->offset_of({DType::kUInt8, Shape{256}, slot->data()}), 0u);
  EXPECT_EQ(arena->offset_of({DType::kUInt8, Shape{64}, slot->data() + 64}), 64u);
  EXPECT_FALSE(arena->offset_of({DType::kUInt8, Shape{64}, slot->data() + 4}));
  EXPECT_FALSE(arena->offset_of({DType::kUInt8, Shape{8192}, slot->data()}));
  std::byte elsewhere[64];
  EXPECT_FALSE(arena->offset_of({DType::kUInt8, Shape{64}, elsewhere}));
}

TEST(ForkGuard, KnowsTheChildOfAFork) {
  const ForkGuard guard;
  EXPECT_FALSE(guard.in_child());
  EXPECT_EQ(test::exit_code_of([&] { return guard.in_child() && !ForkGuard().in_child() ? 0 : 1; }), 0);
}

}  // namespace
}  // namespace shoal::client

#include "client/src/slot_allocator.hpp"

#include <gtest/gtest.h>

#include <random>

namespace shoal::client {
namespace {

TEST(SlotAllocator, SlotsAreAlignedAndDoNotOverlap) {
  SlotAllocator slots(4096);
  const auto first = slots.allocate(1), second = slots.allocate(65), third = slots.allocate(0);
  ASSERT_TRUE(first && second && third);
  EXPECT_EQ(first->offset, 0u);
  EXPECT_EQ(second->offset, 64u);
  EXPECT_EQ(second->size_bytes, 128u);
  EXPECT_EQ(third->offset, 192u);
  EXPECT_EQ(slots.free_bytes(), 4096u - 256u);
}

TEST(SlotAllocator, AFreedSlotIsUsedAgainFirst) {
  SlotAllocator slots(1 << 20);
  const auto slot = *slots.allocate(1000);
  slots.free(slot);
  EXPECT_EQ(slots.allocate(1000)->offset, slot.offset);
}

TEST(SlotAllocator, WhatDoesNotFitIsRefused) {
  SlotAllocator slots(256);
  EXPECT_FALSE(slots.allocate(257));
  EXPECT_FALSE(slots.allocate(~std::uint64_t{0}));
  ASSERT_TRUE(slots.allocate(256));
  EXPECT_FALSE(slots.allocate(0));
  EXPECT_FALSE(SlotAllocator(0).allocate(1));
}

TEST(SlotAllocator, FreedNeighborsAreJoinedInAnyOrder) {
  std::mt19937 random(7);
  SlotAllocator slots(1 << 16);
  std::vector<SlotAllocator::Range> held;
  for (int step = 0; step < 20'000; ++step) {
    if (random() % 2 == 0) {
      if (const auto slot = slots.allocate(random() % 3000)) held.push_back(*slot);
    } else if (!held.empty()) {
      std::swap(held[random() % held.size()], held.back());
      slots.free(held.back());
      held.pop_back();
    }
    std::uint64_t held_bytes = 0;
    for (const auto& slot : held) held_bytes += slot.size_bytes;
    ASSERT_EQ(held_bytes + slots.free_bytes(), 1u << 16);
  }
  for (const auto& slot : held) slots.free(slot);
  EXPECT_EQ(slots.free_range_count(), 1u);
  EXPECT_EQ(slots.allocate(1 << 16)->offset, 0u);
}

TEST(SlotAllocatorDeathTest, FreeingTwiceAborts) {
  SlotAllocator slots(4096);
  const auto slot = *slots.allocate(64);
  slots.free(slot);
  EXPECT_DEATH(slots.free(slot), "check failed");
}

}  // namespace
}  // namespace shoal::client

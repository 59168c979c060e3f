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

TEST(SlotAllocator, GrowsAtTheEndWhereASlotMayBeginBefore) {
  SlotAllocator slots;
  EXPECT_FALSE(slots.allocate(1));
  slots.extend(256);
  const auto first = *slots.allocate(192);
  EXPECT_FALSE(slots.allocate(128));
  EXPECT_EQ(slots.tail_bytes(), 64u);
  slots.extend(64);
  EXPECT_EQ(slots.allocate(128)->offset, 192u) << "in old and new room";
  EXPECT_EQ(slots.tail_bytes(), 0u);
  EXPECT_EQ(first.offset, 0u);
}

TEST(SlotAllocator, IsCutBehindTheLastSlotAtMost) {
  SlotAllocator slots(1 << 20);
  const auto low = *slots.allocate(64), high = *slots.allocate(64 << 10);
  EXPECT_EQ(slots.cut(0, 4096), (64u << 10) + 4096) << "rounded up";
  EXPECT_EQ(slots.cut(0, 4096), slots.size_bytes());
  slots.free(high);
  EXPECT_EQ(slots.cut(8192, 4096), 8192u);
  EXPECT_EQ(slots.used_bytes(), 64u);
  EXPECT_EQ(slots.free_bytes(), 8192u - 64);
  slots.free(low);
  EXPECT_EQ(slots.cut(0, 4096), 0u);
  EXPECT_FALSE(slots.allocate(1));
  slots.extend(4096);
  EXPECT_EQ(slots.allocate(4096)->offset, 0u);
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

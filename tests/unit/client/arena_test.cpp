#include "client/src/arena.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <vector>

#include "client/src/shrink_rule.hpp"
#include "shm/segment/hole_finder.hpp"
#include "shm/wire/messages.hpp"
#include "tests/support/child_process.hpp"

namespace {
int fallocate_calls = 0;
bool is_memory_short = false;
std::atomic<bool> holds_growth{false}, is_growing{false};  // an arena that grows waits until this is false
}  // namespace

// Replaces that of libc.
extern "C" int fallocate(int fd, int mode, off_t offset, off_t size) {
  while (holds_growth && mode == 0) {
    is_growing = true;
    ::usleep(1000);
  }
  ++fallocate_calls;
  if (is_memory_short) {
    errno = ENOSPC;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_fallocate, fd, mode, offset, size));
}

namespace shoal::client {
namespace {

constexpr std::uint64_t kMb = 1 << 20;

std::uint64_t memory_of(const Arena& arena) {
  struct stat info {};
  EXPECT_EQ(::fstat(arena.fd().get(), &info), 0);
  return static_cast<std::uint64_t>(info.st_blocks) * 512;
}

std::shared_ptr<Arena> large_arena(Seals seals = Seals::kOneWriter) {
  return Arena::create("test", wire::kLargestArenaBytes, seals).value();
}

TEST(Arena, IsSmallAtFirstAndGrowsInStepsThatDouble) {
  const auto arena = large_arena();
  EXPECT_EQ(arena->reserved_bytes(), wire::kLargestArenaBytes);
  EXPECT_EQ(arena->use().allocated_bytes, Arena::kLeastStep);
  EXPECT_EQ(memory_of(*arena), Arena::kLeastStep);
  fallocate_calls = 0;
  std::vector<std::shared_ptr<Slot>> slots;
  for (int i = 0; i < 10'000; ++i) slots.push_back(arena->allocate(4000));  // 38.5 MiB
  EXPECT_EQ(memory_of(*arena), 64 * kMb);
  EXPECT_EQ(arena->use().allocated_bytes, 64 * kMb);
  EXPECT_EQ(fallocate_calls, 8) << "doubled eight times";
  for (std::size_t i = 1; i < slots.size(); ++i) ASSERT_EQ(slots[i]->offset(), slots[i - 1]->offset() + 4032);
  EXPECT_EQ(HoleFinder().allocated_end(arena->fd(), 0, 64 * kMb).value().end, 64 * kMb) << "as the daemon sees it";
}

TEST(Arena, ASlotStaysWhereItIsWhileTheArenaGrows) {
  const auto arena = large_arena();
  const auto small = arena->allocate(64);
  std::byte* const at = small->data();
  at[0] = std::byte{7};
  const auto large = arena->allocate(100 * kMb);
  ASSERT_TRUE(large);
  EXPECT_EQ(small->data(), at);
  EXPECT_EQ(at[0], std::byte{7});
  EXPECT_EQ(memory_of(*arena), 100 * kMb + 4096) << "more than a step: as much as is needed";
}

TEST(Arena, GrowsNoMoreInTheLongRun) {
  const auto arena = large_arena();
  const auto round = [&] {
    std::vector<std::shared_ptr<Slot>> slots;
    for (std::uint64_t i = 0; i < 50; ++i) slots.push_back(arena->allocate(1000 * (i + 1)));
  };
  round();
  fallocate_calls = 0;
  for (int i = 0; i < 1000; ++i) round();
  EXPECT_EQ(fallocate_calls, 0);
}

TEST(Arena, AtItsLimitThereIsNoRoomAndNobodyIsAsked) {
  const auto arena = Arena::create("test", 2 * kMb, Seals::kOneWriter).value();
  const auto slot = arena->allocate(2 * kMb - 64);
  ASSERT_TRUE(slot);
  fallocate_calls = 0;
  EXPECT_TRUE(arena->allocate(64));
  EXPECT_FALSE(arena->allocate(65));
  EXPECT_FALSE(arena->allocate(~std::uint64_t{0}));
  EXPECT_EQ(fallocate_calls, 0);
}

TEST(Arena, WithoutMemoryThereIsNoRoomAndItIsNotAskedForAgainAtOnce) {
  const auto arena = large_arena();
  is_memory_short = true;
  fallocate_calls = 0;
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(arena->allocate(300'000));
  EXPECT_EQ(fallocate_calls, 2) << "a step, and then what is needed";
  EXPECT_TRUE(arena->allocate(1000)) << "there is room for that";
  EXPECT_EQ(Arena::create("test", kMb, Seals::kOneWriter).status().code(), StatusCode::kFailedPrecondition);
  is_memory_short = false;
  EXPECT_FALSE(arena->allocate(kMb));
  ::usleep(Arena::kGrowAgainNs / 1000 + 1000);
  EXPECT_TRUE(arena->allocate(kMb));
}

// The kernel kills a process rather than fail a fallocate().
TEST(Arena, TakesAtMostHalfOfTheMemoryThatIsAvailable) {
  std::uint64_t available = 100 * kMb;
  const auto arena = Arena::create("test", wire::kLargestArenaBytes, Seals::kOneWriter, [&] { return available; }).value();
  EXPECT_FALSE(arena->allocate(60 * kMb));
  ::usleep(Arena::kGrowAgainNs / 1000 + 1000);
  const auto slot = arena->allocate(40 * kMb);
  EXPECT_TRUE(slot);
  available = 10 * kMb;
  EXPECT_TRUE(arena->allocate(3 * kMb)) << "what is needed, although the usual step is too much";
  EXPECT_LT(memory_of(*arena), 44 * kMb);
}

TEST(Arena, ReservesLessWhereAddressesAreScarce) {
  EXPECT_EQ(test::exit_code_of([] {
              const rlimit limit{std::uint64_t{1} << 30, std::uint64_t{1} << 30};
              ::setrlimit(RLIMIT_FSIZE, &limit);
              const auto arena = large_arena();
              return arena->reserved_bytes() == std::uint64_t{1} << 30 && arena->allocate(kMb) ? 0 : 1;
            }),
            0);
}

TEST(Arena, OfAProcessThatLocksItsMemoryAllocatesNoMoreThanItUses) {
  constexpr int kMayNotLock = 77;
  const int code = test::exit_code_of([] {
    if (::mlockall(MCL_FUTURE) != 0) return kMayNotLock;
    for (const Seals seals : {Seals::kOneWriter, Seals::kFixedSize}) {
      const auto arena = Arena::create("test", 64 * kMb, seals);
      if (!arena.ok() || (*arena)->reserved_bytes() != 64 * kMb) return kMayNotLock;
      if (memory_of(**arena) != Arena::kLeastStep) return 1;
      const auto slot = (*arena)->allocate(2 * kMb);
      if (!slot || memory_of(**arena) > 3 * kMb) return 2;
      std::memset(slot->data(), 1, slot->capacity_bytes());
      while ((*arena)->shrink(0)) {
      }
      if (memory_of(**arena) > 3 * kMb) return 3;
    }
    return 0;
  });
  if (code == kMayNotLock) GTEST_SKIP() << "this process may not lock memory";
  EXPECT_EQ(code, 0);
}

TEST(Arena, OfOutputsGivesItsEndBackButNothingThatIsHeld) {
  const auto arena = large_arena(Seals::kFixedSize);
  auto low = arena->allocate(kMb), high = arena->allocate(50 * kMb);
  low->data()[0] = std::byte{3};
  high->data()[high->capacity_bytes() - 1] = std::byte{4};
  const std::uint64_t before = memory_of(*arena);
  while (arena->shrink(0)) {
  }
  EXPECT_EQ(memory_of(*arena), (51 * kMb)) << before;
  EXPECT_EQ(high->data()[high->capacity_bytes() - 1], std::byte{4});
  high.reset();
  while (arena->shrink(2 * kMb)) {
  }
  EXPECT_EQ(memory_of(*arena), 2 * kMb);
  EXPECT_EQ(low->data()[0], std::byte{3});
  high = arena->allocate(50 * kMb);
  ASSERT_TRUE(high);
  EXPECT_EQ(memory_of(*arena), 51 * kMb);
  EXPECT_EQ(HoleFinder().allocated_end(arena->fd(), 0, 51 * kMb).value().end, 51 * kMb);
}

// To give much back takes long, and others wait for the pool's mutex meanwhile.
TEST(Arena, OfOutputsGivesBackAPartAtATime) {
  const auto arena = large_arena(Seals::kFixedSize);
  arena->allocate(50 * kMb).reset();
  for (std::uint64_t before = memory_of(*arena), parts = 12; parts > 0; --parts) {
    EXPECT_TRUE(arena->shrink(0));
    EXPECT_EQ(memory_of(*arena), before -= Arena::kMostGivenBack);
  }
}

// Its caller holds the pool's mutex.
TEST(Arena, OfOutputsThatGrowsShrinksLater) {
  const auto arena = large_arena(Seals::kFixedSize);
  arena->allocate(50 * kMb).reset();
  holds_growth = true;
  auto growing = std::async(std::launch::async, [&] { return arena->allocate(60 * kMb); });
  while (!is_growing) ::usleep(1000);
  auto shrinking = std::async(std::launch::async, [&] { return arena->shrink(0); });
  EXPECT_EQ(shrinking.wait_for(std::chrono::seconds(5)), std::future_status::ready);
  holds_growth = false;
  EXPECT_TRUE(shrinking.get()) << "it is to be called again";
  growing.get().reset();
  while (arena->shrink(0)) {
  }
  EXPECT_EQ(memory_of(*arena), Arena::kLeastStep);
}

TEST(Arena, OfInputsKeepsItsMemoryAndStaysUsableWhenItIsToldToShrink) {
  const auto arena = large_arena();
  arena->allocate(50 * kMb).reset();
  const std::uint64_t before = memory_of(*arena);
  while (arena->shrink(0)) {
  }
  EXPECT_EQ(memory_of(*arena), before);
  EXPECT_EQ(arena->use().allocated_bytes, before);
  EXPECT_TRUE(arena->allocate(50 * kMb));
}

TEST(Arena, CountsLoansAndTheMostThatWasUsed) {
  const auto arena = large_arena();
  auto loan = arena->allocate(kMb, /*is_loan=*/true);
  arena->allocate(3 * kMb).reset();
  EXPECT_EQ(arena->use().loans, 1u);
  EXPECT_EQ(arena->use().used_bytes, kMb);
  EXPECT_EQ(arena->use().peak_bytes, 4 * kMb);
  arena->forget_peak();
  EXPECT_EQ(arena->use().peak_bytes, kMb);
  loan.reset();
  EXPECT_EQ(arena->use().loans, 0u);
}

TEST(ShrinkRule, LeavesAloneWhatIsSmallOrUsed) {
  EXPECT_FALSE(ShrinkRule::keep(ShrinkRule::kAlwaysKept, 0));
  EXPECT_FALSE(ShrinkRule::keep(100 * kMb, 26 * kMb));
  EXPECT_EQ(ShrinkRule::keep(100 * kMb, 25 * kMb), 50 * kMb);
  EXPECT_EQ(ShrinkRule::keep(100 * kMb, 0), 0u);
}

TEST(ShrinkRule, GoesOnUntilMoreIsUsedThanIsKept) {
  EXPECT_TRUE(ShrinkRule::goes_on(50 * kMb, 50 * kMb));
  EXPECT_FALSE(ShrinkRule::goes_on(50 * kMb, 50 * kMb + 1));
  EXPECT_TRUE(ShrinkRule::goes_on(0, ShrinkRule::kAlwaysKept));
}

// A load that comes once a minute and fills the arena.
TEST(ShrinkRule, ALoadThatComesAndGoesShrinksAnArenaAFewTimesOnly) {
  ShrinkRule rule;
  std::uint64_t allocated = 0, peak = 0;
  int shrunk = 0;
  rule.begin(0);
  for (std::uint64_t second = 0; second < 24 * 3600; ++second) {
    if (second % 60 == 0) allocated = peak = 300 * kMb;
    if (!rule.is_over(second * 1'000'000'000)) continue;
    if (const auto keep = ShrinkRule::keep(allocated, std::exchange(peak, 0))) {
      allocated = *keep;
      ++shrunk;
      rule.begin_longer(second * 1'000'000'000);
    } else {
      rule.begin(second * 1'000'000'000);
    }
  }
  EXPECT_GT(shrunk, 0);
  EXPECT_LT(shrunk, 8) << "in a day";
}

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

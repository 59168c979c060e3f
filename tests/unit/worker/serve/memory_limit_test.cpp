#include "worker/serve/memory_limit.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>

#include "tests/support/child_process.hpp"
#include "tests/support/sanitizers.hpp"

namespace shoal::worker {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

/// In a child: a limit cannot be taken back.
bool holds_in_child(const std::function<bool()>& check) {
  return test::exit_code_of([&] { return check() ? 0 : 1; }) == 0;
}

// Straight from the system, as large pieces are.
void* take(std::size_t bytes) {
  void* memory = std::malloc(bytes);
  if (memory != nullptr) std::memset(memory, 1, bytes);
  return memory;
}

TEST(MemoryLimit, WhatIsWithinItIsGivenAndWhatIsBeyondFails) {
  if (test::kSanitized) GTEST_SKIP() << "sanitizers end a process that they have no memory for";
  EXPECT_TRUE(holds_in_child([] {
    const auto limit = MemoryLimit::set(64, 0);
    return limit.ok() && take(40 * kMiB) != nullptr && std::malloc(40 * kMiB) == nullptr;
  }));
}

TEST(MemoryLimit, ThreadsToComeHaveRoomForTheirStacks) {
  EXPECT_TRUE(holds_in_child([] { return MemoryLimit::set(64, 8).ok() && std::malloc(80 * kMiB) != nullptr; }));
}

TEST(MemoryLimit, IsSpentWhenMostOfItIsTaken) {
  EXPECT_TRUE(holds_in_child([] {
    const auto limit = MemoryLimit::set(64, 0);
    if (!limit.ok() || !take(40 * kMiB) || limit->is_spent()) return false;
    return take(20 * kMiB) != nullptr && limit->is_spent();
  }));
}

TEST(MemoryLimit, NamesItselfAndWhatToDo) {
  EXPECT_TRUE(holds_in_child([] {
    const auto limit = MemoryLimit::set(64, 0);
    if (!limit.ok()) return false;
    const std::string message = limit->exceeded("the request").message();
    return message.find("the request") != std::string::npos && message.find("64 MiB") != std::string::npos &&
           message.find("memory_mb") != std::string::npos;
  }));
  EXPECT_EQ(MemoryLimit().exceeded("the request").message(), "out of memory: the request needs more than this machine has left");
  EXPECT_FALSE(MemoryLimit().is_spent());
}

}  // namespace
}  // namespace shoal::worker

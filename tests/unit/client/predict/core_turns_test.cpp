// Runs of several cores take turns.
#include "client/predict/src/core_turns.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace shoal::predict {
namespace {

/// The most cores that were in use at the same time, by so many threads that take `cores` of `all`.
int most_in_use(int threads, int cores, int all) {
  CoreTurns turns(all);
  std::atomic<int> in_use{0}, most{0};
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i) {
    running.emplace_back([&] {
      for (int turn = 0; turn < 200; ++turn) {
        const int taken = turns.take(cores);
        const int now = in_use += taken;
        for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
        }
        std::this_thread::yield();
        in_use -= taken;
        turns.give_back(taken);
      }
    });
  }
  for (std::thread& thread : running) thread.join();
  EXPECT_EQ(in_use, 0);
  return most;
}

TEST(CoreTurns, NeverUseMoreCoresThanThereAre) {
  EXPECT_EQ(most_in_use(8, 2, 2), 2);
  EXPECT_LE(most_in_use(8, 2, 5), 4);
  EXPECT_EQ(most_in_use(8, 3, 2), 2) << "one that wants more takes all";
}

TEST(CoreTurns, ALargeOneIsNotPassedByThoseThatComeLater) {
  CoreTurns turns(4);
  turns.take(2);
  std::vector<int> order;  // guarded by the turns: each waits for the one before
  std::thread large([&] {
    turns.take(4);
    order.push_back(4);
    turns.give_back(4);
  });
  while (turns.waiting() < 1) std::this_thread::yield();
  std::thread small([&] {
    turns.take(2);
    order.push_back(2);
    turns.give_back(2);
  });
  while (turns.waiting() < 2) std::this_thread::yield();
  turns.give_back(2);
  large.join();
  small.join();
  EXPECT_EQ(order, (std::vector<int>{4, 2}));
}

}  // namespace
}  // namespace shoal::predict

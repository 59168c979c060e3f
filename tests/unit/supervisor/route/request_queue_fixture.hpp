#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "supervisor/route/request_queue.hpp"

namespace shoal::supervisor {

// A queue, and the table that its owner keeps.
class RequestQueueTest : public testing::Test {
 protected:
  using Slots = std::vector<std::uint32_t>;

  std::uint32_t push(Waiting waiting) {
    const auto slot = static_cast<std::uint32_t>(table_.size());
    table_.emplace_back();
    waiting.arrival = ++arrivals_;
    static_cast<Waiting&>(table_[slot]) = waiting;
    queue_.push(table_, slot);
    return slot;
  }
  std::uint32_t take() {
    const std::uint32_t slot = queue_.next(table_);
    EXPECT_EQ(queue_.next(table_), slot);  // a second call returns the same
    if (slot != kNoSlot) queue_.take(table_, slot);
    return slot;
  }
  std::vector<std::uint32_t> take_all() {
    std::vector<std::uint32_t> order;
    while (!queue_.empty()) order.push_back(take());
    return order;
  }

  WaitingTable table_;
  RequestQueue queue_;
  std::uint64_t arrivals_ = 0;
};

}  // namespace shoal::supervisor

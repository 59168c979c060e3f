#include "supervisor/route/deadline_wheel.hpp"

#include <algorithm>

namespace shoal::supervisor {

void DeadlineWheel::add(std::uint32_t slot, std::uint64_t deadline_ns) {
  if (slot >= links_.size()) {
    links_.resize(slot + 1);
    deadlines_.resize(slot + 1);
  }
  // A deadline that is due already goes into the bucket that advance() checks next.
  deadlines_[slot] = std::max({deadline_ns, last_tick_ * kTickNs, std::uint64_t{1}});
  buckets_[bucket_of(deadlines_[slot])].push_back(links_, slot);
  ++size_;
}

void DeadlineWheel::remove(std::uint32_t slot) {
  if (slot >= deadlines_.size() || deadlines_[slot] == 0) return;
  buckets_[bucket_of(deadlines_[slot])].remove(links_, slot);
  deadlines_[slot] = 0;
  --size_;
}

void DeadlineWheel::advance(std::uint64_t now_ns, std::vector<std::uint32_t>& due) {
  due.clear();
  const std::uint64_t now_tick = now_ns / kTickNs;
  if (size_ > 0 && now_tick >= last_tick_) {
    // The current bucket may hold later deadlines, too, so it is checked again next time.
    const std::uint64_t ticks = std::min<std::uint64_t>(now_tick - last_tick_, kBuckets - 1);
    for (std::uint64_t tick = now_tick - ticks; tick <= now_tick; ++tick) {
      for (std::uint32_t slot = buckets_[tick % kBuckets].front(); slot != kNoSlot; slot = links_[slot].next) {
        if (deadlines_[slot] <= now_ns) due.push_back(slot);
      }
    }
    for (const std::uint32_t slot : due) remove(slot);
  }
  last_tick_ = std::max(last_tick_, now_tick);
}

std::optional<std::uint64_t> DeadlineWheel::next_ns(std::uint64_t now_ns) const {
  if (size_ == 0) return std::nullopt;
  const std::uint64_t now_tick = now_ns / kTickNs;
  for (std::uint64_t tick = std::min(last_tick_, now_tick);; ++tick) {
    if (!buckets_[tick % kBuckets].empty()) return std::max(now_ns, (tick + 1) * kTickNs);
  }
}

}  // namespace shoal::supervisor

// Percentiles of durations in constant memory.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace shoal::supervisor {

/// Has eight buckets per power of two, so percentiles are accurate to about 6 %.
///   Threads  thread-compatible
class Histogram {
 public:
  void add(std::uint64_t value) {
    ++counts_[bucket_of(value)];
    ++total_;
    sum_ += value;
    max_ = std::max(max_, value);
  }
  std::uint64_t count() const { return total_; }
  std::uint64_t sum() const { return sum_; }
  std::uint64_t max() const { return max_; }
  /// Calls visit(middle of the bucket, number of values in it) for each bucket that is not empty, smallest first.
  template <typename Visit>
  void for_each_bucket(Visit visit) const {
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      if (counts_[i] > 0) visit(middle_of(i), counts_[i]);
    }
  }
  /// The value below which `fraction` of the added values lie: the middle of its bucket, but at most max(). 0 when no value was
  /// added.
  std::uint64_t quantile(double fraction) const {
    const auto wanted = static_cast<std::uint64_t>(fraction * static_cast<double>(total_));
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      seen += counts_[i];
      if (seen > wanted) return std::min(middle_of(i), max_);
    }
    return 0;
  }

 private:
  static std::size_t bucket_of(std::uint64_t value) {
    if (value < 8) return static_cast<std::size_t>(value);
    const auto shift = static_cast<unsigned>(std::bit_width(value)) - 4;
    return shift * 8 + static_cast<std::size_t>(value >> shift);
  }
  static std::uint64_t middle_of(std::size_t bucket) {
    if (bucket < 16) return bucket;
    const std::uint64_t shift = bucket / 8 - 1;
    const std::uint64_t low = (bucket - shift * 8) << shift;
    return low + (std::uint64_t{1} << shift) / 2;
  }

  std::array<std::uint64_t, 62 * 8> counts_{};
  std::uint64_t total_ = 0, sum_ = 0, max_ = 0;
};

}  // namespace shoal::supervisor

// Percentiles of durations in constant memory.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace shoal::supervisor {

/// Has 2^kBits buckets per power of two, so percentiles are accurate to about 50 % / 2^kBits.
///   Threads  thread-compatible
template <unsigned kBits>
class BasicHistogram {
 public:
  void add(std::uint64_t value) {
    ++counts_[bucket_of(value)];
    ++total_;
    sum_ += value;
    max_ = std::max(max_, value);
  }
  /// Adds the values of another one.
  void add(const BasicHistogram& other) {
    for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
    total_ += other.total_;
    sum_ += other.sum_;
    max_ = std::max(max_, other.max_);
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
  static constexpr std::size_t kSteps = std::size_t{1} << kBits;

  static std::size_t bucket_of(std::uint64_t value) {
    if (value < kSteps) return static_cast<std::size_t>(value);
    const auto shift = static_cast<unsigned>(std::bit_width(value)) - (kBits + 1);
    return shift * kSteps + static_cast<std::size_t>(value >> shift);
  }
  static std::uint64_t middle_of(std::size_t bucket) {
    if (bucket < 2 * kSteps) return bucket;
    const std::uint64_t shift = bucket / kSteps - 1;
    const std::uint64_t low = (bucket - shift * kSteps) << shift;
    return low + (std::uint64_t{1} << shift) / 2;
  }

  std::array<std::uint64_t, (65 - kBits) * kSteps> counts_{};
  std::uint64_t total_ = 0, sum_ = 0, max_ = 0;
};

/// Eight buckets per power of two: accurate to about 6 %, in 4 KB.
using Histogram = BasicHistogram<3>;
/// Four: accurate to about 12 %, in half the memory.
using CoarseHistogram = BasicHistogram<2>;

}  // namespace shoal::supervisor

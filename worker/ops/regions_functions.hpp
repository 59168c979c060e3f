// RoiPooling and RoiAlign as functions that devices divide among their threads.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "worker/ops/divided.hpp"
#include "worker/ops/regions.hpp"

namespace shoal::worker {

/// The map of a region; -1: there is none.
template <typename T>
std::int64_t map_of(const T* roi, std::int64_t maps) {
  const std::int64_t map = convert<std::int32_t>(load_element_once(roi));
  return map < maps ? std::max<std::int64_t>(map, -1) : -1;
}

/// The work: some channels of one region each. It is cut into few parts, which have memory of their own.
class RegionParts {
 public:
  RegionParts(std::int64_t regions, std::int64_t channels)
      : regions_(regions), channels_(channels), blocks_((channels + kBlock - 1) / kBlock) {}
  std::int64_t count() const { return std::min(regions_ * blocks_, kMostParts); }

  /// Calls run(memory, region, first channel, end of the channels) for everything.
  ///   bytes  of the memory of a part
  ///   work   of one channel of a region
  template <typename Policy, typename Run>
  void divide(std::byte* memory, std::size_t bytes, std::int64_t work, const Policy& policy, const Run& run) const {
    const std::int64_t parts = count(), units = regions_ * blocks_;
    policy.ranges(parts, 1, regions_ * channels_ * work, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t part = begin; part < end; ++part) {
        for (std::int64_t unit = units * part / parts; unit < units * (part + 1) / parts; ++unit) {
          const std::int64_t first = unit % blocks_ * kBlock;
          run(memory + static_cast<std::size_t>(part) * bytes, unit / blocks_, first, std::min(first + kBlock, channels_));
        }
      }
    });
  }

 private:
  static constexpr std::int64_t kBlock = 64, kMostParts = 32;
  std::int64_t regions_, channels_, blocks_;
};

template <typename T>
class RoiPooling {
 public:
  using F = Compute<T>;

  RoiPooling(const Node& node, std::span<const Shape> src, std::span<const Shape>)
      : pool_(node.attributes.get<RoiPoolingAttributes>()),
        maps_(src[0][0]),
        channels_(src[0][1]),
        height_(src[0][2]),
        width_(src[0][3]),
        parts_(src[1][0], channels_) {}
  std::size_t scratch_bytes() const { return static_cast<std::size_t>(parts_.count()) * part_bytes(); }
  template <typename Policy>
  void run(std::span<std::byte* const> operands, const Policy& policy) const {
    const std::int64_t bins = pool_.height * pool_.width;
    parts_.divide(operands[3], part_bytes(), bins * 4, policy,
                  [&](std::byte* memory, std::int64_t region, std::int64_t first, std::int64_t end) {
                    const T* const roi = reinterpret_cast<const T*>(operands[1]) + 5 * region;
                    T* to = reinterpret_cast<T*>(operands[2]) + (region * channels_ + first) * bins;
                    const std::int64_t map = map_of(roi, maps_);
                    if (map < 0) {
                      std::fill_n(to, (end - first) * bins, to_element<T>(F{0}));
                      return;
                    }
                    const auto at = [&](int i) { return static_cast<F>(roi[i]) * static_cast<F>(pool_.scale); };
                    Interval *const rows = reinterpret_cast<Interval*>(memory), *const columns = rows + pool_.height;
                    find_covered(at(2), at(4), pool_.height, height_, rows);
                    find_covered(at(1), at(3), pool_.width, width_, columns);
                    for (std::int64_t c = first; c < end; ++c) {
                      const T* const plane = reinterpret_cast<const T*>(operands[0]) + (map * channels_ + c) * height_ * width_;
                      for (std::int64_t y = 0; y < pool_.height; ++y) {
                        for (std::int64_t x = 0; x < pool_.width; ++x)
                          *to++ = to_element<T>(largest_in(plane, rows[y], columns[x]));
                      }
                    }
                  });
  }

 private:
  /// Positions of an axis of a map, `end` not included.
  struct Interval {
    std::int64_t begin, end;
  };
  std::size_t part_bytes() const { return static_cast<std::size_t>(pool_.height + pool_.width) * sizeof(Interval); }

  /// What each of `bins` bins covers of an axis of `size`, if a region lies from `low` to `high` there.
  static void find_covered(F low, F high, std::int64_t bins, std::int64_t size, Interval* intervals) {
    const auto place = [](F at) { return static_cast<std::int64_t>(cut<std::int32_t>(static_cast<double>(std::round(at)))); };
    const std::int64_t first = place(low), extent = std::max<std::int64_t>(place(high) - first + 1, 1);
    const F bin = static_cast<F>(extent) / static_cast<F>(bins);
    for (std::int64_t i = 0; i < bins; ++i) {
      const auto begin = static_cast<std::int64_t>(std::floor(static_cast<F>(i) * bin)),
                 end = static_cast<std::int64_t>(std::ceil(static_cast<F>(i + 1) * bin));
      intervals[i] = {std::clamp<std::int64_t>(begin + first, 0, size), std::clamp<std::int64_t>(end + first, 0, size)};
    }
  }

  /// The maximum, which passes over NaN; 0 if there is no element.
  F largest_in(const T* plane, const Interval& rows, const Interval& columns) const {
    if (rows.begin >= rows.end || columns.begin >= columns.end) return 0;
    F best = std::numeric_limits<F>::lowest();
    for (std::int64_t y = rows.begin; y < rows.end; ++y) {
      for (std::int64_t x = columns.begin; x < columns.end; ++x) {
        const auto value = static_cast<F>(plane[y * width_ + x]);
        if (value > best) best = value;
      }
    }
    return best;
  }

  RoiPoolingAttributes pool_;
  std::int64_t maps_, channels_, height_, width_;
  RegionParts parts_;
};

/// How much each position of an axis counts in the bins of a region. Samples are interpolated between two positions, and the
/// samples of a bin are all pairs of those along its axes: so one sum for each axis is enough.
template <typename F>
class AxisBins {
 public:
  /// The positions from `begin` on, and their weights.
  struct Bin {
    std::int64_t begin = 0, count = 0;
    F* weights = nullptr;
  };

  AxisBins(Scratch& scratch, std::int64_t count, std::int64_t size)
      : bins_(scratch.take<Bin>(count)), count_(count), size_(size), room_(room(count, size)), weights_(scratch.take<F>(room_)) {}

  /// The bins of a region that lies from `low` to `high`.
  void fill(F low, F high, const RoiAlignAttributes& align) {
    const F shift = align.aligned ? F{0.5} : F{0}, start = low * static_cast<F>(align.scale) - shift;
    F extent = high * static_cast<F>(align.scale) - shift - start;
    if (!align.aligned) extent = std::max(extent, F{1});
    const F bin = extent / static_cast<F>(count_);
    samples_ = align.samples > 0 ? static_cast<F>(align.samples) : std::ceil(bin);
    is_empty_ = !(extent > 0 && samples_ > 0 && size_ > 0);
    used_ = 0;
    for (std::int64_t i = 0; !is_empty_ && i < count_; ++i) {
      bins_[i] = {.weights = weights_ + used_};
      add_samples(bins_[i], start + static_cast<F>(i) * bin, bin);
      used_ += bins_[i].count;
    }
  }
  F samples() const { return samples_; }  ///< in each bin
  bool is_empty() const { return is_empty_; }
  const Bin& operator[](std::int64_t i) const { return bins_[i]; }

 private:
  // The smaller one of count * size, which may overflow, and of what all bins together can fill.
  static std::int64_t room(std::int64_t count, std::int64_t size) {
    const std::int64_t most = 4 * (size + 2 * count);
    return count == 0 || size <= most / count ? count * size : most;
  }
  /// Samples that lie more than one element beyond the map count 0. A region may be as large as a number can be: only those that
  /// may lie in the map are visited.
  void add_samples(Bin& to, F begin, F extent) {
    if (!std::isfinite(begin) || !std::isfinite(extent)) return;
    const auto limit = static_cast<F>(size_);
    const double step = static_cast<double>(extent) / static_cast<double>(samples_);
    const double first = std::max(0.0, std::floor((-1.0 - static_cast<double>(begin)) / step - 2.0));
    const double most = std::min(static_cast<double>(samples_) - 1 - first, (static_cast<double>(size_) + 2.0) / step + 6.0);
    for (std::int64_t i = 0; static_cast<double>(i) <= most; ++i) {
      F at = begin + (static_cast<F>(first + static_cast<double>(i)) + F{0.5}) * extent / samples_;
      if (!(at >= -1 && at <= limit)) continue;
      at = std::max(at, F{0});
      std::int64_t position = static_cast<std::int64_t>(at);
      if (position >= size_ - 1) {
        position = size_ - 1;
        at = static_cast<F>(position);
      }
      if (to.count == 0) to.begin = position;
      const F rest = at - static_cast<F>(position);
      add(to, position, 1 - rest);
      if (position + 1 < size_) add(to, position + 1, rest);
    }
  }

  // Bins lie one behind the other, so together they have few positions more than the axis. Where coordinates are so large that
  // rounding makes many bins of the whole axis, what finds no room is left out.
  void add(Bin& to, std::int64_t position, F weight) {
    const std::int64_t at = position - to.begin;
    if (at < 0 || used_ + at >= room_) return;
    while (to.count <= at) to.weights[to.count++] = 0;
    to.weights[at] += weight;
  }

  Bin* bins_;
  std::int64_t count_, size_, room_;
  F* weights_;
  std::int64_t used_ = 0;
  F samples_ = 0;
  bool is_empty_ = false;
};

template <typename T>
class RoiAlign {
 public:
  using F = Compute<T>;

  RoiAlign(const Node& node, std::span<const Shape> src, std::span<const Shape> dst)
      : align_(node.attributes.get<RoiAlignAttributes>()),
        maps_(src[0][0]),
        planes_(src[0][1]),
        height_(src[0][2]),
        width_(src[0][3]),
        channels_(dst[0][1]),
        parts_(dst[0][0], channels_) {}
  std::size_t scratch_bytes() const { return static_cast<std::size_t>(parts_.count()) * part_bytes(); }
  template <typename Policy>
  void run(std::span<std::byte* const> operands, const Policy& policy) const {
    const std::int64_t bins = align_.height * align_.width;
    constexpr std::int64_t kWork = 16;  // elements of a bin, more or less
    parts_.divide(operands[3], part_bytes(), bins * kWork, policy,
                  [&](std::byte* memory, std::int64_t region, std::int64_t first, std::int64_t end) {
                    T* const to = reinterpret_cast<T*>(operands[2]) + (region * channels_ + first) * bins;
                    align(reinterpret_cast<const T*>(operands[0]), reinterpret_cast<const T*>(operands[1]) + 5 * region, memory,
                          first, end, to);
                  });
  }

 private:
  using Bin = typename AxisBins<F>::Bin;

  std::size_t part_bytes() const {
    Scratch scratch;
    AxisBins<F>(scratch, align_.height, height_);
    AxisBins<F>(scratch, align_.width, width_);
    return scratch.bytes();
  }

  void align(const T* data, const T* roi, std::byte* memory, std::int64_t first, std::int64_t end, T* to) const {
    Scratch scratch(memory);
    AxisBins<F> rows(scratch, align_.height, height_), columns(scratch, align_.width, width_);
    const auto at = [&](int i) { return static_cast<F>(roi[i]); };
    const std::int64_t map = map_of(roi, maps_), bins = align_.height * align_.width;
    rows.fill(at(2), at(4), align_);
    columns.fill(at(1), at(3), align_);
    if (map < 0 || rows.is_empty() || columns.is_empty()) {
      std::fill_n(to, (end - first) * bins, to_element<T>(F{0}));
      return;
    }
    const F samples = rows.samples() * columns.samples();
    for (std::int64_t c = first; c < end; ++c) {
      for (std::int64_t bin = 0; bin < bins; ++bin) {
        const std::int64_t channel = align_.by_position ? c * bins + bin : c;
        const T* const plane = data + (map * planes_ + channel) * height_ * width_;
        *to++ = to_element<T>(weighted(plane, rows[bin / align_.width], columns[bin % align_.width]) / samples);
      }
    }
  }

  F weighted(const T* plane, const Bin& rows, const Bin& columns) const {
    F sum = 0;
    for (std::int64_t y = 0; y < rows.count; ++y) {
      const T* const row = plane + (rows.begin + y) * width_ + columns.begin;
      F of_row = 0;
      for (std::int64_t x = 0; x < columns.count; ++x) of_row += columns.weights[x] * static_cast<F>(row[x]);
      sum += rows.weights[y] * of_row;
    }
    return sum;
  }

  RoiAlignAttributes align_;
  std::int64_t maps_, planes_, height_, width_, channels_;
  RegionParts parts_;
};

}  // namespace shoal::worker

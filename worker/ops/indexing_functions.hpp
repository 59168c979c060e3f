// Indices as places on an axis, as oracle kernels and kernels read them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "shoal/tensor.hpp"
#include "worker/ops/indexing.hpp"

namespace shoal::worker {

/// What an index outside 0 .. size - 1 stands for.
enum class Outside {
  kClip,     ///< the nearest place
  kWrap,     ///< counted on around the axis
  kFromEnd,  ///< as kWrap, but the size is added before the fraction is cut off: -0.5 is the last place
  kNowhere,  ///< -1
};

/// Reads `count` indices from number `first` on, each once, as places on an axis of `size` >= 1 elements.
using ReadPlaces = void (*)(const std::byte* indices, std::int64_t first, std::int64_t count, std::int64_t size,
                            std::int64_t* to);
/// Null for types that are no numbers.
ReadPlaces places_reader(DType dtype, Outside outside);

constexpr Outside outside_of(IndexMode mode) {
  return mode == IndexMode::kClip ? Outside::kClip : mode == IndexMode::kWrap ? Outside::kWrap : Outside::kNowhere;
}

/// Where GatherNd and ScatterNd find a slice: the first axes of the data are named by the rows of the indices.
struct NamedAxes {
  std::int64_t count = 0, slices = 0, length = 0;  ///< axes that are named, slices, elements of a slice
  std::array<std::int64_t, kMaxRank> sizes{}, strides{};

  NamedAxes(const Shape& data, const Shape& indices);
  /// The first elements of `many` slices from number `first` on; -1 if an index is nowhere. At most kMost at a time.
  static constexpr std::int64_t kMost = 512;
  void find(ReadPlaces read, const std::byte* indices, std::int64_t first, std::int64_t many, std::int64_t* to) const;
};

}  // namespace shoal::worker

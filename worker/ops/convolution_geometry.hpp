// The loops of Convolution, and of Deconvolution, which goes the other way.
#pragma once

#include <algorithm>
#include <cstdint>

#include "worker/graph/graph.hpp"

namespace shoal::worker {

/// A convolution of `src` to `dst` (N, C, spatial) as three spatial axes; missing ones in front have extent 1. A Deconvolution is
/// the convolution of its result to its data, backwards.
struct ConvolutionGeometry {
  std::int64_t batch, in_channels, out_channels, groups;
  std::int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, dilate[3] = {1, 1, 1},
               pad[3] = {0, 0, 0};

  /// `filters`: the attributes of the operator. `padding`: zeros before the first element of each axis.
  template <typename Filters>
  ConvolutionGeometry(const Filters& filters, const Dims& padding, const Shape& src, const Shape& dst)
      : batch(src[0]), in_channels(src[1]), out_channels(dst[1]), groups(filters.num_group) {
    const std::size_t rank = filters.kernel.size();
    for (std::size_t i = 0; i < rank; ++i) {
      const std::size_t axis = 3 - rank + i;
      in[axis] = src[static_cast<int>(i) + 2];
      out[axis] = dst[static_cast<int>(i) + 2];
      kernel[axis] = filters.kernel[i];
      stride[axis] = filters.stride[i];
      dilate[axis] = filters.dilate[i];
      pad[axis] = padding[i];
    }
  }
  std::int64_t in_plane() const { return in[0] * in[1] * in[2]; }
  std::int64_t out_plane() const { return out[0] * out[1] * out[2]; }
  std::int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }

  /// Where output position `at` with kernel tap `tap` reads along an axis; outside [0, in) there is padding.
  std::int64_t source(int axis, std::int64_t at, std::int64_t tap) const {
    return at * stride[axis] - pad[axis] + tap * dilate[axis];
  }

  /// The positions x of an output row that read no padding with a tap of the last axis. They read x * stride + shift.
  struct Columns {
    std::int64_t first, last, shift;
  };
  Columns columns(std::int64_t tap) const {
    const std::int64_t shift = source(2, 0, tap), step = stride[2];
    return {shift < 0 ? (-shift + step - 1) / step : 0, shift >= in[2] ? 0 : std::min(out[2], (in[2] - 1 - shift) / step + 1),
            shift};
  }
};

/// Calls run(tap, columns, offset of a row of in, offset of the row of out that reads it) for every tap of the kernel and all
/// rows of a plane.
template <typename Run>
void each_row_of_taps(const ConvolutionGeometry& g, Run run) {
  std::int64_t tap = 0;
  for (std::int64_t kd = 0; kd < g.kernel[0]; ++kd) {
    for (std::int64_t kh = 0; kh < g.kernel[1]; ++kh) {
      for (std::int64_t kw = 0; kw < g.kernel[2]; ++kw, ++tap) {
        const ConvolutionGeometry::Columns columns = g.columns(kw);
        for (std::int64_t d = 0; d < g.out[0]; ++d) {
          const std::int64_t z = g.source(0, d, kd);
          if (z < 0 || z >= g.in[0]) continue;
          for (std::int64_t h = 0; h < g.out[1]; ++h) {
            const std::int64_t y = g.source(1, h, kh);
            if (y < 0 || y >= g.in[1]) continue;
            run(tap, columns, (z * g.in[1] + y) * g.in[2], (d * g.out[1] + h) * g.out[2]);
          }
        }
      }
    }
  }
}

}  // namespace shoal::worker

// Pooling, AdaptiveAvgPooling.
#include "worker/ops/pooling.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/elements.hpp"

namespace shoal::worker {
namespace {

/// Number of output positions along one pooled axis of extent `size`.
Dim pooled(const PoolingAttributes& pool, std::size_t axis, Dim size) {
  const Dim padded = size + 2 * pool.pad[axis], room = padded - pool.kernel[axis], stride = pool.stride[axis];
  if (pool.convention == PoolingConvention::kOld) return floor_div(min(room + stride - 1, padded - 1), stride) + 1;
  return 1 + (pool.convention == PoolingConvention::kFull ? ceil_div(room, stride) : floor_div(room, stride));
}

Status infer_pooling(const Node& node, SourceValues src, ResultValues dst) {
  const auto& pool = node.attributes.get<PoolingAttributes>();
  const TypedValue& data = src[0];
  SHOAL_RETURN_IF_ERROR(check_float(node, data));
  const int rank = data.shape.rank(), spatial = rank - 2;
  const bool rank_fits = pool.global ? spatial >= 1 && spatial <= 3 : spatial == static_cast<int>(pool.kernel.size());
  if (!rank_fits) {
    return invalid_argument("{}: '{}' has shape {}; a kernel of {} dimensions needs batch, channels and as many axes of space",
                            describe(node), data.name, data.shape.to_string(), pool.kernel.size());
  }
  SHOAL_RETURN_IF_ERROR(check_numbers(node, "kernel", pool.kernel, 1));
  SHOAL_RETURN_IF_ERROR(check_numbers(node, "stride", pool.stride, 1));
  SHOAL_RETURN_IF_ERROR(check_numbers(node, "pad", pool.pad, 0));
  const int first = pool.channels_last ? 1 : 2;
  SHOAL_RETURN_IF_ERROR(check_padded(node, pool.pad, data, first));
  SymbolicShape out = data.shape;
  for (int i = 0; i < spatial; ++i) {
    const int axis = i + first;
    const auto k = static_cast<std::size_t>(i);
    if (pool.global) {
      out[axis] = 1;
      continue;
    }
    if (known_less(data.shape[axis] + 2 * pool.pad[k], pool.kernel[k])) {
      return invalid_argument("{}: kernel {} exceeds the {} of axis {} of '{}' ({}) with padding {}", describe(node),
                              pool.kernel[k], data.shape[axis].to_string(), axis, data.name, data.shape.to_string(), pool.pad[k]);
    }
    out[axis] = pooled(pool, k, data.shape[axis]);
  }
  set_result(dst[0], data.dtype, out);
  return {};
}

Status infer_adaptive_pooling(const Node& node, SourceValues src, ResultValues dst) {
  const auto& pool = node.attributes.get<AdaptivePoolingAttributes>();
  const TypedValue& data = src[0];
  SHOAL_RETURN_IF_ERROR(check_float(node, data));
  SHOAL_RETURN_IF_ERROR(check_rank(node, data, 4, 4));
  set_result(dst[0], data.dtype, SymbolicShape{data.shape[0], data.shape[1], pool.height, pool.width});
  return {};
}

/// The maximum of a window without a pixel: the lowest finite number.
template <typename T>
Compute<T> lowest() {
  if constexpr (std::is_integral_v<T>)
    return std::numeric_limits<T>::lowest();
  else
    return -FloatLimits<T>::kHighest;
}

/// Windows over up to three spatial axes; missing ones in front have extent 1. Element (n, c, z, y, x) lies at n, c and space
/// strides.
struct PoolingGeometry {
  std::int64_t batch, channels, channel_stride = 1, batch_stride, out_channel_stride = 1, out_batch_stride;
  std::int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, pad[3] = {0, 0, 0};
  int rank;               ///< spatial axes there are
  std::int64_t step = 1;  ///< between neighbors along the last axis

  PoolingGeometry(const PoolingAttributes& pool, const Shape& src, const Shape& dst) : batch(src[0]), rank(src.rank() - 2) {
    const int first = pool.channels_last ? 1 : 2;
    channels = src[pool.channels_last ? src.rank() - 1 : 1];
    for (int i = 0; i < rank; ++i) {
      const int axis = 3 - rank + i;
      in[axis] = src[first + i];
      out[axis] = dst[first + i];
      const auto k = static_cast<std::size_t>(i);
      kernel[axis] = pool.global ? in[axis] : pool.kernel[k];
      stride[axis] = pool.global ? 1 : pool.stride[k];
      pad[axis] = pool.global ? 0 : pool.pad[k];
    }
    if (pool.channels_last)
      step = channels;
    else
      channel_stride = in[0] * in[1] * in[2], out_channel_stride = out[0] * out[1] * out[2];
    batch_stride = channels * in[0] * in[1] * in[2];
    out_batch_stride = channels * out[0] * out[1] * out[2];
  }
};

/// How many positions three extents have. Extents are negative where a window begins beyond the image; no bound holds for these,
/// so they are not multiplied: the count is 0 if one extent is 0, else -1.
std::int64_t position_count(const std::int64_t (&extents)[3]) {
  if (std::ranges::count(extents, 0) > 0) return 0;
  return std::ranges::min(extents) < 0 ? -1 : extents[0] * extents[1] * extents[2];
}

/// One window: what it covers of the image, and how many positions it counts. No count overflows: infer() bounds the padded
/// image.
struct Window {
  std::int64_t begin[3], end[3];  ///< clipped to the image
  std::int64_t covered;           ///< positions within the padded image; 0 or negative for a window beyond it
  std::int64_t pixels;            ///< positions within the image; 0 or negative for a window that has none

  Window(const PoolingGeometry& g, const std::int64_t (&at)[3]) {
    std::int64_t padded[3], clipped[3];
    for (int axis = 0; axis < 3; ++axis) {
      const std::int64_t start = at[axis] * g.stride[axis] - g.pad[axis];
      const std::int64_t stop = std::min(start + g.kernel[axis], g.in[axis] + g.pad[axis]);
      begin[axis] = std::max<std::int64_t>(start, 0);
      end[axis] = std::min(stop, g.in[axis]);
      padded[axis] = stop - start;
      clipped[axis] = end[axis] - begin[axis];
    }
    covered = position_count(padded);
    pixels = position_count(clipped);
  }
  bool empty() const { return begin[0] >= end[0] || begin[1] >= end[1] || begin[2] >= end[2]; }
};

/// Folds `step(value)` over the pixels of the window.
template <typename T, typename Step>
void each_pixel(const PoolingGeometry& g, const Window& window, const T* plane, Step step) {
  for (std::int64_t z = window.begin[0]; z < window.end[0]; ++z) {
    for (std::int64_t y = window.begin[1]; y < window.end[1]; ++y) {
      const T* const row = plane + (z * g.in[1] + y) * g.in[2] * g.step;
      for (std::int64_t x = window.begin[2]; x < window.end[2]; ++x) step(static_cast<Compute<T>>(row[x * g.step]));
    }
  }
}

template <typename T>
Compute<T> largest(const PoolingAttributes& pool, const PoolingGeometry& g, const Window& window, const T* plane) {
  Compute<T> best = lowest<T>();
  if (pool.legacy && (window.empty() || window.covered > window.pixels))
    best = std::max<Compute<T>>(best, 0);  // Pooling_v1 pads with zeros
  each_pixel(g, window, plane, [&](Compute<T> x) {
    if (x > best) best = x;
  });  // passes over NaN, as MXNet does
  return best;
}

template <typename T>
Compute<T> mean(const PoolingAttributes& pool, const PoolingGeometry& g, const Window& window, const T* plane) {
  std::int64_t divisor = pool.count_include_pad ? window.covered : window.pixels;
  if (pool.legacy) divisor = g.kernel[0] * g.kernel[1] * g.kernel[2];
  Compute<T> sum = 0;
  each_pixel(g, window, plane, [&](Compute<T> x) { sum += x; });
  if (!window.empty()) return sum / static_cast<Compute<T>>(divisor);
  const bool divides_last = g.rank == 3 && !pool.legacy;  // MXNet's 3-D kernel divides the sum; the others divide each term
  return divides_last && divisor == 0 ? std::numeric_limits<Compute<T>>::quiet_NaN() : 0;
}

template <typename T>
Compute<T> power_mean(std::int64_t p, const PoolingGeometry& g, const Window& window, const T* plane) {
  using F = Compute<T>;
  F sum = 0;
  each_pixel(g, window, plane, [&](F x) { sum += p == 1 ? x : p == 2 ? x * x : x * x * x; });
  return p == 1 ? sum : p == 2 ? std::sqrt(sum) : std::cbrt(sum);
}

template <typename T>
Compute<T> pool_window(const PoolingAttributes& pool, const PoolingGeometry& g, const Window& window, const T* plane) {
  switch (pool.kind) {
    case PoolingKind::kMax:
      return largest(pool, g, window, plane);
    case PoolingKind::kAvg:
      return mean(pool, g, window, plane);
    case PoolingKind::kSum:
      return power_mean(1, g, window, plane);
    case PoolingKind::kLp:
      return power_mean(pool.p_value, g, window, plane);
  }
  return 0;
}

template <typename T>
void pool_all(const PoolingAttributes& pool, const PoolingGeometry& g, const T* src, T* dst) {
  std::int64_t at[3];
  for (std::int64_t n = 0; n < g.batch; ++n) {
    for (std::int64_t c = 0; c < g.channels; ++c) {
      const T* const plane = src + n * g.batch_stride + c * g.channel_stride;
      T* to = dst + n * g.out_batch_stride + c * g.out_channel_stride;
      for (at[0] = 0; at[0] < g.out[0]; ++at[0]) {
        for (at[1] = 0; at[1] < g.out[1]; ++at[1]) {
          for (at[2] = 0; at[2] < g.out[2]; ++at[2], to += g.step)
            *to = to_element<T>(pool_window(pool, g, Window(g, at), plane));
        }
      }
    }
  }
}

/// Window `index` of `count` over `size` positions.
struct AdaptiveWindow {
  std::int64_t begin, end;
  AdaptiveWindow(std::int64_t index, std::int64_t count, std::int64_t size)
      : begin(border(index, count, size)), end(size - border(count - 1 - index, count, size)) {}

 private:
  /// floor(index * size / count); the product itself may not fit.
  static std::int64_t border(std::int64_t index, std::int64_t count, std::int64_t size) {
    return index * (size / count) + index * (size % count) / count;
  }
};

template <typename T>
void adaptive_mean(const Shape& in, const Shape& out, const T* src, T* dst) {
  for (std::int64_t plane = 0; plane < in[0] * in[1]; ++plane, src += in[2] * in[3]) {
    for (std::int64_t y = 0; y < out[2]; ++y) {
      const AdaptiveWindow rows(y, out[2], in[2]);
      for (std::int64_t x = 0; x < out[3]; ++x) {
        const AdaptiveWindow columns(x, out[3], in[3]);
        double sum = 0;
        for (std::int64_t row = rows.begin; row < rows.end; ++row) {
          for (std::int64_t column = columns.begin; column < columns.end; ++column)
            sum += static_cast<double>(static_cast<Compute<T>>(src[row * in[3] + column]));
        }
        *dst++ = to_element<T>(sum / static_cast<double>((rows.end - rows.begin) * (columns.end - columns.begin)));
      }
    }
  }
}

Status compute_pooling(const Node& node, Sources src, Results dst) {
  const auto& pool = node.attributes.get<PoolingAttributes>();
  const PoolingGeometry geometry(pool, src[0].shape, dst[0].shape);
  return dispatch<Floats>(node, src[0].dtype, [&]<typename T>() {
    pool_all(pool, geometry, elements<T>(src[0]), elements<T>(dst[0]));
    return Status();
  });
}

Status compute_adaptive_pooling(const Node& node, Sources src, Results dst) {
  return dispatch<Floats>(node, src[0].dtype, [&]<typename T>() {
    adaptive_mean(src[0].shape, dst[0].shape, elements<T>(src[0]), elements<T>(dst[0]));
    return Status();
  });
}

}  // namespace

namespace ops {

const Operator kPooling({
    .name = "Pooling",
    .attributes = &kSchema<PoolingAttributes>,
    .infer = infer_pooling,
    .constant_types = ConstantTypes::kAsData,
    .facts = layer_facts(rows_of_first_input, work_of_pairs, Accuracy::kKept),
    .oracle = compute_pooling,
    .formula = "data (N, C, spatial) with 1 to 3 spatial axes: the maximum, mean, sum or norm of each window",
    .source = "MXNet 1.9.1 src/operator/nn/pool.h, pooling_v1-inl.h",
});

const Operator kAdaptiveAvgPooling({
    .name = "AdaptiveAvgPooling",
    .attributes = &kSchema<AdaptivePoolingAttributes>,
    .infer = infer_adaptive_pooling,
    .facts = layer_facts(rows_of_first_input, work_of_pairs, Accuracy::kKept),
    .oracle = compute_adaptive_pooling,
    .formula = "data (N, C, H, W): means; window i of n covers floor(i H / n) up to ceil((i + 1) H / n)",
    .source = "MXNet 1.9.1 src/operator/contrib/adaptive_avg_pooling.cc",
});

}  // namespace ops

}  // namespace shoal::worker

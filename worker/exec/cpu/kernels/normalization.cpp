// Kernels of LayerNorm and GroupNorm.
#include "worker/ops/normalization.hpp"

#include <algorithm>
#include <cmath>

#include "worker/exec/cpu/kernels/block_elements.hpp"
#include "worker/exec/cpu/kernels/layers.hpp"
#include "worker/exec/cpu/kernels/parallel.hpp"
#include "worker/exec/cpu/kernels/vectorized.hpp"

namespace shoal::worker::cpu {
namespace {

constexpr std::int64_t kWidest = 256;  // neighboring positions that are processed together
static_assert(kWidest <= kBlock);

/// The partial sums of one row. There are enough of them for some vectors.
template <typename X>
inline constexpr std::int64_t kLanes = 128 / sizeof(X);

template <typename X>
struct LaneSums {
  X sums[kLanes<X>] = {}, squares[kLanes<X>] = {};
};

/// Adds the distances of the elements from `shift`, and their squares.
template <typename X>
void add_distances(const X* x, std::int64_t count, X shift, LaneSums<X>* lanes) {
  vectorized([=] {
    LaneSums<X> local = *lanes;
    std::int64_t i = 0;
    for (; i + kLanes<X> <= count; i += kLanes<X>) {
#pragma omp simd
      for (std::int64_t k = 0; k < kLanes<X>; ++k) {
        const X apart = x[i + k] - shift;
        local.sums[k] += apart;
        local.squares[k] += apart * apart;
      }
    }
    for (std::int64_t k = 0; i + k < count; ++k) {
      const X apart = x[i + k] - shift;
      local.sums[k] += apart;
      local.squares[k] += apart * apart;
    }
    *lanes = local;
  });
}

/// The mean is near + rest: subtracting one after the other keeps the digits of elements that are far from 0.
template <typename X>
struct RowSpread {
  X near = 0, rest = 0;
  double variance = 0;
  double mean() const { return static_cast<double>(near) + static_cast<double>(rest); }
};

double distance_of_mean(double sum, double count) { return sum / count; }
double variance_of(double sum, double squares, double count) {
  const double rest = sum / count, variance = squares / count - rest * rest;
  return variance < 0 ? 0 : variance;  // NaN stays
}

/// y = ((x - near) - rest) * factor * gamma + beta.
template <typename X>
void write_by_element(const X* x, std::int64_t count, X near, X rest, X factor, const X* gamma, const X* beta, X* y) {
  vectorized([=] {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) y[i] = ((x[i] - near) - rest) * factor * gamma[i] + beta[i];
  });
}
template <typename X>
void write_by_channel(const X* x, std::int64_t count, X near, X rest, X factor, X gamma, X beta, X* y) {
  vectorized([=] {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) y[i] = ((x[i] - near) - rest) * factor * gamma + beta;
  });
}

/// Normalizes rows of neighbors.
template <typename T>
class RowNorm {
 public:
  using X = Compute<T>;

  RowSpread<X> spread_of(const T* row, std::int64_t size) const {
    RowSpread<X> spread;
    const auto count = static_cast<double>(size);
    const LaneSums<X> rough = sums_of(row, size, X{0});
    spread.near = static_cast<X>(distance_of_mean(total(rough.sums), count));
    const LaneSums<X> fine = sums_of(row, size, spread.near);
    spread.rest = static_cast<X>(distance_of_mean(total(fine.sums), count));
    spread.variance = variance_of(total(fine.sums), total(fine.squares), count);
    return spread;
  }

  /// gamma and beta have an element for each element of the row.
  void write_elements(const T* row, std::int64_t size, const RowSpread<X>& spread, double root, const T* gamma, const T* beta,
                      T* dst) const {
    X rooms[4][kBlock];
    for (std::int64_t first = 0; first < size; first += kBlock) {
      const std::int64_t count = std::min(kBlock, size - first);
      X* const y = elements_.place(dst + first, rooms[3]);
      write_by_element(elements_.read(row + first, count, rooms[0]), count, spread.near, spread.rest, static_cast<X>(1 / root),
                       elements_.read(gamma + first, count, rooms[1]), elements_.read(beta + first, count, rooms[2]), y);
      elements_.finish(y, dst + first, count);
    }
  }
  /// gamma and beta are the same for all elements.
  void write_channel(const T* row, std::int64_t size, const RowSpread<X>& spread, double root, T gamma, T beta, T* dst) const {
    X rooms[2][kBlock];
    for (std::int64_t first = 0; first < size; first += kBlock) {
      const std::int64_t count = std::min(kBlock, size - first);
      X* const y = elements_.place(dst + first, rooms[1]);
      write_by_channel(elements_.read(row + first, count, rooms[0]), count, spread.near, spread.rest, static_cast<X>(1 / root),
                       static_cast<X>(gamma), static_cast<X>(beta), y);
      elements_.finish(y, dst + first, count);
    }
  }

 private:
  LaneSums<X> sums_of(const T* row, std::int64_t size, X shift) const {
    LaneSums<X> lanes;
    X room[kBlock];
    for (std::int64_t first = 0; first < size; first += kBlock) {
      const std::int64_t count = std::min(kBlock, size - first);
      add_distances(elements_.read(row + first, count, room), count, shift, &lanes);
    }
    return lanes;
  }
  static double total(const X* lanes) {
    double sum = 0;
    for (std::int64_t k = 0; k < kLanes<X>; ++k) sum += static_cast<double>(lanes[k]);
    return sum;
  }

  BlockElements<T> elements_;
};

/// Normalizes along an axis with other axes behind it: neighboring positions together.
template <typename T>
class StripNorm {
 public:
  using X = Compute<T>;

  /// `width` neighbors from x on, and `size` of them one behind the other, `inner` apart. y, mean and root may be null.
  void run(const T* x, std::int64_t size, std::int64_t inner, std::int64_t width, double eps, const T* gamma, const T* beta, T* y,
           T* mean, T* root) const {
    X near[kWidest] = {}, rest[kWidest] = {}, sums[kWidest] = {}, squares[kWidest] = {}, factor[kWidest];
    double roots[kWidest];
    const auto count = static_cast<double>(size);
    add(x, size, inner, width, near, sums, squares);
    for (std::int64_t i = 0; i < width; ++i) near[i] = static_cast<X>(distance_of_mean(static_cast<double>(sums[i]), count));
    std::fill_n(sums, width, X{0});
    std::fill_n(squares, width, X{0});
    add(x, size, inner, width, near, sums, squares);
    for (std::int64_t i = 0; i < width; ++i) {
      const auto sum = static_cast<double>(sums[i]);
      rest[i] = static_cast<X>(distance_of_mean(sum, count));
      roots[i] = std::sqrt(variance_of(sum, static_cast<double>(squares[i]), count) + eps);
      factor[i] = static_cast<X>(1 / roots[i]);
    }
    if (y) write(x, size, inner, width, near, rest, factor, gamma, beta, y);
    for (std::int64_t i = 0; mean && i < width; ++i)
      mean[i] = to_element<T>(static_cast<double>(near[i]) + static_cast<double>(rest[i]));
    for (std::int64_t i = 0; root && i < width; ++i) root[i] = to_element<T>(roots[i]);
  }

 private:
  void add(const T* x, std::int64_t size, std::int64_t inner, std::int64_t width, const X* shift, X* sums, X* squares) const {
    X room[kWidest];
    for (std::int64_t k = 0; k < size; ++k) {
      const X* const row = elements_.read(x + k * inner, width, room);
      vectorized([=] {
#pragma omp simd
        for (std::int64_t i = 0; i < width; ++i) {
          const X apart = row[i] - shift[i];
          sums[i] += apart;
          squares[i] += apart * apart;
        }
      });
    }
  }
  void write(const T* x, std::int64_t size, std::int64_t inner, std::int64_t width, const X* near, const X* rest, const X* factor,
             const T* gamma, const T* beta, T* y) const {
    X rooms[2][kWidest];
    for (std::int64_t k = 0; k < size; ++k) {
      const X* const row = elements_.read(x + k * inner, width, rooms[0]);
      X* const to = elements_.place(y + k * inner, rooms[1]);
      const X scale = static_cast<X>(gamma[k]), offset = static_cast<X>(beta[k]);
      vectorized([=] {
#pragma omp simd
        for (std::int64_t i = 0; i < width; ++i) to[i] = ((row[i] - near[i]) - rest[i]) * factor[i] * scale + offset;
      });
      elements_.finish(to, y + k * inner, width);
    }
  }

  BlockElements<T> elements_;
};

template <typename T>
T* or_null(std::byte* operand) {
  return reinterpret_cast<T*>(operand);
}

template <typename T>
Loop layer_norm_loop(const AxisView& view, double eps) {
  if (view.inner == 1) {
    return [view, eps, norm = RowNorm<T>()](std::span<std::byte* const> operands) {
      const T *const x = or_null<T>(operands[0]), *const gamma = or_null<T>(operands[1]), *const beta = or_null<T>(operands[2]);
      T *const y = or_null<T>(operands[3]), *const mean = or_null<T>(operands[4]), *const root = or_null<T>(operands[5]);
      for_ranges(view.outer, 1, view.outer * view.size, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          const std::int64_t at = row * view.size;
          const auto spread = norm.spread_of(x + at, view.size);
          const double length = std::sqrt(spread.variance + eps);
          if (y) norm.write_elements(x + at, view.size, spread, length, gamma, beta, y + at);
          if (mean) mean[row] = to_element<T>(spread.mean());
          if (root) root[row] = to_element<T>(length);
        }
      });
    };
  }
  return [view, eps, norm = StripNorm<T>()](std::span<std::byte* const> operands) {
    const T *const x = or_null<T>(operands[0]), *const gamma = or_null<T>(operands[1]), *const beta = or_null<T>(operands[2]);
    T *const y = or_null<T>(operands[3]), *const mean = or_null<T>(operands[4]), *const root = or_null<T>(operands[5]);
    const std::int64_t strips = (view.inner + kWidest - 1) / kWidest;
    for_ranges(view.outer * strips, 1, view.outer * view.size * view.inner, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t outer = i / strips, first = i % strips * kWidest, width = std::min(kWidest, view.inner - first);
        const std::int64_t at = outer * view.size * view.inner + first, line = outer * view.inner + first;
        norm.run(x + at, view.size, view.inner, width, eps, gamma, beta, y ? y + at : nullptr, mean ? mean + line : nullptr,
                 root ? root + line : nullptr);
      }
    });
  };
}

struct GroupExtents {
  std::int64_t images, groups, channels, inner;  ///< channels: of a group
  bool by_channel;                               ///< gamma and beta have an element for each channel, not for each group
};

template <typename T>
Loop group_norm_loop(const GroupExtents& extents, const GroupNormAttributes& attributes) {
  return [extents, attributes, norm = RowNorm<T>()](std::span<std::byte* const> operands) {
    const T *const x = or_null<T>(operands[0]), *const gamma = or_null<T>(operands[1]), *const beta = or_null<T>(operands[2]);
    T *const y = or_null<T>(operands[3]), *const mean = or_null<T>(operands[4]), *const root = or_null<T>(operands[5]);
    const std::int64_t size = extents.channels * extents.inner, rows = extents.images * extents.groups;
    for_ranges(rows, 1, rows * size, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t at = row * size, group = row % extents.groups, first = group * extents.channels;
        const auto spread = norm.spread_of(x + at, size);
        const double length = std::sqrt(spread.variance + attributes.eps);
        if (y && !extents.by_channel) {
          norm.write_channel(x + at, size, spread, length, gamma[group], beta[group], y + at);
        } else if (y && extents.inner == 1) {
          norm.write_elements(x + at, size, spread, length, gamma + first, beta + first, y + at);
        } else if (y) {
          for (std::int64_t c = 0; c < extents.channels; ++c) {
            const std::int64_t channel = at + c * extents.inner;
            norm.write_channel(x + channel, extents.inner, spread, length, gamma[first + c], beta[first + c], y + channel);
          }
        }
        if (mean) mean[row] = to_element<T>(spread.mean());
        if (root) root[row] = to_element<T>(attributes.gives_variance ? spread.variance : length);
      }
    });
  };
}

}  // namespace

Loop make_layer_norm(const Node& node, TensorTypes src, TensorTypes) {
  const auto& norm = node.attributes.get<LayerNormAttributes>();
  const AxisView view(src[0].shape, positive_axis(norm.axis, src[0].shape));
  Loop loop;
  dispatch(Floats(), src[0].dtype, [&]<typename T>() { loop = layer_norm_loop<T>(view, norm.eps); });
  return loop;
}

Loop make_group_norm(const Node& node, TensorTypes src, TensorTypes) {
  const auto& norm = node.attributes.get<GroupNormAttributes>();
  const AxisView view(src[0].shape, 1);
  const std::int64_t groups = norm.groups == 0 ? view.size : norm.groups;
  const GroupExtents extents{view.outer, groups, view.size / groups, view.inner, src[1].shape[0] == view.size};
  Loop loop;
  dispatch(Floats(), src[0].dtype, [&]<typename T>() { loop = group_norm_loop<T>(extents, norm); });
  return loop;
}

}  // namespace shoal::worker::cpu

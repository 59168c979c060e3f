// The kernel of Softmax for float32. oneDNN 2.6.3 has only slow "ref" implementations, or (softmax of rows) one that turns NaN
// into numbers.
#include "worker/ops/softmax.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "worker/exec/cpu/kernels/exponential.hpp"
#include "worker/exec/cpu/kernels/layers.hpp"
#include "worker/exec/cpu/kernels/parallel.hpp"
#include "worker/exec/cpu/kernels/vectorized.hpp"
#include "worker/ops/elements.hpp"

namespace shoal::worker::cpu {
namespace {

constexpr std::int64_t kLanes = 16;      // partial results of a row, whatever the processor: their number decides about the sum
constexpr std::int64_t kWidest = 256;    // neighboring positions that are processed together
constexpr std::int64_t kRoom = 1 << 14;  // elements of such a strip that are kept in a local buffer
constexpr int kExpScale = 24;            // so that e^x is a normal number down to where it rounds to 0
constexpr float kExpUnit = 1 << kExpScale;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// What becomes of the data before and after the maximum is taken away.
struct PlainLogits {
  float before(float x) const { return x; }
  float after(float x) const { return x; }
};
struct ScaledLogits {
  float sign, temperature;
  float before(float x) const { return sign * x; }
  float after(float x) const { return x / temperature; }
};

/// A row whose elements are contiguous. NaN is never the maximum, but it is part of the sum. The sum and what is divided by it
/// are kExpUnit times as large as they are called.
template <bool kIsLog, typename Logits>
void softmax_row(const Logits& logits, const float* src, float* dst, std::int64_t size) {
  vectorized([=] {
    const std::int64_t whole = size / kLanes * kLanes;
    float tops[kLanes], sums[kLanes] = {};
    std::fill_n(tops, kLanes, -kInfinity);
    for (std::int64_t i = 0; i < whole; i += kLanes) {
#pragma omp simd
      for (std::int64_t k = 0; k < kLanes; ++k) {
        const float x = logits.before(src[i + k]);
        tops[k] = tops[k] < x ? x : tops[k];
      }
    }
    float highest = -kInfinity, sum = 0;
    for (const float top : tops) highest = highest < top ? top : highest;
    for (std::int64_t i = whole; i < size; ++i) {
      const float x = logits.before(src[i]);
      highest = highest < x ? x : highest;
    }
    for (std::int64_t i = 0; i < whole; i += kLanes) {
#pragma omp simd
      for (std::int64_t k = 0; k < kLanes; ++k) {
        const float logit = logits.after(logits.before(src[i + k]) - highest), power = scaled_exp_of_negative<kExpScale>(logit);
        sums[k] += power;
        dst[i + k] = kIsLog ? logit : power;
      }
    }
    for (const float part : sums) sum += part;
    for (std::int64_t i = whole; i < size; ++i) {
      const float logit = logits.after(logits.before(src[i]) - highest), power = scaled_exp_of_negative<kExpScale>(logit);
      sum += power;
      dst[i] = kIsLog ? logit : power;
    }
    const float divisor = kIsLog ? std::log(sum / kExpUnit) : sum;
#pragma omp simd
    for (std::int64_t k = 0; k < size; ++k) dst[k] = kIsLog ? dst[k] - divisor : dst[k] / divisor;
  });
}

// Rows that are a power of two apart evict each other from all caches. A strip that fits the buffer is read and written once.
template <bool kIsLog, typename Logits>
void softmax_strip(const Logits& logits, const float* src, float* dst, std::int64_t size, std::int64_t inner,
                   std::int64_t width) {
  float room[kRoom];
  const bool fits = size * width <= kRoom;
  float* const work = fits ? room : dst;
  const std::int64_t stride = fits ? width : inner;
  vectorized([=] {
    float highest[kWidest], sum[kWidest];
    std::fill_n(highest, width, -kInfinity);
    std::fill_n(sum, width, 0.0F);
    for (std::int64_t k = 0; k < size; ++k) {
      const float* const row = src + k * inner;
      float* const to = work + k * stride;
#pragma omp simd
      for (std::int64_t i = 0; i < width; ++i) {
        const float x = logits.before(row[i]);
        highest[i] = highest[i] < x ? x : highest[i];
        to[i] = x;
      }
    }
    for (std::int64_t k = 0; k < size; ++k) {
      float* const to = work + k * stride;
#pragma omp simd
      for (std::int64_t i = 0; i < width; ++i) {
        const float logit = logits.after(to[i] - highest[i]), power = scaled_exp_of_negative<kExpScale>(logit);
        sum[i] += power;
        to[i] = kIsLog ? logit : power;
      }
    }
    for (std::int64_t i = 0; kIsLog && i < width; ++i) sum[i] = std::log(sum[i] / kExpUnit);
    for (std::int64_t k = 0; k < size; ++k) {
      const float* const from = work + k * stride;
      float* const to = dst + k * inner;
#pragma omp simd
      for (std::int64_t i = 0; i < width; ++i) to[i] = kIsLog ? from[i] - sum[i] : from[i] / sum[i];
    }
  });
}

template <typename T>
std::int64_t read_length(const std::byte* lengths, std::int64_t row) {
  return load_once(reinterpret_cast<const T*>(lengths) + row);
}

template <bool kIsLog, typename Logits>
Loop make_rows(std::int64_t rows, std::int64_t size, const Logits& logits, SoftmaxLengthReader read) {
  return [=](std::span<std::byte* const> operands) {
    const auto* const src = reinterpret_cast<const float*>(operands.front());
    auto* const dst = reinterpret_cast<float*>(operands.back());
    for_ranges(rows, 1, rows * size, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t length = read ? std::clamp<std::int64_t>(read(operands[1], row), 0, size) : size;
        softmax_row<kIsLog>(logits, src + row * size, dst + row * size, length);
        std::fill(dst + row * size + length, dst + (row + 1) * size, 0.0F);
      }
    });
  };
}

template <bool kIsLog, typename Logits>
Loop make_strips(const AxisView& view, const Logits& logits) {
  // As many neighbors as fit into the buffer; 16 are a cache line.
  const std::int64_t widest = std::clamp<std::int64_t>(kRoom / view.size / 16 * 16, 16, kWidest);
  return [=](std::span<std::byte* const> operands) {
    const auto* const src = reinterpret_cast<const float*>(operands.front());
    auto* const dst = reinterpret_cast<float*>(operands.back());
    const std::int64_t strips = (view.inner + widest - 1) / widest;
    for_ranges(view.outer * strips, 1, view.outer * view.size * view.inner, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t first = i % strips * widest, at = i / strips * view.size * view.inner + first;
        softmax_strip<kIsLog>(logits, src + at, dst + at, view.size, view.inner, std::min(widest, view.inner - first));
      }
    });
  };
}

template <typename Logits>
Loop make_loop(const AxisView& view, bool is_log, const Logits& logits, SoftmaxLengthReader read) {
  if (view.inner == 1) {
    return is_log ? make_rows<true>(view.outer, view.size, logits, read) : make_rows<false>(view.outer, view.size, logits, read);
  }
  if (read) return {};
  return is_log ? make_strips<true>(view, logits) : make_strips<false>(view, logits);
}

}  // namespace

void softmax_of_row(float* row, std::int64_t size) { softmax_row<false>(PlainLogits(), row, row, size); }

SoftmaxLengthReader softmax_length_reader(DType type) {
  if (type == DType::kInt64) return read_length<std::int64_t>;
  return type == DType::kInt32 ? read_length<std::int32_t> : nullptr;
}

Loop make_softmax(const Node& node, TensorTypes src, TensorTypes dst) {
  const auto& softmax = node.attributes.get<SoftmaxAttributes>();
  if (!(softmax.temperature > 0) || dst[0].dtype != DType::kFloat32) return {};
  const Shape& shape = src[0].shape;
  const Shape rows{shape[0], shape.element_count() / shape[0]};
  const AxisView view = softmax.flatten_rest ? AxisView(rows, 1) : AxisView(shape, positive_axis(softmax.axis, shape));
  const SoftmaxLengthReader read = softmax.use_length ? softmax_length_reader(src[1].dtype) : nullptr;
  const bool is_log = softmax.kind == SoftmaxKind::kLogSoftmax;
  const float sign = softmax.kind == SoftmaxKind::kSoftmin ? -1.0F : 1.0F;
  if (sign == 1 && softmax.temperature == 1) return make_loop(view, is_log, PlainLogits(), read);
  return make_loop(view, is_log, ScaledLogits{sign, static_cast<float>(softmax.temperature)}, read);
}

}  // namespace shoal::worker::cpu

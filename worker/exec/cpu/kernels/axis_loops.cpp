#include "worker/exec/cpu/kernels/axis_loops.hpp"

#include <omp.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "worker/exec/cpu/kernels/parallel.hpp"

namespace shoal::worker::cpu {
namespace {

constexpr std::int64_t kWidest = 256;    // neighboring positions that are processed together
constexpr std::int64_t kRoom = 1 << 14;  // elements of such a strip that are kept in a local buffer

/// Runs body(at, width) for strips of at most `widest` neighbors. `at` is the offset of a strip's first element.
template <typename Body>
void for_strips(const AxisExtents& extents, std::int64_t widest, const Body& body) {
  const std::int64_t strips = (extents.inner + widest - 1) / widest, count = extents.outer * strips;
  const bool is_large = extents.outer * extents.size * extents.inner > kLeastPerThread;
#pragma omp parallel for schedule(static) if (is_large)
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t outer = i / strips, first = i % strips * widest;
    body(outer * extents.size * extents.inner + first, std::min(widest, extents.inner - first));
  }
}

/// e^x for x <= 0 and NaN, within 2 units in the last place (Cephes' polynomial); 0 below the normal numbers. It has one
/// selection and no call, so that a loop over it becomes vector instructions.
inline float exp_of_negative(float x) {
  constexpr float kLowest = -88, kLog2E = 1.44269504F, kLn2High = 0.693359375F, kLn2Low = -2.12194440e-4F;
  constexpr float kRounder = 0x1.8p23F;  // adding it rounds to a whole number, which is then in the lowest bits
  const float cut = x < kLowest ? kLowest : x, rounded = cut * kLog2E + kRounder, whole = rounded - kRounder;
  const float r = cut - whole * kLn2High - whole * kLn2Low;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  // 2^whole; 0 at kLowest, where `whole` is -127.
  return p * std::bit_cast<float>((std::bit_cast<std::uint32_t>(rounded) << 23) + 0x3f800000U);
}

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

/// A row whose elements are contiguous. NaN is never the maximum, but it is part of the sum.
template <bool kIsLog, typename Logits>
void softmax_row(const Logits& logits, const float* src, float* dst, std::int64_t size) {
  float highest = -std::numeric_limits<float>::infinity(), sum = 0;
#pragma omp simd reduction(max : highest)
  for (std::int64_t k = 0; k < size; ++k) {
    const float x = logits.before(src[k]);
    highest = highest < x ? x : highest;
  }
#pragma omp simd reduction(+ : sum)
  for (std::int64_t k = 0; k < size; ++k) {
    const float logit = logits.after(logits.before(src[k]) - highest), power = exp_of_negative(logit);
    sum += power;
    dst[k] = kIsLog ? logit : power;
  }
  const float log_sum = std::log(sum);
#pragma omp simd
  for (std::int64_t k = 0; k < size; ++k) dst[k] = kIsLog ? dst[k] - log_sum : dst[k] / sum;
}

// Rows that are a power of two apart evict each other from all caches. A strip that fits the buffer is read and written once.
template <bool kIsLog, typename Logits>
void softmax_strip(const Logits& logits, const float* src, float* dst, std::int64_t size, std::int64_t inner,
                   std::int64_t width) {
  float highest[kWidest], sum[kWidest], room[kRoom];
  const bool fits = size * width <= kRoom;
  float* const work = fits ? room : dst;
  const std::int64_t stride = fits ? width : inner;
  std::fill_n(highest, width, -std::numeric_limits<float>::infinity());
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
      const float logit = logits.after(to[i] - highest[i]), power = exp_of_negative(logit);
      sum[i] += power;
      to[i] = kIsLog ? logit : power;
    }
  }
  if constexpr (kIsLog) std::transform(sum, sum + width, sum, [](float x) { return std::log(x); });
  for (std::int64_t k = 0; k < size; ++k) {
    const float* const from = work + k * stride;
    float* const to = dst + k * inner;
#pragma omp simd
    for (std::int64_t i = 0; i < width; ++i) to[i] = kIsLog ? from[i] - sum[i] : from[i] / sum[i];
  }
}

/// A row whose elements are contiguous.
void normalize_row(const float* src, float* dst, float* root, std::int64_t size, double eps) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t k = 0; k < size; ++k) sum += static_cast<double>(src[k]) * static_cast<double>(src[k]);
  const auto length = static_cast<float>(std::sqrt(sum + eps));
  if (root != nullptr) *root = length;
#pragma omp simd
  for (std::int64_t k = 0; k < size; ++k) dst[k] = src[k] / length;
}

void normalize_strip(const float* src, float* dst, float* root, std::int64_t size, std::int64_t inner, std::int64_t width,
                     double eps) {
  double sum[kWidest];
  float length[kWidest];
  std::fill_n(sum, width, 0.0);
  for (std::int64_t k = 0; k < size; ++k) {
    const float* const row = src + k * inner;
#pragma omp simd
    for (std::int64_t i = 0; i < width; ++i) sum[i] += static_cast<double>(row[i]) * static_cast<double>(row[i]);
  }
  for (std::int64_t i = 0; i < width; ++i) length[i] = static_cast<float>(std::sqrt(sum[i] + eps));
  if (root != nullptr) std::copy_n(length, width, root);
  for (std::int64_t k = 0; k < size; ++k) {
    const float* const row = src + k * inner;
    float* const to = dst + k * inner;
#pragma omp simd
    for (std::int64_t i = 0; i < width; ++i) to[i] = row[i] / length[i];
  }
}

struct ChannelParameters {
  const float *gamma, *beta, *mean, *variance;
  float eps;
};

template <bool kRelu>
void normalize_channels(const float* src, float* dst, const ChannelParameters& parameters, const ChannelRows& extents) {
  for (std::int64_t first = 0; first < extents.channels; first += kWidest) {
    const std::int64_t width = std::min(kWidest, extents.channels - first);
    const float *const mean = parameters.mean + first, *const beta = parameters.beta + first;
    float scale[kWidest];
    for (std::int64_t c = 0; c < width; ++c)
      scale[c] = parameters.gamma[first + c] / std::sqrt(parameters.variance[first + c] + parameters.eps);
    for (std::int64_t row = 0; row < extents.rows; ++row) {
      const float* const from = src + row * extents.stride + first;
      float* const to = dst + row * extents.channels + first;
#pragma omp simd
      for (std::int64_t c = 0; c < width; ++c) {
        const float x = (from[c] - mean[c]) * scale[c] + beta[c];
        to[c] = kRelu && x < 0 ? 0 : x;
      }
    }
  }
}

template <bool kIsLog, typename Logits>
Loop make_softmax(const AxisExtents& extents, const Logits& logits) {
  // As many neighbors as fit into the buffer; 16 are a cache line.
  const std::int64_t widest = std::clamp<std::int64_t>(kRoom / extents.size / 16 * 16, 16, kWidest);
  return [extents, widest, logits](std::span<std::byte* const> operands) {
    const auto* const src = reinterpret_cast<const float*>(operands[0]);
    auto* const dst = reinterpret_cast<float*>(operands[1]);
    for_strips(extents, widest, [&](std::int64_t at, std::int64_t width) {
      if (extents.inner == 1)
        softmax_row<kIsLog>(logits, src + at, dst + at, extents.size);
      else
        softmax_strip<kIsLog>(logits, src + at, dst + at, extents.size, extents.inner, width);
    });
  };
}

}  // namespace

Loop softmax_loop(const AxisExtents& extents, bool is_log, float sign, float temperature) {
  if (sign == 1 && temperature == 1)
    return is_log ? make_softmax<true>(extents, PlainLogits()) : make_softmax<false>(extents, PlainLogits());
  const ScaledLogits scaled{sign, temperature};
  return is_log ? make_softmax<true>(extents, scaled) : make_softmax<false>(extents, scaled);
}

Loop l2_normalization_loop(const AxisExtents& extents, double eps) {
  return [extents, eps](std::span<std::byte* const> operands) {
    const auto* const src = reinterpret_cast<const float*>(operands[0]);
    auto *const dst = reinterpret_cast<float*>(operands[1]), *const roots = reinterpret_cast<float*>(operands[2]);
    for_strips(extents, kWidest, [&](std::int64_t at, std::int64_t width) {
      const std::int64_t row_elements = extents.size * extents.inner;
      float* const root = roots == nullptr ? nullptr : roots + at / row_elements * extents.inner + at % row_elements;
      if (extents.inner == 1)
        normalize_row(src + at, dst + at, root, extents.size, eps);
      else
        normalize_strip(src + at, dst + at, root, extents.size, extents.inner, width, eps);
    });
  };
}

Loop batch_norm_loop(const ChannelRows& extents, float eps, bool with_relu) {
  const auto normalize = with_relu ? normalize_channels<true> : normalize_channels<false>;
  return [extents, eps, normalize](std::span<std::byte* const> operands) {
    const auto floats = [&](std::size_t operand) { return reinterpret_cast<const float*>(operands[operand]); };
    const ChannelParameters parameters{floats(1), floats(2), floats(3), floats(4), eps};
    const float* const src = floats(0);
    auto* const dst = reinterpret_cast<float*>(operands[5]);
#pragma omp parallel if (extents.rows * extents.channels > kLeastPerThread)
    {
      const std::int64_t threads = ::omp_get_num_threads(), thread = ::omp_get_thread_num();
      const std::int64_t first = extents.rows * thread / threads, end = extents.rows * (thread + 1) / threads;
      normalize(src + first * extents.stride, dst + first * extents.channels, parameters,
                {end - first, extents.channels, extents.stride});
    }
  };
}

}  // namespace shoal::worker::cpu

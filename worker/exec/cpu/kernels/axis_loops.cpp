#include "worker/exec/cpu/kernels/axis_loops.hpp"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "worker/exec/cpu/kernels/parallel.hpp"
#include "worker/exec/cpu/kernels/vectorized.hpp"
#include "worker/graph/types.hpp"

namespace shoal::worker::cpu {
namespace {

constexpr std::int64_t kWidest = 256;  // neighboring positions that are processed together

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

/// What vectors are made of: numbers, not structs.
template <typename T>
using Stored = std::conditional_t<std::is_same_v<T, BFloat16>, std::uint16_t, T>;
template <typename T>
Stored<T> stored(float x) {
  if constexpr (std::is_same_v<T, BFloat16>)
    return BFloat16(x).bits;
  else
    return x;
}

template <bool kRelu, typename From, typename To>
void normalize_channels(const std::byte* src, std::byte* dst, const ChannelParameters& parameters, const ChannelRows& extents) {
  for (std::int64_t first = 0; first < extents.channels; first += kWidest) {
    const std::int64_t width = std::min(kWidest, extents.channels - first);
    const float *const mean = parameters.mean + first, *const beta = parameters.beta + first;
    float scale[kWidest];
    for (std::int64_t c = 0; c < width; ++c)
      scale[c] = parameters.gamma[first + c] / std::sqrt(parameters.variance[first + c] + parameters.eps);
    const From* const from_first = reinterpret_cast<const From*>(src) + first;
    auto* const to_first = reinterpret_cast<Stored<To>*>(dst) + first;
    vectorized([=, &scale] {
      for (std::int64_t row = 0; row < extents.rows; ++row) {
        const From* const from = from_first + row * extents.stride;
        Stored<To>* const to = to_first + row * extents.channels;
#pragma omp simd
        for (std::int64_t c = 0; c < width; ++c) {
          const float x = (static_cast<float>(from[c]) - mean[c]) * scale[c] + beta[c];
          to[c] = stored<To>(kRelu && x < 0 ? 0 : x);
        }
      }
    });
  }
}

using NormalizeChannels = void (*)(const std::byte* src, std::byte* dst, const ChannelParameters& parameters,
                                   const ChannelRows& extents);

template <typename From, typename To>
NormalizeChannels normalize_of(bool with_relu) {
  return with_relu ? normalize_channels<true, From, To> : normalize_channels<false, From, To>;
}

}  // namespace

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

Loop batch_norm_loop(const ChannelRows& extents, DType src_type, DType dst_type, float eps, bool with_relu) {
  using Stores = Types<float, BFloat16>;
  NormalizeChannels normalize = nullptr;
  dispatch(Stores(), src_type, [&]<typename From>() {
    dispatch(Stores(), dst_type, [&]<typename To>() { normalize = normalize_of<From, To>(with_relu); });
  });
  const auto src_bytes = static_cast<std::int64_t>(dtype_size_bytes(src_type));
  const auto dst_bytes = static_cast<std::int64_t>(dtype_size_bytes(dst_type));
  return [=](std::span<std::byte* const> operands) {
    const auto floats = [&](std::size_t operand) { return reinterpret_cast<const float*>(operands[operand]); };
    const ChannelParameters parameters{floats(1), floats(2), floats(3), floats(4), eps};
#pragma omp parallel if (extents.rows * extents.channels > kLeastPerThread)
    {
      const std::int64_t threads = ::omp_get_num_threads(), thread = ::omp_get_thread_num();
      const std::int64_t first = extents.rows * thread / threads, end = extents.rows * (thread + 1) / threads;
      normalize(operands[0] + first * extents.stride * src_bytes, operands[5] + first * extents.channels * dst_bytes, parameters,
                {end - first, extents.channels, extents.stride});
    }
  };
}

}  // namespace shoal::worker::cpu

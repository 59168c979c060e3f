#include "worker/exec/cpu/kernels/conversion.hpp"

#include <immintrin.h>

#include <algorithm>

#include "worker/exec/cpu/kernels/vectorized.hpp"
#include "worker/ops/elements.hpp"

namespace shoal::worker::cpu {
namespace {

/// A bool in a file or from a client may be any byte, but a C++ bool must be 0 or 1.
template <typename T>
T read(const std::byte* src, std::int64_t i) {
  if constexpr (std::is_same_v<T, bool>)
    return reinterpret_cast<const std::uint8_t*>(src)[i] != 0;
  else
    return reinterpret_cast<const T*>(src)[i];
}

/// A type that holds every value of From exactly, and from which vectors can be converted: there are none of 64-bit integers.
template <typename From>
using Exact = std::conditional_t<std::is_integral_v<From> && (sizeof(From) < 4 || std::is_same_v<From, std::int32_t>),
                                 std::int32_t, Wide<From>>;

template <typename From, typename To>
void convert_all(const std::byte* src, std::byte* dst, std::int64_t count) {
  vectorized([=] {
    To* const to = reinterpret_cast<To*>(dst);
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) to[i] = convert<To>(static_cast<Exact<From>>(read<From>(src, i)));
  });
}

void bfloat16_to_float(const std::byte* src, std::byte* dst, std::int64_t count) {
  vectorized([=] {
    const auto* const from = reinterpret_cast<const BFloat16*>(src);
    auto* const to = reinterpret_cast<float*>(dst);
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) to[i] = from[i];
  });
}
void float_to_bfloat16(const std::byte* src, std::byte* dst, std::int64_t count) {
  vectorized([=] {
    const auto* const from = reinterpret_cast<const float*>(src);
    auto* const to = reinterpret_cast<std::uint16_t*>(dst);  // vectors are made of numbers, not of structs
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) to[i] = BFloat16(from[i]).bits;
  });
}

// The compiler makes vectors of these conversions only for processors with AVX512-FP16.
[[gnu::target("avx2,f16c")]] void widen_with_f16c(const Half* src, float* dst, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(src + i))));
  for (; i < count; ++i) dst[i] = src[i];
}
[[gnu::target("avx2,f16c")]] void narrow_with_f16c(const float* src, Half* dst, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dst + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  for (; i < count; ++i) dst[i] = Half(src[i]);
}

void half_to_float(const std::byte* src, std::byte* dst, std::int64_t count) {
  const auto* const from = reinterpret_cast<const Half*>(src);
  auto* const to = reinterpret_cast<float*>(dst);
  has_avx2() ? widen_with_f16c(from, to, count) : (void)std::copy_n(from, count, to);
}
void float_to_half(const std::byte* src, std::byte* dst, std::int64_t count) {
  const auto* const from = reinterpret_cast<const float*>(src);
  auto* const to = reinterpret_cast<Half*>(dst);
  has_avx2() ? narrow_with_f16c(from, to, count) : (void)std::transform(from, from + count, to, [](float x) { return Half(x); });
}

using Computed = Joined<Types<float, double>, Integers, Types<bool>>::Type;

}  // namespace

Conversion::Conversion(DType from, DType to) : src_bytes_(dtype_size_bytes(from)) {
  if (from == to && from != DType::kBool) return;
  const DType computed_from = computed_type(from), computed_to = computed_type(to);
  if (from == DType::kFloat16) add(half_to_float, sizeof(float));
  if (from == DType::kBFloat16) add(bfloat16_to_float, sizeof(float));
  if (computed_from != computed_to || from == DType::kBool) {
    dispatch(Computed(), computed_from, [&]<typename From>() {
      dispatch(Computed(), computed_to, [&]<typename To>() { add(convert_all<From, To>, sizeof(To)); });
    });
  }
  if (to == DType::kFloat16) add(float_to_half, sizeof(Half));
  if (to == DType::kBFloat16) add(float_to_bfloat16, sizeof(BFloat16));
}

void Conversion::operator()(const std::byte* src, std::byte* dst, std::int64_t count) const {
  if (step_count_ == 1) return steps_[0](src, dst, count);
  alignas(64) std::byte rooms[2][kBlockBytes];
  for (std::int64_t first = 0; first < count; first += kBlock) {
    const std::int64_t size = std::min(kBlock, count - first);
    const std::byte* at = src + static_cast<std::size_t>(first) * src_bytes_;
    for (std::size_t i = 0; i < step_count_; ++i) {
      std::byte* const to = i + 1 < step_count_ ? rooms[i] : dst + static_cast<std::size_t>(first) * bytes_[i];
      steps_[i](at, to, size);
      at = to;
    }
  }
}

}  // namespace shoal::worker::cpu

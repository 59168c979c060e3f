#include "worker/exec/cpu/kernels/row_functions.hpp"

#include <algorithm>
#include <limits>

#include "worker/exec/cpu/kernels/exponential.hpp"
#include "worker/exec/cpu/kernels/parallel.hpp"
#include "worker/exec/cpu/kernels/vectorized.hpp"

namespace shoal::worker::cpu {
namespace {

template <typename One>
void over(float* row, std::int64_t count, const One& one) {
  vectorized([=] {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) row[i] = one(row[i]);
  });
}

void linear(float* row, std::int64_t count, const ElementFunction& f) {
  over(row, count, [a = f.alpha, b = f.beta](float x) { return x * a + b; });
}
void clip(float* row, std::int64_t count, const ElementFunction& f) {
  over(row, count, [low = f.alpha, high = f.beta](float x) {
    const float raised = x < low ? low : x;
    return raised > high ? high : raised;
  });
}
void relu(float* row, std::int64_t count, const ElementFunction& f) {
  if (f.alpha == 0) return clip(row, count, {ElementFunction::Kind::kClip, 0, std::numeric_limits<float>::infinity()});
  over(row, count, [a = f.alpha](float x) { return x > 0 ? x : a * x; });
}
void absolute(float* row, std::int64_t count, const ElementFunction&) {
  over(row, count, [](float x) { return __builtin_fabsf(x); });
}
void square(float* row, std::int64_t count, const ElementFunction&) {
  over(row, count, [](float x) { return x * x; });
}
void logistic(float* row, std::int64_t count, const ElementFunction&) {
  over(row, count, [](float x) { return vector_sigmoid(x); });  // a pointer would not be inlined
}
void tanh_of(float* row, std::int64_t count, const ElementFunction&) {
  over(row, count, [](float x) { return vector_tanh(x); });  // a pointer would not be inlined
}
void gelu(float* row, std::int64_t count, const ElementFunction&) {
  over(row, count, [](float x) { return vector_gelu(x); });  // a pointer would not be inlined
}
void swish(float* row, std::int64_t count, const ElementFunction& f) {
  over(row, count, [a = f.alpha](float x) { return x * vector_sigmoid(a * x); });
}
void hard_swish(float* row, std::int64_t count, const ElementFunction&) {
  over(row, count, [](float x) {
    const float raised = x + 3 < 0 ? 0.0F : x + 3, gate = raised > 6 ? 6.0F : raised;
    return x * gate / 6;
  });
}

}  // namespace

RowFunction row_function(ElementFunction::Kind kind) {
  using Kind = ElementFunction::Kind;
  switch (kind) {
    case Kind::kLinear:
      return linear;
    case Kind::kClip:
      return clip;
    case Kind::kRelu:
      return relu;
    case Kind::kAbs:
      return absolute;
    case Kind::kSquare:
      return square;
    case Kind::kLogistic:
      return logistic;
    case Kind::kTanh:
      return tanh_of;
    case Kind::kGelu:
      return gelu;
    case Kind::kSwish:
      return swish;
    case Kind::kHardSwish:
      return hard_swish;
    case Kind::kDivision:
    case Kind::kSqrt:
      break;
  }
  return nullptr;
}

Loop row_function_loop(std::int64_t count, const ElementFunction& function) {
  return [count, function, apply = row_function(function.kind)](std::span<std::byte* const> operands) {
    constexpr std::int64_t kAtOnce = 4096;  // they stay in the nearest cache between the copy and the function
    const auto* const src = reinterpret_cast<const float*>(operands[0]);
    auto* const dst = reinterpret_cast<float*>(operands[1]);
    for_ranges(count, kAtOnce, count, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; i += kAtOnce) {
        const std::int64_t part = std::min(kAtOnce, end - i);
        if (src != dst) std::copy_n(src + i, part, dst + i);
        apply(dst + i, part, function);
      }
    });
  };
}

}  // namespace shoal::worker::cpu

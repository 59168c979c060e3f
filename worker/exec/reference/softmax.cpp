#include <algorithm>
#include <cmath>
#include <limits>

#include "worker/exec/reference/elements.hpp"
#include "worker/exec/reference/kernels.hpp"

namespace shoal::worker {
namespace {

/// One row of `size` elements that are `stride` apart. The first `count` take part, the others become 0. Computes in type F.
template <typename F, typename In, typename Out>
void softmax_row(const SoftmaxAttributes& softmax, const In* src, Out* dst, std::int64_t size, std::int64_t count,
                 std::int64_t stride) {
  const F sign = softmax.kind == SoftmaxKind::kSoftmin ? F{-1} : F{1}, temperature = static_cast<F>(softmax.temperature);
  F highest = -std::numeric_limits<F>::infinity(), sum = 0;
  for (std::int64_t i = 0; i < count; ++i) highest = std::max(highest, sign * static_cast<F>(src[i * stride]));
  const auto logit = [&](std::int64_t i) { return (sign * static_cast<F>(src[i * stride]) - highest) / temperature; };
  for (std::int64_t i = 0; i < count; ++i) sum += std::exp(logit(i));
  const F log_sum = std::log(sum);
  for (std::int64_t i = 0; i < count; ++i) {
    dst[i * stride] = to_element<Out>(softmax.kind == SoftmaxKind::kLogSoftmax ? logit(i) - log_sum : std::exp(logit(i)) / sum);
  }
  for (std::int64_t i = count; i < size; ++i) dst[i * stride] = to_element<Out>(F{0});
}

AxisView rows_of(const SoftmaxAttributes& softmax, const Shape& shape) {
  if (!softmax.flatten_rest) return {shape, positive_axis(softmax.axis, shape)};
  AxisView view(shape, 0);  // everything behind the first axis is one row
  return {Shape{view.size, view.inner}, 1};
}

/// How many elements of a row take part: all, or what the length input says. It is a bound for writes, so it is loaded once.
std::int64_t elements_taking_part(Sources src, std::int64_t row, std::int64_t size) {
  if (src.size() < 2) return size;
  const std::int64_t length = src[1].dtype == DType::kInt64 ? load_once(elements<std::int64_t>(src[1]) + row)
                                                            : load_once(elements<std::int32_t>(src[1]) + row);
  return std::clamp<std::int64_t>(length, 0, size);
}

}  // namespace

Status reference_softmax(const Node& node, Sources src, Results dst) {
  const auto& softmax = std::get<SoftmaxAttributes>(node.attributes);
  const AxisView view = rows_of(softmax, src[0].shape);
  return with_float(node, src[0].dtype, [&]<typename In>() {
    return with_float(node, dst[0].dtype, [&]<typename Out>() {
      using F = std::conditional_t<std::is_same_v<In, double> || std::is_same_v<Out, double>, double, float>;
      for (std::int64_t outer = 0; outer < view.outer; ++outer) {
        for (std::int64_t inner = 0; inner < view.inner; ++inner) {
          const std::int64_t at = outer * view.size * view.inner + inner;
          softmax_row<F>(softmax, elements<In>(src[0]) + at, elements<Out>(dst[0]) + at, view.size,
                         elements_taking_part(src, outer * view.inner + inner, view.size), view.inner);
        }
      }
      return Status();
    });
  });
}

}  // namespace shoal::worker

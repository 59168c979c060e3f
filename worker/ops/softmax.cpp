// Softmax.
#include "worker/ops/softmax.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/elements.hpp"

namespace shoal::worker {
namespace {

Status infer_softmax(const Node& node, SourceValues src, ResultValues dst) {
  const auto& softmax = node.attributes.get<SoftmaxAttributes>();
  const TypedValue& data = src[0];
  SHOAL_RETURN_IF_ERROR(check_float(node, data));
  SHOAL_RETURN_IF_ERROR(check_rank(node, data, softmax.least_rank));
  if (!softmax.flatten_rest || softmax.use_length) {
    SHOAL_ASSIGN_OR_RETURN(const int axis, normalize_axis(node, softmax.axis, data.shape));
    if (softmax.use_length) {
      if (src.size() != 2) return invalid_argument("{}: use_length is set and there is no length input", describe(node));
      if (src[1].dtype != DType::kInt32 && src[1].dtype != DType::kInt64) {
        return invalid_argument("{}: length '{}' is {}; int32 or int64 is needed", describe(node), src[1].name,
                                dtype_name(src[1].dtype));
      }
      Sizes dims(data.shape.begin(), data.shape.end());
      dims.erase(dims.begin() + axis);
      if (dims.empty()) dims.push_back(1);
      SHOAL_RETURN_IF_ERROR(check_shape(node, "length", src[1], SymbolicShape(dims)));
    }
  }
  set_result(dst[0], softmax.dtype.value_or(data.dtype), data.shape);
  return {};
}

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

Status compute_softmax(const Node& node, Sources src, Results dst) {
  const auto& softmax = node.attributes.get<SoftmaxAttributes>();
  const AxisView view = rows_of(softmax, src[0].shape);
  return dispatch<Floats>(node, src[0].dtype, [&]<typename In>() {
    return dispatch<Floats>(node, dst[0].dtype, [&]<typename Out>() {
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

bool softmax_rows(const BatchedNode& batched) {
  const auto& softmax = batched.node.attributes.get<SoftmaxAttributes>();
  return !softmax.use_length && (softmax.flatten_rest || !batched.is_of_rows(softmax.axis));
}

}  // namespace

namespace ops {

const Operator kSoftmax({
    .name = "Softmax",
    .inputs = {1, 2},
    .attributes = &kSchema<SoftmaxAttributes>,
    .infer = infer_softmax,
    .facts = indexed_facts(softmax_rows, 1, work_of_elements, Accuracy::kLost),
    .oracle = compute_softmax,
    .formula = "data, [lengths]: exp(x / temperature) over its sum along the axis; elements behind the length are 0",
    .source = "MXNet 1.9.1 src/operator/nn/softmax-inl.h",
});

}  // namespace ops

}  // namespace shoal::worker

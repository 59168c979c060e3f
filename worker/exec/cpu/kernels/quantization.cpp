// Kernels between real and quantized numbers.
#include "worker/ops/quantization.hpp"
#include "worker/exec/cpu/kernels/elementwise.hpp"
#include "worker/exec/cpu/kernels/map.hpp"
#include "worker/ops/quantization_functions.hpp"

namespace shoal::worker::cpu {
namespace {

/// A function of a number and the two ends of its range.
template <typename Result, typename X, typename Function>
BlockFunction block_in_range(Function function) {
  return [function](const std::byte* const* src, std::byte* dst, std::int64_t count) {
    const X* const x = reinterpret_cast<const X*>(src[0]);
    const float min = *reinterpret_cast<const float*>(src[1]), max = *reinterpret_cast<const float*>(src[2]);
    Result* const to = reinterpret_cast<Result*>(dst);
    vectorized([=] {
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i) to[i] = function(x[i], min, max);
    });
  };
}

Loop map_in_range(TensorTypes src, const TensorType& dst, BlockFunction function) {
  const auto input = [&](std::size_t i) { return MapInput::of(src[i], dst.shape, src[i].dtype); };
  // Behind the range there may be inputs of which only the type counts.
  return [loop = map_loop({input(0), input(1), input(2)}, dst, dst.dtype, std::move(function))](
             std::span<std::byte* const> operands) {
    std::byte* const used[] = {operands[0], operands[1], operands[2], operands.back()};
    loop(used);
  };
}

}  // namespace

Loop make_quantize(const Node& node, TensorTypes src, TensorTypes dst) {
  const bool half_more = node.attributes.get<QuantizeAttributes>().half_more;
  Loop loop;
  dispatch(QuantizedTypes(), dst[0].dtype, [&]<typename Q>() {
    loop = map_in_range(src, dst[0], block_in_range<Q, float>([half_more](float x, float min, float max) {
                          return quantized<Q>(x, min, max, half_more);
                        }));
  });
  return loop;
}

Loop make_dequantize(const Node& node, TensorTypes src, TensorTypes dst) {
  const bool half_more = node.attributes.get<DequantizeAttributes>().half_more;
  Loop loop;
  dispatch(QuantizedTypes(), src[0].dtype, [&]<typename Q>() {
    loop = map_in_range(src, dst[0], block_in_range<float, Q>([half_more](Q q, float min, float max) {
                          return dequantized<Q>(q, min, max, half_more);
                        }));
  });
  return loop;
}

Loop make_quantized_step(const Node&, TensorTypes src, TensorTypes) {
  Loop loop;
  dispatch(QuantizedTypes(), src[0].dtype, [&]<typename Q>() {
    loop = [](std::span<std::byte* const> operands) {
      const auto end = [&](std::size_t i) { return *reinterpret_cast<const float*>(operands[i]); };
      *reinterpret_cast<float*>(operands[3]) = static_cast<float>(step_of<Q>(end(1), end(2)));
    };
  });
  return loop;
}

}  // namespace shoal::worker::cpu

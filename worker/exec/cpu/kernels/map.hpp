// Element-wise kernels: each element of the result from the elements at its position in the inputs, which are broadcast.
//
//   input k ─ gather (broadcast) ─ convert ─▶ block of 512 ─┐
//                                                           ├─ function ─▶ block ─ convert ─▶ result
//   a dense input of the type in which it is computed ──────┘  (a dense result of that type is written in place)
//
// So a function needs one loop for each type in which it is computed, and is called once for a block.
#pragma once

#include <array>
#include <functional>
#include <vector>

#include "worker/exec/cpu/kernels/conversion.hpp"
#include "worker/exec/cpu/kernels/kernels.hpp"
#include "worker/exec/cpu/kernels/vectorized.hpp"
#include "worker/exec/cpu/kernels/walk.hpp"

namespace shoal::worker::cpu {

/// One input of a map.
struct MapInput {
  DType dtype = DType::kInvalid, computed = DType::kInvalid;  ///< as it is stored, and as the function reads it
  Walk walk;                                                  ///< by the positions of the result
  std::array<std::byte, 8> number{};  ///< if dtype is kInvalid: the same number for all elements, as computed

  /// The tensor broadcast to `shape`.
  static MapInput of(const TensorType& tensor, const Shape& shape, DType computed) {
    return {tensor.dtype, computed, Walk::broadcast(tensor.shape, shape)};
  }
  template <typename C>
  static MapInput of_number(C value) {
    MapInput input{.computed = kDTypeOf<C>};
    input.walk.strides[0] = 0;
    std::memcpy(input.number.data(), &value, sizeof value);
    return input;
  }
};
inline constexpr std::size_t kMostMapInputs = 3;

/// dst[i] = function(src[0][i], src[1][i], ...) for `count` elements, dense, in the types in which they are computed. dst may be
/// a source.
using BlockFunction = std::function<void(const std::byte* const* src, std::byte* dst, std::int64_t count)>;

/// Operands: the inputs that are no numbers, then the result.
///   inputs    at most kMostMapInputs
///   computed  the type that the function writes
Loop map_loop(const std::vector<MapInput>& inputs, const TensorType& dst, DType computed, BlockFunction function);
/// The result begins as 0 and becomes function(result, input), one input after the other, all of the type and shape of the
/// result. Operands as above.
Loop fold_loop(std::size_t inputs, const TensorType& dst, BlockFunction function);

/// The loop over a block for an object that computes one element.
template <typename Result, typename X, typename Function>
BlockFunction block_of(Function function) {
  return [function](const std::byte* const* src, std::byte* dst, std::int64_t count) {
    const X* const x = reinterpret_cast<const X*>(src[0]);
    Result* const to = reinterpret_cast<Result*>(dst);
    vectorized([=] {
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<Result>(function(x[i]));
    });
  };
}
template <typename Result, typename X, typename Y, typename Function>
BlockFunction block_of(Function function) {
  return [function](const std::byte* const* src, std::byte* dst, std::int64_t count) {
    const X* const x = reinterpret_cast<const X*>(src[0]);
    const Y* const y = reinterpret_cast<const Y*>(src[1]);
    Result* const to = reinterpret_cast<Result*>(dst);
    vectorized([=] {
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<Result>(function(x[i], y[i]));
    });
  };
}

/// The types in which numbers are computed.
using ComputedNumbers = Joined<Types<float, double>, Integers>::Type;

}  // namespace shoal::worker::cpu

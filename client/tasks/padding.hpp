// The end of a sequence: filled up in inputs, cut off from outputs.
#pragma once

#include <cstdint>
#include <span>

#include "shoal/tensor.hpp"

namespace shoal::tasks {

/// A tensor as `outer` pieces, each of which is `length` steps of `step_bytes`.
struct Steps {
  std::size_t outer = 1, length = 0, step_bytes = 0;
};
/// Along dimension `axis` < rank.
Steps steps_of(const TensorView& tensor, int axis);

/// Copies the steps of `src` to `dst`, which has as many pieces of more steps, and fills the rest with `element`.
void pad(const TensorView& src, const Steps& from, TensorView& dst, const Steps& to, std::span<const std::byte> element);

/// The first `length` steps of each piece, as a tensor of `shape`. Shares the bytes if there is one piece.
///   Errors  kFailedPrecondition (out of memory)
Result<Tensor> cut(const Tensor& tensor, const Steps& steps, std::size_t length, const Shape& shape);

}  // namespace shoal::tasks

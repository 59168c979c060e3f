#include "client/tasks/padding.hpp"

#include <cstring>

#include "shm/base/errors.hpp"

namespace shoal::tasks {

Steps steps_of(const TensorView& tensor, int axis) {
  Steps steps{.step_bytes = dtype_size_bytes(tensor.dtype)};
  for (int i = 0; i < tensor.shape.rank(); ++i) {
    const auto size = static_cast<std::size_t>(tensor.shape[i]);
    if (i < axis)
      steps.outer *= size;
    else if (i == axis)
      steps.length = size;
    else
      steps.step_bytes *= size;
  }
  return steps;
}

void pad(const TensorView& src, const Steps& from, TensorView& dst, const Steps& to, std::span<const std::byte> element) {
  const std::size_t kept = from.length * from.step_bytes, whole = to.length * to.step_bytes;
  for (std::size_t i = 0; i < to.outer; ++i) {
    std::byte* const piece = dst.data + i * whole;
    if (kept > 0) std::memcpy(piece, src.data + i * kept, kept);
    for (std::size_t at = kept; at < whole; at += element.size()) std::memcpy(piece + at, element.data(), element.size());
  }
}

Result<Tensor> cut(const Tensor& tensor, const Steps& steps, std::size_t length, const Shape& shape) {
  const std::size_t kept = length * steps.step_bytes, whole = steps.length * steps.step_bytes;
  if (steps.outer == 1) return Tensor({tensor.dtype(), shape, tensor.view().data}, tensor.owner());
  SHOAL_ASSIGN_OR_RETURN(Tensor part, Tensor::create(tensor.dtype(), shape));
  for (std::size_t i = 0; i < steps.outer && kept > 0; ++i)
    std::memcpy(part.view().data + i * kept, tensor.view().data + i * whole, kept);
  return part;
}

}  // namespace shoal::tasks

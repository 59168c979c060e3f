// Operators that move bytes: copies, Concat, Transpose. All element types are alike to them.
#include <cstring>

#include "worker/exec/reference/elements.hpp"
#include "worker/exec/reference/kernels.hpp"

namespace shoal::worker {

Status reference_copy(const Node&, Sources src, Results dst) {
  std::memcpy(dst[0].data, src[0].data, dst[0].size_bytes());
  return {};
}

Status reference_concat(const Node& node, Sources src, Results dst) {
  const int axis = positive_axis(std::get<ConcatAttributes>(node.attributes).axis, dst[0].shape);
  const AxisView whole(dst[0].shape, axis);
  std::byte* to = dst[0].data;
  for (std::int64_t outer = 0; outer < whole.outer; ++outer) {
    for (const TensorView& piece : src) {
      const std::size_t bytes = piece.size_bytes() / static_cast<std::size_t>(whole.outer);
      std::memcpy(to, piece.data + static_cast<std::size_t>(outer) * bytes, bytes);
      to += bytes;
    }
  }
  return {};
}

Status reference_transpose(const Node& node, Sources src, Results dst) {
  const Dims& axes = std::get<TransposeAttributes>(node.attributes).axes;
  const Shape &from = src[0].shape, &to = dst[0].shape;
  const int rank = to.rank();
  std::int64_t strides[kMaxRank];  // of the source, along the axes of the destination
  for (int i = 0; i < rank; ++i) {
    const int axis = axes.empty() ? rank - 1 - i : static_cast<int>(axes[static_cast<std::size_t>(i)]);
    strides[i] = AxisView(from, axis).inner;
  }
  const std::size_t size = dtype_size_bytes(src[0].dtype);
  std::int64_t position[kMaxRank] = {}, offset = 0;
  std::byte* out = dst[0].data;
  for (std::int64_t i = 0, count = dst[0].element_count(); i < count; ++i, out += size) {
    std::memcpy(out, src[0].data + static_cast<std::size_t>(offset) * size, size);
    for (int axis = rank - 1; axis >= 0; --axis) {  // the odometer: offset follows position
      offset += strides[axis];
      if (++position[axis] < to[axis]) break;
      offset -= strides[axis] * to[axis];
      position[axis] = 0;
    }
  }
  return {};
}

}  // namespace shoal::worker

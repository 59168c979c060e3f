// Broadcast, Tile, Repeat: elements that occur several times. They treat all types of one size alike.
#include "worker/ops/repetition.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/elements.hpp"

namespace shoal::worker {
namespace {

/// Makes an axis of the data as long as `wanted`.
Status stretch(const Node& node, const TypedValue& data, int axis, Dim wanted, Dim& size) {
  if (known_unequal(size, wanted) && known_unequal(size, 1)) {
    return invalid_argument("{}: axis {} of '{}' ({}) cannot become {} long", describe(node), axis, data.name,
                            data.shape.to_string(), wanted.to_string());
  }
  size = wanted;
  return {};
}

Status infer_broadcast_like(const Node& node, SourceValues src, ResultValues dst) {
  const auto& broadcast = node.attributes.get<BroadcastAttributes>();
  const TypedValue &data = src[0], &like = src[1];
  SymbolicShape out = data.shape;
  const bool is_whole = broadcast.axes.empty() && broadcast.like_axes.empty();
  if (is_whole ? data.shape.rank() != like.shape.rank() : broadcast.axes.size() != broadcast.like_axes.size()) {
    return invalid_argument("{}: axes {} of '{}' ({}) and axes {} of '{}' ({}) differ in number", describe(node),
                            to_text(broadcast.axes), data.name, data.shape.to_string(), to_text(broadcast.like_axes), like.name,
                            like.shape.to_string());
  }
  for (int axis = 0; is_whole && axis < out.rank(); ++axis)
    SHOAL_RETURN_IF_ERROR(stretch(node, data, axis, like.shape[axis], out[axis]));
  for (std::size_t i = 0; i < broadcast.axes.size(); ++i) {
    SHOAL_ASSIGN_OR_RETURN(const int axis, normalize_axis(node, broadcast.axes[i], data.shape));
    SHOAL_ASSIGN_OR_RETURN(const int from, normalize_axis(node, broadcast.like_axes[i], like.shape));
    SHOAL_RETURN_IF_ERROR(stretch(node, data, axis, like.shape[from], out[axis]));
  }
  set_result(dst[0], data.dtype, out);
  return {};
}

/// To a whole shape.
Status infer_broadcast_to(const Node& node, const TypedValue& data, const Dims& sizes, TypedValue& dst) {
  const std::int64_t added = static_cast<std::int64_t>(sizes.size()) - data.shape.rank();
  if (added < 0 ||
      std::any_of(sizes.begin(), sizes.begin() + std::max<std::int64_t>(added, 0), [](auto size) { return size == 0; })) {
    return invalid_argument("{}: '{}' ({}) cannot have shape {}", describe(node), data.name, data.shape.to_string(),
                            to_text(sizes));
  }
  Sizes dims(static_cast<std::size_t>(added), Dim(1));
  dims.insert(dims.end(), data.shape.begin(), data.shape.end());
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (sizes[i] != 0) SHOAL_RETURN_IF_ERROR(stretch(node, data, static_cast<int>(i), sizes[i], dims[i]));
  }
  SHOAL_ASSIGN_OR_RETURN(const SymbolicShape out, make_shape(node, dims));
  set_result(dst, data.dtype, out);
  return {};
}

Status infer_broadcast(const Node& node, SourceValues src, ResultValues dst) {
  const auto& broadcast = node.attributes.get<BroadcastAttributes>();
  if (src.size() == 2) return infer_broadcast_like(node, src, dst);
  SHOAL_RETURN_IF_ERROR(check_numbers(node, "size", broadcast.sizes, 0));
  const TypedValue& data = src[0];
  if (broadcast.axes.empty()) return infer_broadcast_to(node, data, broadcast.sizes, dst[0]);
  if (broadcast.axes.size() != broadcast.sizes.size()) {
    return invalid_argument("{}: axes {} and sizes {} differ in number", describe(node), to_text(broadcast.axes),
                            to_text(broadcast.sizes));
  }
  SymbolicShape out = data.shape;
  for (std::size_t i = 0; i < broadcast.axes.size(); ++i) {
    SHOAL_ASSIGN_OR_RETURN(const int axis, normalize_axis(node, broadcast.axes[i], data.shape));
    SHOAL_RETURN_IF_ERROR(stretch(node, data, axis, broadcast.sizes[i], out[axis]));
  }
  set_result(dst[0], data.dtype, out);
  return {};
}

Status infer_tile(const Node& node, SourceValues src, ResultValues dst) {
  const Dims& counts = node.attributes.get<TileAttributes>().counts;
  SHOAL_RETURN_IF_ERROR(check_numbers(node, "reps", counts, 1));
  const SymbolicShape& data = src[0].shape;
  const std::size_t rank = std::max(counts.size(), static_cast<std::size_t>(data.rank()));
  Sizes sizes(rank - static_cast<std::size_t>(data.rank()), Dim(1));
  sizes.insert(sizes.end(), data.begin(), data.end());
  for (std::size_t i = 0; i < counts.size(); ++i) sizes[rank - counts.size() + i] *= counts[i];
  SHOAL_ASSIGN_OR_RETURN(const SymbolicShape out, make_shape(node, sizes));
  set_result(dst[0], src[0].dtype, out);
  return {};
}

Status infer_repeat(const Node& node, SourceValues src, ResultValues dst) {
  const auto& repeat = node.attributes.get<RepeatAttributes>();
  SHOAL_RETURN_IF_ERROR(check_numbers(node, "repeats", {repeat.count}, 1));
  const SymbolicShape& data = src[0].shape;
  SymbolicShape out{data.element_count() * repeat.count};
  if (repeat.axis) {
    SHOAL_ASSIGN_OR_RETURN(const int axis, normalize_axis(node, *repeat.axis, data));
    out = data;
    out[axis] *= repeat.count;
  }
  set_result(dst[0], src[0].dtype, out);
  return {};
}

Status compute_broadcast(const Node&, Sources src, Results dst) {
  copy_strided(src[0], 0, broadcast_strides(src[0].shape, dst[0].shape), dst[0]);
  return {};
}

Status compute_tile(const Node&, Sources src, Results dst) {
  const Shape& to = dst[0].shape;
  const Shape from = with_axes_in_front(src[0].shape, to.rank());
  const Strides strides = row_major(from);
  const std::size_t row = static_cast<std::size_t>(row_length(from)) * dtype_size_bytes(dst[0].dtype);
  const std::int64_t times = row_length(to) / row_length(from);
  std::array<Strides, kMaxRank> one_per_axis{};  // the positions themselves are what each_row() counts
  for (std::size_t axis = 0; axis < one_per_axis.size(); ++axis) one_per_axis[axis][axis] = 1;
  std::byte* out = dst[0].data;
  each_row(to, one_per_axis, [&](const std::array<std::int64_t, kMaxRank>& position) {
    std::int64_t offset = 0;
    for (int axis = 0; axis + 1 < to.rank(); ++axis) {
      const auto k = static_cast<std::size_t>(axis);
      offset += position[k] % from[axis] * strides[k];
    }
    const std::byte* const data = src[0].data + static_cast<std::size_t>(offset) * dtype_size_bytes(dst[0].dtype);
    for (std::int64_t i = 0; i < times; ++i, out += row) std::memcpy(out, data, row);
  });
  return {};
}

Status compute_repeat(const Node& node, Sources src, Results dst) {
  const auto& repeat = node.attributes.get<RepeatAttributes>();
  std::size_t bytes = dtype_size_bytes(dst[0].dtype);
  if (repeat.axis) bytes *= static_cast<std::size_t>(AxisView(src[0].shape, positive_axis(*repeat.axis, src[0].shape)).inner);
  std::byte* to = dst[0].data;
  for (const std::byte *from = src[0].data, *const end = from + src[0].size_bytes(); from != end; from += bytes) {
    for (std::int64_t i = 0; i < repeat.count; ++i, to += bytes) std::memcpy(to, from, bytes);
  }
  return {};
}

bool broadcast_rows(const BatchedNode& batched) { return batched.rows_align(0); }

bool tile_rows(const BatchedNode& batched) {
  const Dims& counts = batched.node.attributes.get<TileAttributes>().counts;
  const auto rank = static_cast<std::size_t>(batched.rank());
  return counts.size() < rank || (counts.size() == rank && !counts.empty() && counts[0] == 1);
}

}  // namespace

Shape with_axes_in_front(const Shape& shape, int rank) {
  Dims dims(static_cast<std::size_t>(rank - shape.rank()), 1);
  dims.insert(dims.end(), shape.begin(), shape.end());
  return Shape(dims);
}

namespace ops {

const Operator kBroadcast({
    .name = "Broadcast",
    .inputs = {1, 2},
    .attributes = &kSchema<BroadcastAttributes>,
    .infer = infer_broadcast,
    .facts = with_shape_inputs(layer_facts(broadcast_rows, work_of_elements, Accuracy::kLost), 1),
    .oracle = compute_broadcast,
    .formula = "data, [like]: axes of one element become longer",
    .source = "MXNet 1.9.1 src/operator/tensor/broadcast_reduce_op.h",
});

const Operator kTile({
    .name = "Tile",
    .attributes = &kSchema<TileAttributes>,
    .infer = infer_tile,
    .facts = layer_facts(tile_rows, work_of_elements, Accuracy::kLost),
    .oracle = compute_tile,
    .formula = "data, several times side by side along each axis",
    .source = "MXNet 1.9.1 src/operator/tensor/matrix_op-inl.h",
});

const Operator kRepeat({
    .name = "Repeat",
    .attributes = &kSchema<RepeatAttributes>,
    .infer = infer_repeat,
    .facts = layer_facts(rows_of_first_input, work_of_elements, Accuracy::kLost),
    .oracle = compute_repeat,
    .formula = "data with each element, or each slice of an axis, several times behind one another",
    .source = "MXNet 1.9.1 src/operator/tensor/matrix_op-inl.h",
});

}  // namespace ops

}  // namespace shoal::worker

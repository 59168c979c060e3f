// Operators that move elements. They are a view if nothing has to move, else one reorder. Padding is one of Shoal's loops.
#include <algorithm>
#include <optional>

#include "shm/base/errors.hpp"
#include "worker/exec/cpu/compiler.hpp"
#include "worker/exec/cpu/kernels/detection.hpp"
#include "worker/exec/cpu/kernels/movement.hpp"
#include "worker/graph/operators.hpp"
#include "worker/ops/movement.hpp"
#include "worker/ops/resize.hpp"

namespace shoal::worker::cpu {

struct Box {
  dnnl::memory::dims dims, begin, step;
};

namespace {

std::size_t at(std::int64_t axis, int rank) { return static_cast<std::size_t>(axis < 0 ? axis + rank : axis); }

/// No axis is blocked, or only channels are, and all their blocks are full.
bool is_dense_in_blocks(const Desc& desc) {
  const auto& blocking = desc.data.format_desc.blocking;
  return desc.data.format_kind == dnnl_blocked && !is_padded(desc) &&
         (blocking.inner_nblks == 0 || (blocking.inner_nblks == 1 && blocking.inner_idxs[0] == 1));
}

/// The same order of axes and blocks for other dimensions.
Desc like(const Desc& desc, const dnnl::memory::dims& dims) {
  const Type type = desc.data_type();
  if (desc == blocked_desc(desc.dims(), type)) return blocked_desc(dims, type);
  if (dims.size() >= 3 && dims.size() <= 5 && !is_plain(desc) && desc == channels_last_desc(desc.dims(), type))
    return channels_last_desc(dims, type);
  return plain_desc(dims, type);
}

/// Both put the same elements at the same places. Strides of axes with one element are ignored.
bool lie_alike(const Desc& a, const Desc& b) {
  const auto &left = a.data.format_desc.blocking, &right = b.data.format_desc.blocking;
  if (a.dims() != b.dims() || a.data_type() != b.data_type() || left.inner_nblks != right.inner_nblks || is_padded(a) ||
      is_padded(b))
    return false;
  if (left.inner_nblks > 0 && (left.inner_blks[0] != right.inner_blks[0] || left.inner_idxs[0] != right.inner_idxs[0]))
    return false;
  for (int axis = 0; axis < a.data.ndims; ++axis) {
    const bool is_blocked = left.inner_nblks > 0 && left.inner_idxs[0] == axis;
    const dnnl_dim_t count = is_blocked ? a.data.dims[axis] / left.inner_blks[0] : a.data.dims[axis];
    if (count > 1 && left.strides[axis] != right.strides[axis]) return false;
  }
  return true;
}

/// The place of `box` in a value with the layout `desc`. None if it cuts blocks.
struct Placed {
  Desc desc;
  std::size_t offset_bytes;
};
std::optional<Placed> place(const Box& box, const Desc& desc) {
  if (!is_dense_in_blocks(desc)) return std::nullopt;
  dnnl_memory_desc_t data = desc.data;
  auto& blocking = data.format_desc.blocking;
  dnnl_dim_t offset = 0;
  for (int axis = 0; axis < data.ndims; ++axis) {
    const auto i = static_cast<std::size_t>(axis);
    dnnl_dim_t begin = box.begin[i];
    if (blocking.inner_nblks > 0 && axis == blocking.inner_idxs[0]) {
      const dnnl_dim_t block = blocking.inner_blks[0];
      if (box.step[i] != 1 || begin % block != 0 || box.dims[i] % block != 0) return std::nullopt;
      begin /= block;
    }
    offset += begin * blocking.strides[axis];
    blocking.strides[axis] *= box.step[i];
    data.dims[axis] = data.padded_dims[axis] = box.dims[i];
  }
  return Placed{Desc(data), static_cast<std::size_t>(offset) * element_bytes(desc)};
}

}  // namespace

Compiler::Taken Compiler::permute(const Node& node, const std::vector<int>& axes) {
  const ValueId from = node.inputs[0], to = node.outputs[0];
  if (axes.size() > DNNL_MAX_NDIMS) return false;
  std::vector<int> places(axes.size());  // the new place of each axis of the source
  for (std::size_t i = 0; i < axes.size(); ++i) places[static_cast<std::size_t>(axes[i])] = static_cast<int>(i);
  SHOAL_ASSIGN_OR_RETURN(const Form src, first_form(from));
  const dnnl::memory::dims dims = dims_of(value(to).shape);
  const Form turned{src.buffer, src.desc.permute_axes(places)};
  // A picture whose channels move to the front is a channels-last picture.
  const bool is_picture = dims.size() >= 3 && dims.size() <= 5;
  const Type type = src.desc.data_type();
  for (const Desc& known : {plain_desc(dims, type), is_picture ? channels_last_desc(dims, type) : plain_desc(dims, type)}) {
    if (!lie_alike(turned.desc, known)) continue;
    add_form(to, {src.buffer, known});
    return true;
  }
  // A kernel moves rows as fast, without code for the shape.
  const bool moves_rows = axes.back() + 1 == static_cast<int>(axes.size());
  if (moves_rows && is_row_data(src.desc) && type_of(to) == Type::f32) return false;
  add_form(to, reorder(describe(node), turned, plain_desc(dims, type_of(to))));
  return true;
}

Compiler::Taken Compiler::transpose(const Node& node) {
  const Dims& given = node.attributes.get<TransposeAttributes>().axes;
  const int rank = value(node.inputs[0]).shape.rank();
  std::vector<int> axes;
  for (int i = 0; i < rank; ++i)
    axes.push_back(given.empty() ? rank - 1 - i : static_cast<int>(given[static_cast<std::size_t>(i)]));
  return permute(node, axes);
}

Compiler::Taken Compiler::swap_axes(const Node& node) {
  const auto& swap = node.attributes.get<SwapAxesAttributes>();
  const int rank = value(node.inputs[0]).shape.rank();
  std::vector<int> axes;
  for (int i = 0; i < rank; ++i) axes.push_back(i);
  std::swap(axes[at(swap.first, rank)], axes[at(swap.second, rank)]);
  return permute(node, axes);
}

// Is the part of rows that are not contiguous? A kernel copies those, without code for the shape.
Result<bool> Compiler::leaves_rows_to_kernel(const Node& node, const Box& box) {
  SHOAL_ASSIGN_OR_RETURN(const Form src, first_form(node.inputs[0]));
  if (!is_row_data(src.desc)) return false;
  const auto placed = place(box, src.desc);
  return placed && !lie_alike(placed->desc, like(src.desc, box.dims));
}

// A part of a value that is contiguous becomes a view; a reorder makes any other part.
Status Compiler::take_part(const Node& node, ValueId to, const Box& box) {
  SHOAL_ASSIGN_OR_RETURN(Form src, first_form(node.inputs[0]));
  const Desc wanted = plain_desc(value(to).shape, src.desc.data_type());
  const bool loses_axis = wanted.dims() != box.dims;
  auto placed = loses_axis && !is_plain(src.desc) ? std::nullopt : place(box, src.desc);
  if (!placed) {
    SHOAL_ASSIGN_OR_RETURN(src, plain_form(node.inputs[0], src.desc.data_type()));
    placed = place(box, src.desc);
  }
  Form part{plan_.add_part(src.buffer, placed->offset_bytes, placed->desc.get_size()), placed->desc};
  const Desc dense = like(src.desc, box.dims);
  if (lie_alike(part.desc, dense)) {
    plan_.buffer(part.buffer).bytes = dense.get_size();
    part.desc = dense;
  } else {
    part = reorder(describe(node), part, dense);
  }
  add_form(to, {part.buffer, loses_axis ? wanted : part.desc});
  return {};
}

Compiler::Taken Compiler::slice(const Node& node) {
  const Shape& shape = value(node.inputs[0]).shape;
  const auto rank = static_cast<std::size_t>(shape.rank());
  Box box{dims_of(value(node.outputs[0]).shape), dnnl::memory::dims(rank, 0), dnnl::memory::dims(rank, 1)};
  for (const SliceRange& range : node.attributes.get<SliceAttributes>().ranges) {
    const std::size_t axis = at(range.axis, shape.rank());
    const AxisSlice part = resolve(range, shape[static_cast<int>(axis)]);
    if (part.step < 0) return false;
    box.begin[axis] = part.begin;
    box.step[axis] = part.step;
  }
  SHOAL_ASSIGN_OR_RETURN(const bool is_for_kernel, leaves_rows_to_kernel(node, box));
  if (is_for_kernel) return false;
  SHOAL_RETURN_IF_ERROR(take_part(node, node.outputs[0], box));
  return true;
}

Compiler::Taken Compiler::slice_like(const Node& node) {
  const Shape& shape = value(node.outputs[0]).shape;
  const auto rank = static_cast<std::size_t>(shape.rank());
  const Box box{dims_of(shape), dnnl::memory::dims(rank, 0), dnnl::memory::dims(rank, 1)};
  SHOAL_ASSIGN_OR_RETURN(const bool is_for_kernel, leaves_rows_to_kernel(node, box));
  if (is_for_kernel) return false;
  SHOAL_RETURN_IF_ERROR(take_part(node, node.outputs[0], box));
  return true;
}

Compiler::Taken Compiler::crop(const Node& node) {
  const Shape& part = value(node.outputs[0]).shape;
  const auto [top, left] = first_pixel(node.attributes.get<CropAttributes>(), value(node.inputs[0]).shape, part);
  SHOAL_RETURN_IF_ERROR(take_part(node, node.outputs[0], {dims_of(part), {0, 0, top, left}, {1, 1, 1, 1}}));
  return true;
}

Compiler::Taken Compiler::split(const Node& node) {
  const Shape& shape = value(node.inputs[0]).shape;
  const auto rank = static_cast<std::size_t>(shape.rank());
  const std::size_t axis = at(node.attributes.get<SplitAttributes>().axis_of(shape.rank()), shape.rank());
  Box box{dims_of(shape), dnnl::memory::dims(rank, 0), dnnl::memory::dims(rank, 1)};
  const std::int64_t slice = shape.element_count() / shape[static_cast<int>(axis)];
  for (const ValueId to : node.outputs) {
    box.dims[axis] = value(to).shape.element_count() / slice;
    if (is_read(to)) SHOAL_RETURN_IF_ERROR(take_part(node, to, box));
    box.begin[axis] += box.dims[axis];
  }
  return true;
}

Compiler::Taken Compiler::pad(const Node& node) {
  const auto& attributes = node.attributes.get<PadAttributes>();
  if (attributes.mode != PadMode::kConstant) return false;
  const Shape &shape = value(node.inputs[0]).shape, &padded = value(node.outputs[0]).shape;
  if (shape.rank() < 3) return false;
  SHOAL_ASSIGN_OR_RETURN(Form src, first_form(node.inputs[0], Type::f32));
  const bool in_blocks = src.desc == blocked_desc(dims_of(shape)) && !is_padded(src.desc) && padded[1] == shape[1];
  if (!in_blocks) {
    SHOAL_ASSIGN_OR_RETURN(src, plain_form(node.inputs[0]));
  }
  PadExtents extents;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const auto widths = static_cast<std::size_t>(2 * axis);
    extents.sizes.push_back(shape[axis]);
    extents.before.push_back(attributes.widths[widths]);
    extents.behind.push_back(attributes.widths[widths + 1]);
  }
  if (in_blocks) {
    extents.sizes[1] /= channel_block();
    extents.sizes.push_back(channel_block());
    extents.before.push_back(0);
    extents.behind.push_back(0);
  }
  const Form dst = new_form(like(src.desc, dims_of(padded)));
  plan_.steps.push_back(make_loop_step(describe(node), "pad", {src.buffer, dst.buffer},
                                       pad_loop(extents, attributes.mode, DType::kFloat32, attributes.value)));
  add_form(node.outputs[0], dst);
  return true;
}

// The channels of a block, or of a pixel of a channels-last picture, are numbers that lie side by side.
Compiler::Taken Compiler::resize(const Node& node) {
  const auto& attributes = node.attributes.get<ResizeAttributes>();
  if (attributes.channels_last) return false;
  const Shape &shape = value(node.inputs[0]).shape, &resized = value(node.outputs[0]).shape;
  SHOAL_ASSIGN_OR_RETURN(const Form src, first_form(node.inputs[0], Type::f32));
  const dnnl::memory::dims dims = dims_of(shape);
  ResizePictures pictures(attributes, shape, resized);
  if (src.desc == blocked_desc(dims) && !is_padded(src.desc))
    pictures.inner = channel_block();
  else if (src.desc == channels_last_desc(dims) && !is_plain(src.desc))
    pictures.inner = shape[1];
  else
    return false;
  pictures.count /= pictures.inner;
  const Form dst = new_form(like(src.desc, dims_of(resized)));
  plan_.steps.push_back(
      make_loop_step(describe(node), "kernel", {src.buffer, dst.buffer}, resize_loop(pictures, DType::kFloat32)));
  add_form(node.outputs[0], dst);
  return true;
}

}  // namespace shoal::worker::cpu

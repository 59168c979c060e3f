// Fill, Range, Eye, Positions, ShapeOf, DiagonalIndices: tensors that are made of numbers and shapes.
#include "worker/ops/creation.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/elements.hpp"

namespace shoal::worker {
namespace {

/// The type of the result, and whether its shape can be that of an input.
Result<DType> type_of(const Node& node, SourceValues src, std::optional<DType> dtype, bool needs_input) {
  if (src.empty() && (needs_input || !dtype))
    return invalid_argument("{}: without an input there is no shape or no type", describe(node));
  return dtype ? *dtype : src[0].dtype;
}

Status infer_fill(const Node& node, SourceValues src, ResultValues dst) {
  const auto& fill = node.attributes.get<FillAttributes>();
  SHOAL_ASSIGN_OR_RETURN(const DType dtype, type_of(node, src, fill.dtype, fill.shape_of_input));
  if (fill.shape_of_input) {
    set_result(dst[0], dtype, src[0].shape);
    return {};
  }
  SHOAL_RETURN_IF_ERROR(check_numbers(node, "shape", fill.shape, kOpenSize));
  Sizes sizes(fill.shape.begin(), fill.shape.end());
  for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
    if (fill.shape[axis] != kOpenSize) continue;
    SHOAL_ASSIGN_OR_RETURN(sizes[axis], size_from_readers(node, dst[0], static_cast<int>(axis)));
  }
  SHOAL_ASSIGN_OR_RETURN(const SymbolicShape shape, make_shape(node, sizes));
  set_result(dst[0], dtype, shape);
  return {};
}

bool fill_leaves_sizes_open(const Node& node) {
  const auto& fill = node.attributes.get<FillAttributes>();
  return !fill.shape_of_input && std::ranges::find(fill.shape, kOpenSize) != fill.shape.end();
}

Status infer_range(const Node& node, SourceValues src, ResultValues dst) {
  const auto& range = node.attributes.get<RangeAttributes>();
  SHOAL_ASSIGN_OR_RETURN(const DType dtype, type_of(node, src, range.dtype, false));
  if (!TypeSet(Numbers()).holds(dtype)) return unimplemented("{}: makes numbers, not {}", describe(node), dtype_name(dtype));
  if (range.repeat < 1 || range.count < kOpenSize)
    return invalid_argument("{}: {} elements, each number {} times", describe(node), range.count, range.repeat);
  SymbolicShape shape{range.count};
  if (!src.empty() && range.axis) {
    SHOAL_ASSIGN_OR_RETURN(const int axis, normalize_axis(node, *range.axis, src[0].shape));
    shape[0] = src[0].shape[axis];
  } else if (!src.empty()) {
    shape = src[0].shape;
  } else if (range.count == kOpenSize) {
    SHOAL_ASSIGN_OR_RETURN(shape[0], size_from_readers(node, dst[0], 0));
  }
  set_result(dst[0], dtype, shape);
  return {};
}

bool range_leaves_its_size_open(const Node& node) {
  return node.inputs.empty() && node.attributes.get<RangeAttributes>().count == kOpenSize;
}

Status infer_eye(const Node& node, SourceValues, ResultValues dst) {
  const auto& eye = node.attributes.get<EyeAttributes>();
  SHOAL_RETURN_IF_ERROR(check_numbers(node, "extents", {eye.rows, eye.columns}, 0));
  set_result(dst[0], eye.dtype, SymbolicShape{eye.rows, eye.columns});
  return {};
}

/// The axes that are listed, or all.
Result<std::vector<int>> listed_axes(const Node& node, const SymbolicShape& shape) {
  std::vector<int> axes;
  for (const std::int64_t given : node.attributes.get<PositionsAttributes>().axes) {
    SHOAL_ASSIGN_OR_RETURN(axes.emplace_back(), normalize_axis(node, given, shape));
  }
  for (int axis = 0; node.attributes.get<PositionsAttributes>().axes.empty() && axis < shape.rank(); ++axis) axes.push_back(axis);
  return axes;
}

Status infer_positions(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<int> axes, listed_axes(node, src[0].shape));
  Sizes sizes(src[0].shape.begin(), src[0].shape.end());
  sizes.push_back(static_cast<std::int64_t>(axes.size()));
  SHOAL_ASSIGN_OR_RETURN(const SymbolicShape shape, make_shape(node, sizes));
  set_result(dst[0], DType::kInt64, shape);
  return {};
}

Status infer_shape_of(const Node& node, SourceValues src, ResultValues dst) {
  const bool counts = node.attributes.get<ShapeOfAttributes>().counts;
  set_result(dst[0], DType::kInt64, SymbolicShape{counts ? 1 : src[0].shape.rank()});
  return {};
}

Status infer_diagonal_indices(const Node& node, SourceValues src, ResultValues dst) {
  const SymbolicShape& shape = src[0].shape;
  SHOAL_RETURN_IF_ERROR(check_rank(node, src[0], 2));
  for (int axis = 1; axis < shape.rank(); ++axis) {
    if (known_unequal(shape[axis], shape[0]))
      return invalid_argument("{}: '{}' of shape {} has axes of different lengths", describe(node), src[0].name,
                              shape.to_string());
  }
  set_result(dst[0], DType::kInt64, SymbolicShape{shape.rank(), shape[0]});
  return {};
}

Status compute_diagonal_indices(const Node&, Sources, Results dst) {
  for (std::int64_t i = 0, end = dst[0].element_count(); i < end; ++i) elements<std::int64_t>(dst[0])[i] = i % dst[0].shape[1];
  return {};
}

Status compute_fill(const Node& node, Sources, Results dst) {
  const double value = node.attributes.get<FillAttributes>().value;
  return dispatch<AnyTypes>(node, dst[0].dtype, [&]<typename T>() {
    std::fill_n(elements<T>(dst[0]), dst[0].element_count(), convert<T>(value));
    return Status();
  });
}

/// Number `k` of the range. In its own type the product is rounded, too, and integers are made of an integer start and step.
template <typename T>
T number_of(const RangeAttributes& range, std::int64_t k) {
  using C = Compute<T>;
  if (range.in_float64) return convert<T>(range.start + static_cast<double>(k) * range.step);
  const C start = static_cast<C>(convert<T>(range.start)), step = static_cast<C>(convert<T>(range.step));
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::uint64_t>(start) + static_cast<std::uint64_t>(k) * static_cast<std::uint64_t>(step));
  } else {
    return to_element<T>(start + static_cast<C>(to_element<T>(static_cast<C>(k) * step)));
  }
}

Status compute_range(const Node& node, Sources, Results dst) {
  const auto& range = node.attributes.get<RangeAttributes>();
  return dispatch<Numbers>(node, dst[0].dtype, [&]<typename T>() {
    T* const to = elements<T>(dst[0]);
    for (std::int64_t i = 0, count = dst[0].element_count(); i < count; ++i) to[i] = number_of<T>(range, i / range.repeat);
    return Status();
  });
}

Status compute_eye(const Node& node, Sources, Results dst) {
  const std::int64_t offset = node.attributes.get<EyeAttributes>().offset;
  return dispatch<AnyTypes>(node, dst[0].dtype, [&]<typename T>() {
    T* to = elements<T>(dst[0]);
    for (std::int64_t row = 0; row < dst[0].shape[0]; ++row) {
      for (std::int64_t column = 0; column < dst[0].shape[1]; ++column) *to++ = convert<T>(column - row == offset ? 1.0 : 0.0);
    }
    return Status();
  });
}

Status compute_positions(const Node& node, Sources src, Results dst) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<int> axes, listed_axes(node, src[0].shape));
  const Shape& shape = src[0].shape;
  auto* to = elements<std::int64_t>(dst[0]);
  for (std::int64_t at = 0, count = shape.element_count(); at < count; ++at) {
    std::array<std::int64_t, kMaxRank> position{};
    std::int64_t rest = at;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      position[static_cast<std::size_t>(axis)] = rest % shape[axis];
      rest /= shape[axis];
    }
    for (const int axis : axes) *to++ = position[static_cast<std::size_t>(axis)];
  }
  return {};
}

Status compute_shape_of(const Node& node, Sources src, Results dst) {
  auto* const to = elements<std::int64_t>(dst[0]);
  if (node.attributes.get<ShapeOfAttributes>().counts)
    to[0] = src[0].shape.element_count();
  else
    std::ranges::copy(src[0].shape, to);
  return {};
}

}  // namespace

namespace ops {

const Operator kFill({
    .name = "Fill",
    .inputs = {0, 1},
    .attributes = &kSchema<FillAttributes>,
    .infer = infer_fill,
    .leaves_sizes_open = fill_leaves_sizes_open,
    .facts = with_shape_inputs(layer_facts(rows_of_all_inputs, work_of_elements, Accuracy::kLost), 0),
    .oracle = compute_fill,
    .formula = "[like]: the same number everywhere",
    .source = "MXNet 1.9.1 src/operator/tensor/init_op.h",
});

const Operator kRange({
    .name = "Range",
    .inputs = {0, 1},
    .attributes = &kSchema<RangeAttributes>,
    .infer = infer_range,
    .leaves_sizes_open = range_leaves_its_size_open,
    .facts = with_shape_inputs(layer_facts(rows_mixed, work_of_elements, Accuracy::kLost), 0),
    .oracle = compute_range,
    .formula = "[like]: start, start + step, start + 2 step, ... in row-major order",
    .source = "MXNet 1.9.1 src/operator/tensor/init_op.h",
});

const Operator kEye({
    .name = "Eye",
    .inputs = 0,
    .attributes = &kSchema<EyeAttributes>,
    .infer = infer_eye,
    .facts = layer_facts(rows_mixed, work_of_elements, Accuracy::kLost),
    .oracle = compute_eye,
    .formula = "1 on a diagonal of a matrix, 0 elsewhere",
    .source = "MXNet 1.9.1 src/operator/tensor/init_op.h",
});

const Operator kPositions({
    .name = "Positions",
    .attributes = &kSchema<PositionsAttributes>,
    .infer = infer_positions,
    .facts = with_shape_inputs(layer_facts(rows_mixed, work_of_elements, Accuracy::kLost), 0),
    .oracle = compute_positions,
    .formula = "data: for each element its indices along the listed axes, as int64, along a last axis that is added",
    .source = "MXNet 1.9.1 src/operator/contrib/index_array.cc",
});

const Operator kShapeOf({
    .name = "ShapeOf",
    .attributes = &kSchema<ShapeOfAttributes>,
    .infer = infer_shape_of,
    .facts = layer_facts(rows_mixed, work_of_elements, Accuracy::kLost),
    .oracle = compute_shape_of,
    .formula = "data: its sizes, as int64",
    .source = "MXNet 1.9.1 src/operator/tensor/elemwise_unary_op_basic.cc",
});

const Operator kDiagonalIndices({
    .name = "DiagonalIndices",
    .infer = infer_diagonal_indices,
    .facts = with_shape_inputs(layer_facts(rows_mixed, work_of_elements, Accuracy::kLost), 0),
    .oracle = compute_diagonal_indices,
    .formula = "data (n, n, ...): the indices of its diagonal, a row for each axis, as int64",
    .source = "MXNet 1.9.1 src/operator/numpy/np_matrix_op.cc",
});

}  // namespace ops

}  // namespace shoal::worker

// Take, Pick, GatherNd, ScatterNd, OneHot, BooleanMask, RavelIndex, UnravelIndex: places that other elements name.
#include "worker/ops/indexing.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/elements.hpp"
#include "worker/ops/indexing_functions.hpp"

namespace shoal::worker {
namespace {

Status infer_take(const Node& node, SourceValues src, ResultValues dst) {
  const auto& take = node.attributes.get<TakeAttributes>();
  const TypedValue &data = src[0], &indices = src[1];
  SHOAL_RETURN_IF_ERROR(check_number(node, indices));
  if (!take.table.empty()) {
    const Sizes table(take.table.begin(), take.table.end());
    SHOAL_RETURN_IF_ERROR(check_shape(node, "weight", data, SymbolicShape(table)));
  }
  SHOAL_ASSIGN_OR_RETURN(const int axis, normalize_axis(node, take.axis, data.shape));
  if (known_less(data.shape[axis], 1) && !(indices.shape.element_count() == 0)) {
    return invalid_argument("{}: axis {} of '{}' ({}) has no elements to take", describe(node), axis, data.name,
                            data.shape.to_string());
  }
  Sizes sizes(data.shape.begin(), data.shape.begin() + axis);
  sizes.insert(sizes.end(), indices.shape.begin(), indices.shape.end());
  sizes.insert(sizes.end(), data.shape.begin() + axis + 1, data.shape.end());
  SHOAL_ASSIGN_OR_RETURN(const SymbolicShape out, make_shape(node, sizes));
  set_result(dst[0], data.dtype, out);
  return {};
}

void take_parameters(const Node& node, std::span<TypedValue> src) {
  const auto& take = node.attributes.get<TakeAttributes>();
  const Sizes table(take.table.begin(), take.table.end());
  if (!table.empty()) supply(src[0], take.table_type.value_or(DType::kFloat32), SymbolicShape(table));
}

/// The data's shape without `axis`, or with 1 there.
SymbolicShape without_axis(const SymbolicShape& shape, int axis, bool keepdims) {
  Sizes sizes(shape.begin(), shape.end());
  sizes[static_cast<std::size_t>(axis)] = 1;
  if (!keepdims && sizes.size() > 1) sizes.erase(sizes.begin() + axis);
  return SymbolicShape(sizes);
}

Status infer_pick(const Node& node, SourceValues src, ResultValues dst) {
  const auto& pick = node.attributes.get<PickAttributes>();
  const TypedValue &data = src[0], &indices = src[1];
  SHOAL_RETURN_IF_ERROR(check_number(node, indices));
  SHOAL_ASSIGN_OR_RETURN(const int axis, normalize_axis(node, pick.axis, data.shape));
  const bool keeps_axis = indices.shape.rank() == data.shape.rank();
  SHOAL_RETURN_IF_ERROR(check_shape(node, "index", indices, without_axis(data.shape, axis, keeps_axis)));
  const SymbolicShape out = without_axis(data.shape, axis, pick.keepdims);
  if (known_less(data.shape[axis], 1) && !(out.element_count() == 0)) {
    return invalid_argument("{}: axis {} of '{}' ({}) has no elements to pick", describe(node), axis, data.name,
                            data.shape.to_string());
  }
  set_result(dst[0], data.dtype, out);
  return {};
}

/// The number of axes that the rows of `indices` name, and the shape of the slices: that of the indices without their first axis,
/// then the other axes of the data.
struct NamedSlices {
  int axes = 0;
  SymbolicShape shape;
};
Result<NamedSlices> slices_of(const Node& node, const TypedValue& data, const TypedValue& indices) {
  SHOAL_RETURN_IF_ERROR(check_number(node, indices));
  SHOAL_RETURN_IF_ERROR(check_rank(node, indices, 1));
  const Dim axes = indices.shape[0];
  if (!axes.is_number() || axes.number() < 1 || axes.number() > data.shape.rank()) {
    return invalid_argument("{}: the rows of '{}' ({}) do not name axes of '{}' ({})", describe(node), indices.name,
                            indices.shape.to_string(), data.name, data.shape.to_string());
  }
  NamedSlices slices{.axes = static_cast<int>(axes.number())};
  Sizes sizes(indices.shape.begin() + 1, indices.shape.end());
  sizes.insert(sizes.end(), data.shape.begin() + slices.axes, data.shape.end());
  SHOAL_ASSIGN_OR_RETURN(slices.shape, make_shape(node, sizes));
  return slices;
}

Status infer_gather_nd(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_ASSIGN_OR_RETURN(const NamedSlices slices, slices_of(node, src[0], src[1]));
  for (int axis = 0; axis < slices.axes; ++axis) {
    if (!known_less(src[0].shape[axis], 1) || slices.shape.element_count() == 0) continue;
    return invalid_argument("{}: axis {} of '{}' ({}) has no elements to gather", describe(node), axis, src[0].name,
                            src[0].shape.to_string());
  }
  set_result(dst[0], src[0].dtype, slices.shape);
  return {};
}

Status infer_scatter_nd(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_ASSIGN_OR_RETURN(const NamedSlices slices, slices_of(node, src[0], src[1]));
  const std::array<TypedValue, 2> both{src[0], src[2]};
  SHOAL_RETURN_IF_ERROR(check_same_dtype(node, both));
  SHOAL_RETURN_IF_ERROR(check_shape(node, "data", src[2], slices.shape));
  set_result(dst[0], src[0].dtype, src[0].shape);
  return {};
}

Status infer_one_hot(const Node& node, SourceValues src, ResultValues dst) {
  const auto& one_hot = node.attributes.get<OneHotAttributes>();
  SHOAL_RETURN_IF_ERROR(check_number(node, src[0]));
  SHOAL_RETURN_IF_ERROR(check_numbers(node, "depth", {one_hot.depth}, 1));
  Sizes sizes(src[0].shape.begin(), src[0].shape.end());
  sizes.push_back(one_hot.depth);
  SHOAL_ASSIGN_OR_RETURN(const SymbolicShape out, make_shape(node, sizes));
  set_result(dst[0], one_hot.dtype, out);
  return {};
}

Status infer_boolean_mask(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_RETURN_IF_ERROR(check_rank(node, src[0], 1));
  SymbolicShape out = src[0].shape;
  SHOAL_RETURN_IF_ERROR(check_shape(node, "index", src[1], SymbolicShape{out[0]}));
  out[0] = size_from_data(dst[0], 0, out[0]);
  set_result(dst[0], src[0].dtype, out);
  return {};
}

Status infer_ravel(const Node& node, SourceValues src, ResultValues dst) {
  const Dims& shape = node.attributes.get<RavelAttributes>().shape;
  const TypedValue& indices = src[0];
  SHOAL_RETURN_IF_ERROR(check_number(node, indices));
  SHOAL_RETURN_IF_ERROR(check_rank(node, indices, 1));
  if (shape.empty() || known_unequal(indices.shape[0], static_cast<std::int64_t>(shape.size()))) {
    return invalid_argument("{}: '{}' ({}) does not have one row for each axis of shape {}", describe(node), indices.name,
                            indices.shape.to_string(), to_text(shape));
  }
  set_result(dst[0], indices.dtype, SymbolicShape(indices.shape.dims().subspan(1)));
  return {};
}

Status infer_unravel(const Node& node, SourceValues src, ResultValues dst) {
  const Dims& shape = node.attributes.get<RavelAttributes>().shape;
  SHOAL_RETURN_IF_ERROR(check_number(node, src[0]));
  if (src[0].shape.rank() != 1) {  // MXNet 1.9.1 writes beyond its output
    return invalid_argument("{}: '{}' has shape {}; numbers along one axis are needed. Reshape them to (-1,)", describe(node),
                            src[0].name, src[0].shape.to_string());
  }
  if (shape.empty() || std::any_of(shape.begin() + 1, shape.end(), [](std::int64_t size) { return size < 1; }))
    return invalid_argument("{}: shape {} has no elements", describe(node), to_text(shape));
  Sizes sizes{static_cast<std::int64_t>(shape.size())};
  sizes.insert(sizes.end(), src[0].shape.begin(), src[0].shape.end());
  SHOAL_ASSIGN_OR_RETURN(const SymbolicShape out, make_shape(node, sizes));
  set_result(dst[0], src[0].dtype, out);
  return {};
}

template <typename T, Outside kOutside>
std::int64_t place_of(const T* at, std::int64_t size) {
  const T element = load_element_once(at);
  std::int64_t index = 0;
  if constexpr (std::is_same_v<T, std::uint64_t>)
    index = static_cast<std::int64_t>(std::min<std::uint64_t>(element, std::numeric_limits<std::int64_t>::max()));
  else if constexpr (std::is_integral_v<T>)
    index = element;
  else if constexpr (kOutside == Outside::kFromEnd)
    index = cut<std::int64_t>(static_cast<double>(static_cast<Compute<T>>(element) + static_cast<Compute<T>>(size)));
  else
    index = cut<std::int64_t>(static_cast<double>(element));
  if constexpr (kOutside == Outside::kClip) return std::clamp<std::int64_t>(index, 0, size - 1);
  if constexpr (kOutside == Outside::kNowhere) return index >= 0 && index < size ? index : -1;
  index %= size;
  return index < 0 ? index + size : index;
}

template <typename T, Outside kOutside>
void read_places(const std::byte* indices, std::int64_t first, std::int64_t count, std::int64_t size, std::int64_t* to) {
  const T* const from = reinterpret_cast<const T*>(indices) + first;
  for (std::int64_t i = 0; i < count; ++i) to[i] = place_of<T, kOutside>(from + i, size);
}

/// A Take or Pick in mode `raise` met an index outside.
Status no_such_index(const Node& node, std::int64_t number, std::int64_t size) {
  return invalid_argument("{}: index number {} lies outside the axis, which has {} elements", describe(node), number, size);
}

Status compute_take(const Node& node, Sources src, Results dst) {
  const auto& take = node.attributes.get<TakeAttributes>();
  const AxisView view(src[0].shape, positive_axis(take.axis, src[0].shape));
  const ReadPlaces read = places_reader(src[1].dtype, outside_of(take.mode));
  const std::size_t bytes = static_cast<std::size_t>(view.inner) * dtype_size_bytes(dst[0].dtype);
  std::byte* to = dst[0].data;
  for (std::int64_t outer = 0; outer < view.outer; ++outer) {
    for (std::int64_t i = 0, count = src[1].element_count(); i < count; ++i, to += bytes) {
      std::int64_t place = 0;
      read(src[1].data, i, 1, view.size, &place);
      if (place < 0) return no_such_index(node, i, view.size);
      std::memcpy(to, src[0].data + static_cast<std::size_t>(outer * view.size + place) * bytes, bytes);
    }
  }
  return {};
}

Status compute_pick(const Node& node, Sources src, Results dst) {
  const auto& pick = node.attributes.get<PickAttributes>();
  const AxisView view(src[0].shape, positive_axis(pick.axis, src[0].shape));
  const ReadPlaces read = places_reader(src[1].dtype, outside_of(pick.mode));
  const std::size_t bytes = dtype_size_bytes(dst[0].dtype);
  std::byte* to = dst[0].data;
  for (std::int64_t i = 0, count = dst[0].element_count(); i < count; ++i, to += bytes) {
    std::int64_t place = 0;
    read(src[1].data, i, 1, view.size, &place);
    if (place < 0) return no_such_index(node, i, view.size);
    const std::int64_t from = (i / view.inner * view.size + place) * view.inner + i % view.inner;
    std::memcpy(to, src[0].data + static_cast<std::size_t>(from) * bytes, bytes);
  }
  return {};
}

Status compute_gather_nd(const Node&, Sources src, Results dst) {
  const NamedAxes named(src[0].shape, src[1].shape);
  const ReadPlaces read = places_reader(src[1].dtype, Outside::kFromEnd);
  const std::size_t element = dtype_size_bytes(dst[0].dtype), bytes = static_cast<std::size_t>(named.length) * element;
  for (std::int64_t i = 0; i < named.slices; ++i) {
    std::int64_t from = 0;
    named.find(read, src[1].data, i, 1, &from);
    std::memcpy(dst[0].data + static_cast<std::size_t>(i) * bytes, src[0].data + static_cast<std::size_t>(from) * element, bytes);
  }
  return {};
}

/// Of slices with the same indices the last one stays. One whose index lies outside goes nowhere.
Status compute_scatter_nd(const Node&, Sources src, Results dst) {
  const NamedAxes named(src[0].shape, src[1].shape);
  const ReadPlaces read = places_reader(src[1].dtype, Outside::kNowhere);
  const std::size_t element = dtype_size_bytes(dst[0].dtype), bytes = static_cast<std::size_t>(named.length) * element;
  std::memcpy(dst[0].data, src[0].data, dst[0].size_bytes());
  for (std::int64_t i = 0; i < named.slices; ++i) {
    std::int64_t to = 0;
    named.find(read, src[1].data, i, 1, &to);
    if (to < 0) continue;
    std::memcpy(dst[0].data + static_cast<std::size_t>(to) * element, src[2].data + static_cast<std::size_t>(i) * bytes, bytes);
  }
  return {};
}

Status compute_one_hot(const Node& node, Sources src, Results dst) {
  const auto& one_hot = node.attributes.get<OneHotAttributes>();
  const ReadPlaces read = places_reader(src[0].dtype, Outside::kNowhere);
  return dispatch<AnyTypes>(node, dst[0].dtype, [&]<typename T>() {
    const T on = convert<T>(one_hot.on), off = convert<T>(one_hot.off);
    T* row = elements<T>(dst[0]);
    for (std::int64_t i = 0, count = src[0].element_count(); i < count; ++i, row += one_hot.depth) {
      std::int64_t place = 0;
      read(src[0].data, i, 1, one_hot.depth, &place);
      std::fill_n(row, one_hot.depth, off);
      if (place >= 0) row[place] = on;
    }
    return Status();
  });
}

Status compute_boolean_mask(const Node& node, Sources src, Results dst) {
  const std::int64_t rows = src[0].shape[0];
  const std::size_t bytes = rows == 0 ? 0 : src[0].size_bytes() / static_cast<std::size_t>(rows);
  const DType type = src[1].dtype == DType::kBool ? DType::kUInt8 : src[1].dtype;  // a bool of a client may be any byte
  std::int64_t found = 0;
  SHOAL_RETURN_IF_ERROR(dispatch<Numbers>(node, type, [&]<typename T>() {
    for (std::int64_t row = 0; row < rows; ++row) {
      if (static_cast<Compute<T>>(load_element_once(elements<T>(src[1]) + row)) == 0) continue;
      std::memcpy(dst[0].data + static_cast<std::size_t>(found++) * bytes, src[0].data + static_cast<std::size_t>(row) * bytes,
                  bytes);
    }
    return Status();
  }));
  dst[0].shape[0] = found;
  return {};
}

/// MXNet adds in the type of the indices, and cuts off fractions after each step.
Status compute_ravel(const Node& node, Sources src, Results dst) {
  const Dims& shape = node.attributes.get<RavelAttributes>().shape;
  const std::int64_t count = dst[0].element_count();
  return dispatch<Numbers>(node, dst[0].dtype, [&]<typename T>() {
    using C = Compute<T>;
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t flat = 0;
      for (std::size_t axis = 0; axis < shape.size(); ++axis) {
        const auto index = static_cast<C>(elements<T>(src[0])[static_cast<std::int64_t>(axis) * count + i]);
        const auto scaled = static_cast<std::int64_t>(static_cast<std::uint64_t>(flat) * static_cast<std::uint64_t>(shape[axis]));
        if constexpr (std::is_integral_v<T>)
          flat = static_cast<std::int64_t>(static_cast<std::uint64_t>(scaled) + static_cast<std::uint64_t>(index));
        else
          flat = cut<std::int64_t>(static_cast<double>(static_cast<C>(scaled) + index));
      }
      elements<T>(dst[0])[i] = convert<T>(flat);
    }
    return Status();
  });
}

Status compute_unravel(const Node& node, Sources src, Results dst) {
  const Dims& shape = node.attributes.get<RavelAttributes>().shape;
  const std::int64_t count = src[0].element_count();
  return dispatch<Numbers>(node, dst[0].dtype, [&]<typename T>() {
    for (std::int64_t i = 0; i < count; ++i) {
      auto rest = convert<std::int64_t>(elements<T>(src[0])[i]);
      for (std::size_t axis = shape.size(); axis-- > 0;) {
        const std::int64_t whole = axis == 0 ? 0 : rest / shape[axis];
        elements<T>(dst[0])[static_cast<std::int64_t>(axis) * count + i] =
            convert<T>(axis == 0 ? rest : rest - whole * shape[axis]);
        rest = whole;
      }
    }
    return Status();
  });
}

bool take_rows(const BatchedNode& batched) {
  const auto& take = batched.node.attributes.get<TakeAttributes>();
  if (take.mode == IndexMode::kRaise || batched.has_rows_in(0) == batched.has_rows_in(1)) return false;
  return batched.has_rows_in(0) != batched.is_of_rows(take.axis);
}

bool pick_rows(const BatchedNode& batched) {
  const auto& pick = batched.node.attributes.get<PickAttributes>();
  return pick.mode != IndexMode::kRaise && !batched.is_of_rows(pick.axis);
}

}  // namespace

ReadPlaces places_reader(DType dtype, Outside outside) {
  ReadPlaces read = nullptr;
  dispatch(Numbers(), dtype, [&]<typename T>() {
    switch (outside) {
      case Outside::kClip:
        read = read_places<T, Outside::kClip>;
        break;
      case Outside::kWrap:
        read = read_places<T, Outside::kWrap>;
        break;
      case Outside::kFromEnd:
        read = read_places<T, Outside::kFromEnd>;
        break;
      case Outside::kNowhere:
        read = read_places<T, Outside::kNowhere>;
        break;
    }
  });
  return read;
}

NamedAxes::NamedAxes(const Shape& data, const Shape& indices) : count(indices[0]), slices(1), length(1) {
  for (int axis = 1; axis < indices.rank(); ++axis) slices *= indices[axis];
  for (int axis = data.rank() - 1; axis >= 0; --axis) {
    if (axis >= count) {
      length *= data[axis];
      continue;
    }
    const auto k = static_cast<std::size_t>(axis);
    sizes[k] = data[axis];
    strides[k] = std::cmp_equal(k + 1, count) ? length : strides[k + 1] * sizes[k + 1];
  }
}

void NamedAxes::find(ReadPlaces read, const std::byte* indices, std::int64_t first, std::int64_t many, std::int64_t* to) const {
  std::int64_t places[kMost];
  std::fill_n(to, many, 0);
  for (std::int64_t axis = 0; axis < count; ++axis) {
    const auto k = static_cast<std::size_t>(axis);
    read(indices, axis * slices + first, many, sizes[k], places);
    for (std::int64_t i = 0; i < many; ++i) to[i] = to[i] < 0 || places[i] < 0 ? -1 : to[i] + places[i] * strides[k];
  }
}

namespace ops {

const Operator kTake({
    .name = "Take",
    .inputs = 2,
    .attributes = &kSchema<TakeAttributes>,
    .infer = infer_take,
    .infer_parameters = take_parameters,
    .facts = indexed_facts(take_rows, 1, work_of_results, Accuracy::kLost),
    .oracle = compute_take,
    .formula =
        "data, indices: the slices of an axis that the indices name; the axes of the indices stand in its place. Fractions are "
        "cut off",
    .source = "MXNet 1.9.1 src/operator/tensor/indexing_op.h",
});

const Operator kPick({
    .name = "Pick",
    .inputs = 2,
    .attributes = &kSchema<PickAttributes>,
    .infer = infer_pick,
    .facts = indexed_facts(pick_rows, 1, work_of_results, Accuracy::kLost),
    .oracle = compute_pick,
    .formula =
        "data, index: of each row along the axis the element that the index names. The index has the data's shape without the "
        "axis, or with 1 there",
    .source = "MXNet 1.9.1 src/operator/tensor/broadcast_reduce_op.h",
});

const Operator kGatherNd({
    .name = "GatherNd",
    .inputs = 2,
    .infer = infer_gather_nd,
    .facts = indexed_facts(rows_mixed, 1, work_of_results, Accuracy::kLost),
    .oracle = compute_gather_nd,
    .formula = "data, indices (m, ...): slices data[indices[0], ..., indices[m - 1]]. Indices are counted on around their axes",
    .source = "MXNet 1.9.1 src/operator/tensor/indexing_op.h",
});

const Operator kScatterNd({
    .name = "ScatterNd",
    .inputs = 3,
    .infer = infer_scatter_nd,
    .facts = indexed_facts(rows_mixed, 1, work_of_elements, Accuracy::kLost),
    .oracle = compute_scatter_nd,
    .formula = "base, indices (m, ...), data: base with slices of data at [indices[0], ..., indices[m - 1]]. Of several at one "
               "place the "
               "last stays; one outside is left out",
    .source = "MXNet 1.9.1 src/operator/tensor/indexing_op.h, contrib/index_copy.cc",
});

const Operator kOneHot({
    .name = "OneHot",
    .attributes = &kSchema<OneHotAttributes>,
    .infer = infer_one_hot,
    .facts = indexed_facts(rows_of_first_input, 0, work_of_elements, Accuracy::kLost),
    .oracle = compute_one_hot,
    .formula = "indices: a row of `off` with `on` at the index; without it if the index lies outside",
    .source = "MXNet 1.9.1 src/operator/tensor/indexing_op.h",
});

const Operator kBooleanMask({
    .name = "BooleanMask",
    .inputs = 2,
    .infer = infer_boolean_mask,
    .facts = indexed_facts(rows_mixed, 1, work_of_pairs, Accuracy::kLost),
    .oracle = compute_boolean_mask,
    .formula = "data, index: the rows of axis 0 whose element of the index is not 0. How many there are depends on data",
    .source = "MXNet 1.9.1 src/operator/contrib/boolean_mask.cc",
});

const Operator kRavelIndex({
    .name = "RavelIndex",
    .attributes = &kSchema<RavelAttributes>,
    .infer = infer_ravel,
    .facts = layer_facts(rows_mixed, work_of_elements, Accuracy::kLost),
    .oracle = compute_ravel,
    .formula = "indices (m, ...), one row for each axis of a tensor: the number of the element in row-major order",
    .source = "MXNet 1.9.1 src/operator/tensor/ravel.h",
});

const Operator kUnravelIndex({
    .name = "UnravelIndex",
    .attributes = &kSchema<RavelAttributes>,
    .infer = infer_unravel,
    .facts = layer_facts(rows_mixed, work_of_elements, Accuracy::kLost),
    .oracle = compute_unravel,
    .formula = "numbers of elements in row-major order: their indices, one row for each axis of a tensor",
    .source = "MXNet 1.9.1 src/operator/tensor/ravel.h",
});

}  // namespace ops

}  // namespace shoal::worker

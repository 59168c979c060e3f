// Operators that change shapes, repeat elements, or join and cut tensors along new axes.
#include <algorithm>

#include "shm/base/format.hpp"
#include "worker/import/mxnet/mxnet_lowering.hpp"
#include "worker/ops/diagonal.hpp"
#include "worker/ops/movement.hpp"
#include "worker/ops/repetition.hpp"
#include "worker/ops/reshape.hpp"

namespace shoal::worker {
namespace {

using Values = std::vector<ValueId>;

Values expand_dims(MxnetLowering& lowering) {
  return lowering.add(ops::kExpandDims, ExpandDimsAttributes{{lowering.attributes.integer("axis")}});
}

auto squeeze(bool gives_scalars) {
  return [=](MxnetLowering& lowering) -> Values {
    const Dims axes = lowering.attributes.tuple("axis", Dims{});
    if (axes.empty() && lowering.attributes.has("axis")) return {lowering.inputs[0]};  // "()" lists no axis
    return lowering.add(ops::kSqueeze, SqueezeAttributes{axes, gives_scalars});
  };
}

Values reshape_like(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  ReshapeLikeAttributes reshape;
  reshape.begin = attributes.optional_integer("lhs_begin", std::nullopt);
  reshape.end = attributes.optional_integer("lhs_end", std::nullopt);
  reshape.like_begin = attributes.optional_integer("rhs_begin", std::nullopt);
  reshape.like_end = attributes.optional_integer("rhs_end", std::nullopt);
  return lowering.add(ops::kReshapeLike, reshape, {lowering.inputs[0], shape_source(lowering.graph, lowering.inputs[1])});
}

/// Joins the inputs along an axis that each of them is given.
Values stack(MxnetLowering& lowering) {
  lowering.check_input_count("num_args");
  const std::int64_t axis = lowering.attributes.integer("axis", 0);
  Values parts;
  for (const ValueId input : lowering.inputs) {
    const Values part = lowering.add(ops::kExpandDims, ExpandDimsAttributes{{axis}}, {input});
    if (part.empty()) return {};
    parts.push_back(part[0]);
  }
  return lowering.add(ops::kConcat, ConcatAttributes{axis}, parts);
}

/// Pieces of the parameters of an RNN, one behind the other.
Values rnn_param_concat(MxnetLowering& lowering) {
  lowering.check_input_count("num_args");
  return lowering.add(ops::kConcat, ConcatAttributes{lowering.attributes.integer("dim", 1)});
}

Values split_along(MxnetLowering& lowering, std::int64_t axis, bool is_horizontal) {
  AttributeReader& attributes = lowering.attributes;
  constexpr std::int64_t kMostParts = 65536;
  SplitAttributes split{.axis = axis, .is_horizontal = is_horizontal};
  split.starts = attributes.tuple("indices", Dims{}, 0);
  split.squeeze = attributes.flag("squeeze_axis", false);
  const std::int64_t sections = attributes.integer("sections", 0, 0, kMostParts);
  if (sections > 0) {
    split.starts.clear();
    split.parts = sections;
    split.uneven = true;
  } else {
    split.parts = static_cast<std::int64_t>(split.starts.size());
    if (split.starts.empty() || split.parts > kMostParts || split.starts[0] != 0)
      attributes.fail("indices", "does not say where parts begin, from 0 on");
  }
  return lowering.add(ops::kSplit, split, lowering.inputs, static_cast<std::size_t>(std::min(split.parts, kMostParts)));
}

Values split_v2(MxnetLowering& lowering) { return split_along(lowering, lowering.attributes.integer("axis", 1), false); }

/// MXNet does not read the axis of these.
auto split_as_named(std::int64_t axis, bool is_horizontal) {
  return [=](MxnetLowering& lowering) {
    lowering.attributes.ignore({"axis"});
    return split_along(lowering, axis, is_horizontal);
  };
}

Values slice_like(MxnetLowering& lowering) {
  return lowering.add(ops::kSliceLike, SliceLikeAttributes{lowering.attributes.tuple("axes", Dims{})},
                      {lowering.inputs[0], shape_source(lowering.graph, lowering.inputs[1])});
}

/// A slice from the end to the front of each axis.
auto reverse(std::int64_t least_axis) {
  return [=](MxnetLowering& lowering) {
    SliceAttributes slice;
    for (const std::int64_t axis : lowering.attributes.tuple("axis", {}, least_axis)) slice.ranges.push_back({axis, {}, {}, -1});
    return lowering.add(ops::kSlice, slice);
  };
}

Values broadcast_axis(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  BroadcastAttributes broadcast;
  broadcast.axes = attributes.tuple("axis", Dims{}, 0);
  broadcast.sizes = attributes.tuple("size", Dims{}, 1);
  if (broadcast.axes.size() != broadcast.sizes.size())
    attributes.fail("size", format("has {} entries where axis has {}", broadcast.sizes.size(), broadcast.axes.size()));
  if (broadcast.axes.empty()) return {lowering.inputs[0]};
  return lowering.add(ops::kBroadcast, broadcast);
}

/// A size of 0 keeps that of the data. In NumPy's interface it is a size.
auto broadcast_to(std::int64_t least_size) {
  return [=](MxnetLowering& lowering) {
    return lowering.add(ops::kBroadcast, BroadcastAttributes{.sizes = lowering.attributes.tuple("shape", Dims{}, least_size)});
  };
}

Values broadcast_like(MxnetLowering& lowering) {
  BroadcastAttributes broadcast;
  broadcast.axes = lowering.attributes.tuple("lhs_axes", Dims{});
  broadcast.like_axes = lowering.attributes.tuple("rhs_axes", Dims{});
  return lowering.add(ops::kBroadcast, broadcast, {lowering.inputs[0], shape_source(lowering.graph, lowering.inputs[1])});
}

Values tile(MxnetLowering& lowering) {
  return lowering.add(ops::kTile, TileAttributes{lowering.attributes.tuple("reps", {}, 1)});
}

Values repeat(MxnetLowering& lowering) {
  RepeatAttributes repeat;
  repeat.count = lowering.attributes.integer("repeats", {}, 1);
  repeat.axis = lowering.attributes.optional_integer("axis", std::nullopt);
  return lowering.add(ops::kRepeat, repeat);
}

auto diagonal(const char* offset) {
  return [=](MxnetLowering& lowering) {
    DiagonalAttributes diagonal;
    diagonal.offset = lowering.attributes.integer(offset, 0);
    diagonal.rows = lowering.attributes.integer("axis1", 0);
    diagonal.columns = lowering.attributes.integer("axis2", 1);
    return lowering.add(ops::kDiagonal, diagonal);
  };
}

}  // namespace

std::vector<MxnetOperator> shape_operators() {
  std::vector<MxnetOperator> all;
  add_aliases(all, {"", 1, 1, -1, expand_dims}, {"expand_dims", "_npi_expand_dims"});
  all.push_back({"squeeze", 1, 1, -1, squeeze(false)});
  add_aliases(all, {"", 1, 1, -1, squeeze(true)}, {"_np_squeeze", "_npi_squeeze"});
  add_aliases(all, {"", 2, 2, -1, reshape_like}, {"reshape_like", "_npx_reshape_like"});
  add_aliases(all, {"", 1, -1, -1, stack}, {"stack", "_npi_stack"});
  add_aliases(all, {"", 1, -1, -1, rnn_param_concat}, {"_rnn_param_concat", "_npi_rnn_param_concat"});
  add_aliases(all, {"", 1, 1, -1, split_v2, -1, {"output0"}}, {"_split_v2", "_npi_split", "_npi_array_split"});
  all.push_back({"_npi_hsplit", 1, 1, -1, split_as_named(1, true), -1, {"output0"}});
  all.push_back({"_npi_dsplit", 1, 1, -1, split_as_named(2, false), -1, {"output0"}});
  all.push_back({"slice_like", 2, 2, -1, slice_like});
  add_aliases(all, {"", 1, 1, -1, reverse(0)}, {"reverse", "flip"});
  all.push_back({"_npi_flip", 1, 1, -1, reverse(AttributeReader::kInt32Min)});
  add_aliases(all, {"", 1, 1, -1, broadcast_axis}, {"broadcast_axis", "broadcast_axes"});
  all.push_back({"broadcast_to", 1, 1, -1, broadcast_to(0)});
  add_aliases(all, {"", 1, 1, -1, broadcast_to(1)}, {"_np_broadcast_to", "_npi_broadcast_to"});
  add_aliases(all, {"", 2, 2, -1, broadcast_like}, {"broadcast_like", "_npx_broadcast_like"});
  add_aliases(all, {"", 1, 1, -1, tile}, {"tile", "_npi_tile"});
  add_aliases(all, {"", 1, 1, -1, repeat}, {"repeat", "_np_repeat"});
  add_aliases(all, {"", 1, 1, -1, diagonal("k")}, {"diag", "_np_diag", "_npi_diag"});
  add_aliases(all, {"", 1, 1, -1, diagonal("offset")}, {"_np_diagonal", "_npi_diagonal"});
  return all;
}

}  // namespace shoal::worker

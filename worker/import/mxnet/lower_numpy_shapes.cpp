// Names of MXNet's NumPy interface that arrange elements or make tensors.
#include <algorithm>
#include <array>
#include <cmath>

#include "shm/base/format.hpp"
#include "worker/import/mxnet/lower_chain.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/cast.hpp"
#include "worker/ops/creation.hpp"
#include "worker/ops/diagonal.hpp"
#include "worker/ops/movement.hpp"
#include "worker/ops/rearrangement.hpp"
#include "worker/ops/reduce.hpp"
#include "worker/ops/repetition.hpp"
#include "worker/ops/reshape.hpp"

namespace shoal::worker {
namespace {

using Values = std::vector<ValueId>;

const ReshapeAttributes kFlat{.shape = {-1}};

/// _np_reshape knows -1 only; _npx_reshape has codes of its own.
auto numpy_reshape(std::int64_t least) {
  return [=](MxnetLowering& lowering) {
    ReshapeAttributes reshape{.as_numpy = true};
    reshape.shape = lowering.attributes.tuple("newshape", {}, least);
    reshape.reverse = lowering.attributes.flag("reverse", false);
    if (reshape.reverse && std::ranges::find(reshape.shape, -6) != reshape.shape.end())
      lowering.attributes.fail("newshape", "splits an axis, which MXNet does not do with reverse=True");
    lowering.attributes.ignore({"order"});  // MXNet ignores it, too
    return lowering.add(ops::kReshape, reshape);
  };
}

Values numpy_transpose(MxnetLowering& lowering) {
  Dims axes = lowering.attributes.tuple("axes", Dims{});
  for (std::int64_t& axis : axes) axis += axis < 0 ? static_cast<std::int64_t>(axes.size()) : 0;
  return lowering.add(ops::kTranspose, TransposeAttributes{axes});
}

Values move_axis(MxnetLowering& lowering) {
  const Dims source = lowering.attributes.tuple("source"), destination = lowering.attributes.tuple("destination");
  return lowering.add(ops::kMoveAxes, MoveAxesAttributes{source, destination});
}

Values roll(MxnetLowering& lowering) {
  RollAttributes roll;
  roll.shifts = lowering.attributes.tuple("shift");
  roll.axes = lowering.attributes.tuple("axis", Dims{});
  return lowering.add(ops::kRoll, roll);
}

/// By k right angles, from the first of the two axes to the second.
Values rot90(MxnetLowering& lowering) {
  const std::int64_t turns = ((lowering.attributes.integer("k", 1) % 4) + 4) % 4;
  Dims axes = lowering.attributes.tuple("axes");
  if (axes.size() != 2) lowering.attributes.fail("axes", "has not 2 entries");
  axes.resize(2);
  const auto flip = [](std::int64_t axis) { return SliceRange{.axis = axis, .step = -1}; };
  const SwapAxesAttributes swap{axes[0], axes[1]};
  Chain chain(lowering, lowering.inputs[0]);
  if (turns == 1) chain.add(ops::kSlice, SliceAttributes{{flip(axes[1])}}).add(ops::kSwapAxes, swap);
  if (turns == 2) chain.add(ops::kSlice, SliceAttributes{{flip(axes[0]), flip(axes[1])}});
  if (turns == 3) chain.add(ops::kSwapAxes, swap).add(ops::kSlice, SliceAttributes{{flip(axes[1])}});
  return chain.end();
}

/// Each input with so many axes; none if they are over the budget.
Values with_axes(MxnetLowering& lowering, int axes, bool is_column = false) {
  Values parts;
  for (const ValueId input : lowering.inputs) {
    const Values part = lowering.add(ops::kAtLeast, AtLeastAttributes{axes, is_column}, {input});
    if (part.empty()) return {};
    parts.push_back(part[0]);
  }
  return parts;
}

auto at_least(int axes) {
  return [=](MxnetLowering& lowering) {
    lowering.check_input_count("num_args");
    return with_axes(lowering, axes);
  };
}

/// The inputs, which get as many axes, one behind the other.
auto stacked(int axes, bool is_column, ConcatAttributes concat) {
  return [=](MxnetLowering& lowering) -> Values {
    lowering.check_input_count("num_args");
    lowering.attributes.ignore({"dim"});
    const Values parts = with_axes(lowering, axes, is_column);
    return parts.empty() ? Values() : lowering.add(ops::kConcat, concat, parts);
  };
}

/// Along an axis; with axis=None all elements are one row.
Values concatenate(MxnetLowering& lowering) {
  lowering.check_input_count("num_args");
  const auto axis = lowering.attributes.optional_integer("axis", 0);
  if (axis) return lowering.add(ops::kConcat, ConcatAttributes{*axis, Promotion::kCommon});
  Values rows;
  for (const ValueId input : lowering.inputs) {
    const Values row = lowering.add(ops::kReshape, kFlat, {input});
    if (row.empty()) return {};
    rows.push_back(row[0]);
  }
  return lowering.add(ops::kConcat, ConcatAttributes{0, Promotion::kCommon}, rows);
}

/// The numbers of a tuple of tuples, one behind the other.
Dims flat_tuple(MxnetLowering& lowering, const char* key) {
  lowering.attributes.ignore({key});
  const auto found = lowering.node.attributes.find(key);
  if (found == lowering.node.attributes.end()) {
    lowering.attributes.fail(key, "is missing");
    return {};
  }
  std::string flat = "(";
  for (const char c : found->second) {
    if (std::string_view("()[]").find(c) == std::string_view::npos) flat += c;
  }
  const auto numbers = parse_tuple(flat + ")");
  if (!numbers || numbers->size() % 2 != 0) lowering.attributes.fail(key, "is no tuple of pairs of whole numbers");
  return numbers.value_or(Dims{});
}

/// Before and behind each axis stands what a reduction along it gives.
Values pad_with_extremes(MxnetLowering& lowering, const Dims& widths, ReduceKind kind) {
  Values data = lowering.inputs;
  for (std::size_t i = 0; i + 1 < widths.size() && !data.empty(); i += 2) {
    if (widths[i] == 0 && widths[i + 1] == 0) continue;
    const auto axis = static_cast<std::int64_t>(i / 2);
    const Values extreme = lowering.add(ops::kReduce, ReduceAttributes{.kind = kind, .axes = {axis}, .keepdims = true}, data);
    if (extreme.empty()) return {};
    Values parts;
    for (const std::size_t side : {i, i + 1}) {
      if (side == i + 1) parts.push_back(data[0]);
      if (widths[side] == 0) continue;
      const Values border = lowering.add(ops::kRepeat, RepeatAttributes{widths[side], axis}, extreme);
      if (border.empty()) return {};
      parts.push_back(border[0]);
    }
    data = lowering.add(ops::kConcat, ConcatAttributes{axis}, parts);
  }
  return data;
}

Values numpy_pad(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  PadAttributes pad{.as_numpy = true};
  pad.widths = flat_tuple(lowering, "pad_width");
  const std::size_t mode = attributes.choice("mode", {"constant", "edge", "reflect", "symmetric", "maximum", "minimum"}, 0);
  pad.value = attributes.number("constant_value", 0);
  attributes.ignore({"reflect_type"});  // MXNet ignores it, too
  if (std::ranges::any_of(pad.widths, [](std::int64_t width) { return width < 0; })) attributes.fail("pad_width", "is negative");
  if (mode > 3) return pad_with_extremes(lowering, pad.widths, mode == 4 ? ReduceKind::kMax : ReduceKind::kMin);
  pad.mode = static_cast<PadMode>(mode);
  return lowering.add(ops::kPad, pad);
}

Values tril(MxnetLowering& lowering) {
  return lowering.add(ops::kLowerTriangle, LowerTriangleAttributes{lowering.attributes.integer("k", 0)});
}

Values trace(MxnetLowering& lowering) {
  DiagonalAttributes diagonal;
  diagonal.offset = lowering.attributes.integer("offset", 0);
  diagonal.rows = lowering.attributes.integer("axis1", 0);
  diagonal.columns = lowering.attributes.integer("axis2", 1);
  return Chain(lowering, lowering.inputs[0])
      .add(ops::kDiagonal, diagonal)
      .add(ops::kReduce, ReduceAttributes{.kind = ReduceKind::kSum, .axes = {-1}, .gives_scalars = true})
      .end();
}

Values diag_flat(MxnetLowering& lowering) {
  return Chain(lowering, lowering.inputs[0])
      .add(ops::kReshape, kFlat)
      .add(ops::kMakeDiagonal, MakeDiagonalAttributes{lowering.attributes.integer("k", 0)})
      .end();
}

Values diag_indices(MxnetLowering& lowering) {
  return lowering.add(ops::kDiagonalIndices, {}, {shape_source(lowering.graph, lowering.inputs[0])});
}

/// Each element but the first less the one before it.
Values differences(MxnetLowering& lowering, ValueId data, std::int64_t axis) {
  const auto part = [&](const SliceRange& range) {
    return lowering.add(ops::kSlice, SliceAttributes{.ranges = {range}, .may_be_empty = true}, {data});
  };
  const Values later = part({.axis = axis, .begin = 1}), earlier = part({.axis = axis, .end = -1});
  if (later.empty() || earlier.empty()) return {};
  return lowering.add(ops::kBinary, BinaryAttributes{BinaryKind::kSub}, {later[0], earlier[0]});
}

Values diff(MxnetLowering& lowering) {
  constexpr std::int64_t kMostTimes = 64;
  const std::int64_t times = lowering.attributes.integer("n", 1, 0, kMostTimes);
  const std::int64_t axis = lowering.attributes.integer("axis", -1);
  Values data = lowering.inputs;
  for (std::int64_t i = 0; i < times && !data.empty(); ++i) data = differences(lowering, data[0], axis);
  return data;
}

/// Of all elements in their order, with others before and behind.
Values ediff1d(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  const ValueId data = lowering.inputs[0];
  std::size_t next = 1;
  const auto side = [&](const char* is_given, const char* number) -> Values {
    const bool given = attributes.flag(is_given, false);
    attributes.ignore({number});
    if (given && next >= lowering.inputs.size()) attributes.fail(is_given, "needs one more input");
    if (given && next < lowering.inputs.size()) return lowering.add(ops::kReshape, kFlat, {lowering.inputs[next++]});
    if (!attributes.has(number)) return {};
    return lowering.add(ops::kFill, FillAttributes{.value = attributes.number(number), .shape = {1}}, {data});
  };
  const Values row = lowering.add(ops::kReshape, kFlat, {data});
  const Values before = side("to_begin_arr_given", "to_begin_scalar"), behind = side("to_end_arr_given", "to_end_scalar");
  Values parts = before;
  if (row.empty()) return {};
  const Values made = differences(lowering, row[0], 0);
  if (made.empty()) return {};
  parts.push_back(made[0]);
  parts.insert(parts.end(), behind.begin(), behind.end());
  return parts.size() == 1 ? parts : lowering.add(ops::kConcat, ConcatAttributes{0}, parts);
}

/// Without an index or a range.
Values delete_elements(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  if (lowering.inputs.size() > 1) {
    attributes.fail_node(StatusCode::kUnimplemented, "indices that are data are not supported");
    return {};
  }
  DeleteAttributes gone;
  gone.axis = attributes.optional_integer("axis", std::nullopt);
  gone.index = attributes.optional_integer("int_ind", std::nullopt);
  gone.begin = attributes.optional_integer("start", std::nullopt);
  gone.end = attributes.optional_integer("stop", std::nullopt);
  gone.step = attributes.optional_integer("step", 1).value_or(1);
  return lowering.add(ops::kDelete, gone);
}

/// The indices of all places of a tensor, along a first axis.
Values indices(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  const Dims dimensions = attributes.tuple("dimensions", {}, 0);
  const DType dtype = attributes.dtype("dtype", DType::kInt32);
  attributes.ignore({"ctx"});
  if (dimensions.empty()) return lowering.add(ops::kFill, FillAttributes{.shape = {0}, .dtype = dtype}, {});
  Dims axes{static_cast<std::int64_t>(dimensions.size())};
  for (std::size_t axis = 0; axis < dimensions.size(); ++axis) axes.push_back(static_cast<std::int64_t>(axis));
  const Values like = lowering.add(ops::kFill, FillAttributes{.shape = dimensions, .dtype = DType::kUInt8}, {});
  return Chain(lowering, like)
      .add(ops::kPositions, PositionsAttributes{})
      .add(ops::kTranspose, TransposeAttributes{axes})
      .add(ops::kCast, CastAttributes{dtype})
      .end();
}

/// A constant of numbers that `number_of(i)` gives, in the type of the file.
template <typename Number>
Values made_of_numbers(MxnetLowering& lowering, std::int64_t count, Number number_of) {
  AttributeReader& attributes = lowering.attributes;
  const DType dtype = attributes.dtype("dtype", DType::kFloat32);
  attributes.ignore({"ctx"});
  const auto wanted = static_cast<std::uint64_t>(count);
  Status taken = lowering.budget.take_asked("the numbers of a constant", wanted);
  if (taken.ok()) taken = lowering.budget.take("the numbers of a constant", wanted, sizeof(double));
  if (!taken.ok()) {
    attributes.fail_node(taken.code(), taken.message());
    return {};
  }
  std::vector<double> numbers;
  numbers.reserve(wanted);
  for (std::int64_t i = 0; i < count; ++i) numbers.push_back(number_of(static_cast<double>(i)));
  const ValueId constant = add_constant(lowering, numbers);
  return constant == kNoValue ? Values() : lowering.add(ops::kCast, CastAttributes{dtype}, {constant});
}

/// a - b cos(2 pi i / (M - 1)) + c cos(4 pi i / (M - 1)). MXNet's pi is a float32, which integer types show.
auto cosine_window(double a, double b, double c) {
  return [=](MxnetLowering& lowering) {
    const std::int64_t count = lowering.attributes.has("M") ? lowering.attributes.integer("M", {}, 0) : 0;
    lowering.attributes.ignore({"M"});
    return made_of_numbers(lowering, count, [=](double i) {
      constexpr double kPi = 3.14159274101257324F;
      const double angle = 2 * kPi * i / static_cast<double>(count - 1);
      return count == 1 ? 1 : a - b * std::cos(angle) + (c == 0 ? 0 : c * std::cos(2 * angle));
    });
  };
}

Values logspace(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  const double start = attributes.number("start"), stop = attributes.number("stop"), base = attributes.number("base", 10);
  const std::int64_t count = attributes.integer("num", {}, 0);
  const std::int64_t steps = attributes.flag("endpoint", true) ? count - 1 : count;
  const double step = steps > 0 ? (stop - start) / static_cast<double>(steps) : 0;
  return made_of_numbers(lowering, count, [=](double i) { return std::pow(base, start + i * step); });
}

/// Of a picture (H, W, C).
auto flip_picture(std::int64_t axis) {
  return [=](MxnetLowering& lowering) { return lowering.add(ops::kSlice, SliceAttributes{{{.axis = axis, .step = -1}}}); };
}

/// Moves the colors along the main axes of those of ImageNet, as AlexNet's training did. (H, W, 3)
Values adjust_lighting(MxnetLowering& lowering) {
  constexpr std::array<std::array<double, 3>, 3> kAxes{{{55.46 * -0.5675, 4.794 * 0.7192, 1.148 * 0.4009},
                                                        {55.46 * -0.5808, 4.794 * -0.0045, 1.148 * -0.8140},
                                                        {55.46 * -0.5836, 4.794 * -0.6948, 1.148 * 0.4203}}};
  std::vector<float> alpha = lowering.attributes.reals("alpha");
  if (alpha.size() != 3) lowering.attributes.fail("alpha", "has not 3 entries");
  alpha.resize(3);
  std::vector<float> added;
  for (const auto& axis : kAxes)
    added.push_back(static_cast<float>(axis[0] * alpha[0] + axis[1] * alpha[1] + axis[2] * alpha[2]));
  const ValueId constant = add_constant(lowering, added);
  if (constant == kNoValue) return {};
  return lowering.add(ops::kBinary, BinaryAttributes{BinaryKind::kAdd, true}, {lowering.inputs[0], constant});
}

}  // namespace

std::vector<MxnetOperator> numpy_shape_operators() {
  const std::vector<std::string> output{"output0"};
  std::vector<MxnetOperator> all;
  all.push_back({"_np_reshape", 1, 1, -1, numpy_reshape(-1)});
  add_aliases(all, {"", 1, 1, -1, numpy_reshape(-6)}, {"_npx_reshape", "_npi_reshape"});
  add_aliases(all, {"", 1, 1, -1, numpy_transpose}, {"_np_transpose", "_npi_transpose"});
  all.push_back({"_np_moveaxis", 1, 1, -1, move_axis});
  all.push_back({"_np_roll", 1, 1, -1, roll});
  all.push_back({"_npi_rot90", 1, 1, -1, rot90});
  all.push_back({"_np_atleast_1d", 1, -1, -1, at_least(1), -1, output});
  all.push_back({"_np_atleast_2d", 1, -1, -1, at_least(2), -1, output});
  all.push_back({"_np_atleast_3d", 1, -1, -1, at_least(3), -1, output});
  all.push_back({"_npi_vstack", 1, -1, -1, stacked(2, false, {0, Promotion::kCommon})});
  all.push_back({"_npi_hstack", 1, -1, -1, stacked(1, false, {1, Promotion::kCommon, true})});
  all.push_back({"_npi_dstack", 1, -1, -1, stacked(3, false, {2, Promotion::kCommon})});
  all.push_back({"_npi_column_stack", 1, -1, -1, stacked(2, true, {1, Promotion::kCommon})});
  all.push_back({"_npi_concatenate", 1, -1, -1, concatenate, -1, {"out"}});
  all.push_back({"_npi_pad", 1, 1, -1, numpy_pad});
  all.push_back({"_npi_tril", 1, 1, -1, tril});
  all.push_back({"_np_trace", 1, 1, -1, trace});
  all.push_back({"_np_diagflat", 1, 1, -1, diag_flat});
  all.push_back({"_npi_diag_indices_from", 1, 1, -1, diag_indices});
  all.push_back({"_npi_diff", 1, 1, -1, diff});
  all.push_back({"_npi_ediff1d", 1, 3, -1, ediff1d});
  all.push_back({"_npi_delete", 1, 2, -1, delete_elements});
  all.push_back({"_npi_indices", 0, 0, -1, indices});
  all.push_back({"_npi_hanning", 0, 0, -1, cosine_window(0.5, 0.5, 0)});
  all.push_back({"_npi_hamming", 0, 0, -1, cosine_window(0.54, 0.46, 0)});
  all.push_back({"_npi_blackman", 0, 0, -1, cosine_window(0.42, 0.5, 0.08)});
  all.push_back({"_npi_logspace", 0, 0, -1, logspace});
  add_aliases(all, {"", 1, 1, -1, flip_picture(-2)}, {"_image_flip_left_right", "_npx__image_flip_left_right"});
  add_aliases(all, {"", 1, 1, -1, flip_picture(-3)}, {"_image_flip_top_bottom", "_npx__image_flip_top_bottom"});
  add_aliases(all, {"", 1, 1, -1, adjust_lighting}, {"_image_adjust_lighting", "_npx__image_adjust_lighting"});
  return all;
}

}  // namespace shoal::worker

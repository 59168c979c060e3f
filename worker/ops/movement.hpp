// Transpose, SwapAxes, Slice, SliceLike, Split, Pad, Concat.
#pragma once

#include <optional>
#include <vector>

#include "worker/graph/operators.hpp"
#include "worker/graph/promotion.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kTranspose, kSwapAxes, kSlice, kSliceLike, kSplit, kPad, kConcat;
}  // namespace ops

struct TransposeAttributes {
  Dims axes;
};
template <>
inline constexpr auto fields_of<TransposeAttributes> = std::tuple{
    field("axes", &TransposeAttributes::axes, "axis i of the output is this one of the data; empty: the other way round"),
};

struct SwapAxesAttributes {
  std::int64_t first = 0, second = 0;
};
template <>
inline constexpr auto fields_of<SwapAxesAttributes> = std::tuple{
    field("first", &SwapAxesAttributes::first, "may be negative"),
    field("second", &SwapAxesAttributes::second, "may be negative"),
};

struct SliceRange {
  std::int64_t axis = 0;
  std::optional<std::int64_t> begin, end;
  std::int64_t step = 1;
};
template <>
inline constexpr auto fields_of<SliceRange> = std::tuple{
    field("axis", &SliceRange::axis, "may be negative"),
    field("begin", &SliceRange::begin, ""),
    field("end", &SliceRange::end, ""),
    field("step", &SliceRange::step, ""),
};
struct SliceAttributes {
  std::vector<SliceRange> ranges;
  bool clips = true;
  bool may_be_empty = false;
};
template <>
inline constexpr auto fields_of<SliceAttributes> = std::tuple{
    field("ranges", &SliceAttributes::ranges, "begin, begin + step, ... before end of each listed axis, as NumPy counts them"),
    field("clips", &SliceAttributes::clips, "a range beyond the axis is cut off; false: it is an error"),
    field("may_be_empty", &SliceAttributes::may_be_empty, "a range of nothing is taken; false: it is an error"),
};
/// The part of an axis that a Slice takes: `count` elements from `begin`, `step` apart. The step of a single element is 1,
/// because kernels multiply it by strides, and the file may contain any step.
struct AxisSlice {
  std::int64_t begin = 0, step = 1, count = 0;
};
/// The part that `range` takes of an axis of `size`. Its count is 0 when the range is empty.
AxisSlice resolve(const SliceRange& range, std::int64_t size);
/// Only the count, for a size that may be an expression.
Dim slice_count(const SliceRange& range, Dim size);

struct SplitAttributes {
  std::int64_t axis = 1;
  std::int64_t parts = 1;
  bool squeeze = false;
  bool uneven = false;
  Dims starts;
  bool is_horizontal = false;
  std::int64_t axis_of(int rank) const { return is_horizontal && rank == 1 ? 0 : axis; }
};
template <>
inline constexpr auto fields_of<SplitAttributes> = std::tuple{
    field("axis", &SplitAttributes::axis, "may be negative"),
    field("parts", &SplitAttributes::parts, "how many; they are equal"),
    field("squeeze", &SplitAttributes::squeeze, "the parts lose the axis, which must then be 1 long"),
    field("uneven", &SplitAttributes::uneven, "if they cannot be equal, the first ones are longer by 1"),
    field("starts", &SplitAttributes::starts, "where each part begins, from 0 on; none: as above"),
    field("is_horizontal", &SplitAttributes::is_horizontal, "a vector is cut along its only axis"),
};

struct SliceLikeAttributes {
  Dims axes;
};
template <>
inline constexpr auto fields_of<SliceLikeAttributes> = std::tuple{
    field("axes", &SliceLikeAttributes::axes, "may be negative; none: all, of which both inputs have equally many"),
};

enum class PadMode { kConstant, kEdge, kReflect, kSymmetric };
template <>
inline constexpr std::array kWords<PadMode>{"constant", "edge", "reflect", "symmetric"};
/// The element of the data that stands at `position` of a padded axis of `size` (0 is the first element); -1: the constant.
std::int64_t padded_source(PadMode mode, std::int64_t position, std::int64_t size);
struct PadAttributes {
  PadMode mode = PadMode::kConstant;
  Dims widths;
  double value = 0;
  bool as_numpy = false;
};
template <>
inline constexpr auto fields_of<PadAttributes> = std::tuple{
    field("mode", &PadAttributes::mode, "reflect does not repeat the border, symmetric does"),
    field("widths", &PadAttributes::widths, "two per axis, before and behind"),
    field("value", &PadAttributes::value, "of the constant"),
    field("as_numpy", &PadAttributes::as_numpy,
          "any number of axes, and a border that is longer than the data is reflected again and again; else 4 or 5 axes"),
};

struct ConcatAttributes {
  std::int64_t axis = 1;
  Promotion promotion = Promotion::kNone;
  bool is_horizontal = false;
  std::int64_t axis_of(int rank) const { return is_horizontal && rank == 1 ? 0 : axis; }
};
template <>
inline constexpr auto fields_of<ConcatAttributes> = std::tuple{
    field("axis", &ConcatAttributes::axis, "may be negative"),
    field("promotion", &ConcatAttributes::promotion, "what the inputs become, as of Binary"),
    field("is_horizontal", &ConcatAttributes::is_horizontal, "vectors are joined along their only axis"),
};

}  // namespace shoal::worker

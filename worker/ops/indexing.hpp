// Take, Pick, GatherNd, ScatterNd, OneHot, BooleanMask, RavelIndex, UnravelIndex: places that other elements name.
#pragma once

#include <optional>

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kTake, kPick, kGatherNd, kScatterNd, kOneHot, kBooleanMask, kRavelIndex, kUnravelIndex;
}  // namespace ops

/// What becomes of an index outside its axis.
enum class IndexMode { kClip, kWrap, kRaise };
template <>
inline constexpr std::array kWords<IndexMode>{"clip", "wrap", "raise"};

struct TakeAttributes {
  std::int64_t axis = 0;
  IndexMode mode = IndexMode::kClip;
  Dims table;
  std::optional<DType> table_type;
};
template <>
inline constexpr auto fields_of<TakeAttributes> = std::tuple{
    field("axis", &TakeAttributes::axis, "may be negative"),
    field("mode", &TakeAttributes::mode,
          "an index outside becomes the nearest one, is counted on around the axis, or is an error"),
    field("table", &TakeAttributes::table, "the shape that the data must have; none: any"),
    field("table_type", &TakeAttributes::table_type, "of a table that is not given; none: float32"),
};

struct PickAttributes {
  std::int64_t axis = -1;
  IndexMode mode = IndexMode::kClip;
  bool keepdims = false;
};
template <>
inline constexpr auto fields_of<PickAttributes> = std::tuple{
    field("axis", &PickAttributes::axis, "may be negative"),
    field("mode", &PickAttributes::mode, "as of Take"),
    field("keepdims", &PickAttributes::keepdims, "the axis stays with extent 1; else it is removed"),
};

struct OneHotAttributes {
  std::int64_t depth = 1;
  double on = 1, off = 0;
  DType dtype = DType::kFloat32;
};
template <>
inline constexpr auto fields_of<OneHotAttributes> = std::tuple{
    field("depth", &OneHotAttributes::depth, "the size of the last axis, which is added"),
    field("on", &OneHotAttributes::on, "at the index"),
    field("off", &OneHotAttributes::off, "elsewhere"),
    field("dtype", &OneHotAttributes::dtype, "of the output"),
};

struct RavelAttributes {
  Dims shape;
};
template <>
inline constexpr auto fields_of<RavelAttributes> = std::tuple{
    field("shape", &RavelAttributes::shape, "of the tensor whose elements the indices name; the first size does not matter"),
};

}  // namespace shoal::worker

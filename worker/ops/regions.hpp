// RoiPooling, RoiAlign: regions of feature maps in one size.
#pragma once

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kRoiPooling, kRoiAlign;
}  // namespace ops

struct RoiPoolingAttributes {
  std::int64_t height = 1, width = 1;
  float scale = 1;
};
template <>
inline constexpr auto fields_of<RoiPoolingAttributes> = std::tuple{
    field("height", &RoiPoolingAttributes::height, "of the result"),
    field("width", &RoiPoolingAttributes::width, "of the result"),
    field("scale", &RoiPoolingAttributes::scale, "factor from the coordinates of a region to those of the map"),
};

struct RoiAlignAttributes {
  std::int64_t height = 1, width = 1;
  float scale = 1;
  std::int64_t samples = -1;
  bool by_position = false, aligned = false;
};
template <>
inline constexpr auto fields_of<RoiAlignAttributes> = std::tuple{
    field("height", &RoiAlignAttributes::height, "of the result"),
    field("width", &RoiAlignAttributes::width, "of the result"),
    field("scale", &RoiAlignAttributes::scale, "factor from the coordinates of a region to those of the map"),
    field("samples", &RoiAlignAttributes::samples,
          "along each axis of a bin; not above 0: as many as it has elements, rounded up"),
    field("by_position", &RoiAlignAttributes::by_position,
          "each bin reads a channel of its own: those of channel c begin at c height "
          "width"),
    field("aligned", &RoiAlignAttributes::aligned,
          "the elements of the map are half an element further; a region without extent "
          "gives 0, and else counts as one element"),
};

}  // namespace shoal::worker

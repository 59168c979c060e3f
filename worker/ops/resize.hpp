// Resize, Crop: pictures of another size.
#pragma once

#include <array>

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kResize, kCrop;
}  // namespace ops

/// How the pixels of the result are computed, and where in the data pixel i of `to` lies, if there are `from`.
enum class ResizeKind {
  kRepeat,           ///< each pixel to / from times; `to` is a multiple of `from`
  kLinearCorners,    ///< between neighbors at i (from - 1) / (to - 1): the corners stay where they are
  kLinearHalfPixel,  ///< between neighbors at (i + 0.5) from / to - 0.5, at least 0
  kOpenCvNearest,    ///< the pixel at floor(i from / to), computed as OpenCV does
  kOpenCvLinear,     ///< as kLinearHalfPixel, computed as OpenCV does
};
template <>
inline constexpr std::array kWords<ResizeKind>{"repeat", "linear_corners", "linear_half_pixel", "opencv_nearest",
                                               "opencv_linear"};

enum class ResizeTo {
  kSize,       ///< `height` and `width`
  kScaled,     ///< floor(scale * size of the data)
  kOddScaled,  ///< the same if the size is even, else floor(scale * (size - 1)) + 1
  kLike,       ///< scale * size of the second input
  kEvenDown,   ///< the size of the data, or the next even number that is less
  kEvenUp,
  kOddDown,
  kOddUp,
  kShorterSide,  ///< the shorter side becomes `height` long, and the other keeps its ratio, rounded down
};
template <>
inline constexpr std::array kWords<ResizeTo>{"size",    "scaled",   "odd_scaled", "like",        "even_down",
                                             "even_up", "odd_down", "odd_up",     "shorter_side"};

struct ResizeAttributes {
  ResizeKind kind = ResizeKind::kRepeat;
  ResizeTo to = ResizeTo::kSize;
  std::int64_t height = 1, width = 1;
  float scale_height = 1, scale_width = 1;
  bool channels_last = false;
};
template <>
inline constexpr auto fields_of<ResizeAttributes> = std::tuple{
    field("kind", &ResizeAttributes::kind,
          "repeat: each pixel several times; linear: between neighbors, at i (from - 1) / (to - 1) or at (i + 0.5) from / to - "
          "0.5; "
          "opencv: as that library rounds"),
    field("to", &ResizeAttributes::to,
          "size: height and width; scaled: scale times the data's, rounded down (odd_scaled: an odd size stays odd); like: scale "
          "times "
          "the second input's; even_down and the like: the data's size, or one less or more; shorter_side: that becomes `height` "
          "long, "
          "and the other side keeps its ratio"),
    field("height", &ResizeAttributes::height, "of the result"),
    field("width", &ResizeAttributes::width, "of the result"),
    field("scale_height", &ResizeAttributes::scale_height, ""),
    field("scale_width", &ResizeAttributes::scale_width, ""),
    field("channels_last", &ResizeAttributes::channels_last, "the data is (H, W, C) or (N, H, W, C)"),
};

struct CropAttributes {
  std::int64_t top = 0, left = 0;
  std::int64_t height = 0, width = 0;
  bool centered = false;
};
template <>
inline constexpr auto fields_of<CropAttributes> = std::tuple{
    field("top", &CropAttributes::top, "rows that are cut off before"),
    field("left", &CropAttributes::left, "columns that are cut off before"),
    field("height", &CropAttributes::height, "of the result, if there is no second input"),
    field("width", &CropAttributes::width, "of the result, if there is no second input"),
    field("centered", &CropAttributes::centered, "as much is cut off before as behind, or one less"),
};
/// The first row and column of the data that are in the result.
std::array<std::int64_t, 2> first_pixel(const CropAttributes& crop, const Shape& data, const Shape& result);

}  // namespace shoal::worker

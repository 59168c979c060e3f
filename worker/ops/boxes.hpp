// BoxNms, BoxIou, BoxDecode, BoxEncode, BipartiteMatching: boxes as rows of numbers.
#pragma once

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kBoxNms, kBoxIou, kBoxDecode, kBoxEncode, kBipartiteMatching;
}  // namespace ops

enum class BoxFormat {
  kCorner,  ///< left, top, right, bottom
  kCenter,  ///< x and y of the center, width, height
};
template <>
inline constexpr std::array kWords<BoxFormat>{"corner", "center"};

struct BoxNmsAttributes {
  float overlap = 0.5F, valid = 0;
  std::int64_t topk = -1;
  std::int64_t coordinates = 2, score = 1, class_id = -1, background = -1;
  bool across_classes = false;
  BoxFormat in_format = BoxFormat::kCorner, out_format = BoxFormat::kCorner;
};
template <>
inline constexpr auto fields_of<BoxNmsAttributes> = std::tuple{
    field("overlap", &BoxNmsAttributes::overlap, "a box with a greater quotient of intersection and union is suppressed"),
    field("valid", &BoxNmsAttributes::valid, "scores that are not greater are dropped"),
    field("topk", &BoxNmsAttributes::topk, "only so many of the best take part; 0: the data is returned; below 0: all"),
    field("coordinates", &BoxNmsAttributes::coordinates, "place of the first of four in a row"),
    field("score", &BoxNmsAttributes::score, "its place in a row"),
    field("class_id", &BoxNmsAttributes::class_id, "its place in a row; below 0: rows have no class"),
    field("background", &BoxNmsAttributes::background, "rows of this class are dropped"),
    field("across_classes", &BoxNmsAttributes::across_classes, "also boxes of other classes are suppressed"),
    field("in_format", &BoxNmsAttributes::in_format, "of the boxes in the data"),
    field("out_format", &BoxNmsAttributes::out_format,
          "of those in the result; a box whose first number is below 0 is not converted"),
};

struct BoxIouAttributes {
  BoxFormat format = BoxFormat::kCorner;
};
template <>
inline constexpr auto fields_of<BoxIouAttributes> = std::tuple{field("format", &BoxIouAttributes::format, "of all boxes")};

struct BoxDecodeAttributes {
  float factor_x = 1, factor_y = 1, factor_width = 1, factor_height = 1;
  float clip = -1;
  BoxFormat format = BoxFormat::kCenter;
};
template <>
inline constexpr auto fields_of<BoxDecodeAttributes> = std::tuple{
    field("factor_x", &BoxDecodeAttributes::factor_x, "of the first number, as the next three"),
    field("factor_y", &BoxDecodeAttributes::factor_y, ""),
    field("factor_width", &BoxDecodeAttributes::factor_width, ""),
    field("factor_height", &BoxDecodeAttributes::factor_height, ""),
    field("clip", &BoxDecodeAttributes::clip, "the most that the last two numbers may be; not above 0: no limit"),
    field("format", &BoxDecodeAttributes::format, "of the anchors"),
};

struct BipartiteMatchingAttributes {
  float threshold = 0;
  std::int64_t topk = -1;
  bool ascending = false;
};
template <>
inline constexpr auto fields_of<BipartiteMatchingAttributes> = std::tuple{
    field("threshold", &BipartiteMatchingAttributes::threshold, "scores that are not better are no match"),
    field("topk", &BipartiteMatchingAttributes::topk, "above 0: at most one more match than this"),
    field("ascending", &BipartiteMatchingAttributes::ascending, "lower scores are better"),
};

}  // namespace shoal::worker

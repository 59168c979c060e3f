// MultiBoxPrior, MultiBoxDetection: the anchors of an SSD, and what it detects.
#pragma once

#include <vector>

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kMultiBoxPrior, kMultiBoxDetection;
}  // namespace ops

struct MultiBoxPriorAttributes {
  std::vector<float> sizes{1}, ratios{1};
  float step_y = -1, step_x = -1;
  float offset_y = 0.5F, offset_x = 0.5F;
  bool clip = false;
};
template <>
inline constexpr auto fields_of<MultiBoxPriorAttributes> = std::tuple{
    field("sizes", &MultiBoxPriorAttributes::sizes, "of the anchors with the first ratio, as parts of the picture's height"),
    field("ratios", &MultiBoxPriorAttributes::ratios, "width to height; those after the first have the first size"),
    field("step_y", &MultiBoxPriorAttributes::step_y, "from cell to cell; if this or the next is not above 0: 1 / H and 1 / W"),
    field("step_x", &MultiBoxPriorAttributes::step_x, ""),
    field("offset_y", &MultiBoxPriorAttributes::offset_y, "of the center within its cell"),
    field("offset_x", &MultiBoxPriorAttributes::offset_x, ""),
    field("clip", &MultiBoxPriorAttributes::clip, "the corners to 0 to 1"),
};

struct MultiBoxDetectionAttributes {
  std::vector<float> variances{0.1F, 0.1F, 0.2F, 0.2F};
  float threshold = 0.01F, overlap = 0.5F;
  std::int64_t topk = -1;
  bool across_classes = false, clip = true;
};
template <>
inline constexpr auto fields_of<MultiBoxDetectionAttributes> = std::tuple{
    field("variances", &MultiBoxDetectionAttributes::variances, "factors of x, y, width and height"),
    field("threshold", &MultiBoxDetectionAttributes::threshold, "lower scores are dropped"),
    field("overlap", &MultiBoxDetectionAttributes::overlap,
          "from this quotient of intersection and union on, a box is suppressed; not above 0, or above 1: none is, and none is "
          "sorted"),
    field("topk", &MultiBoxDetectionAttributes::topk, "only so many of the best take part; not above 0: all"),
    field("across_classes", &MultiBoxDetectionAttributes::across_classes, "also boxes of other classes are suppressed"),
    field("clip", &MultiBoxDetectionAttributes::clip, "the corners to 0 to 1"),
};

}  // namespace shoal::worker

// Proposal: the regions in which a Faster R-CNN looks for objects.
#pragma once

#include <vector>

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kProposal;
}  // namespace ops

struct ProposalAttributes {
  std::vector<float> scales{4, 8, 16, 32}, ratios{0.5F, 1, 2};
  std::int64_t stride = 16;
  std::int64_t most_sorted = 6000, count = 300;
  float overlap = 0.7F;
  std::int64_t least_size = 16;
  bool adds_offsets = false, one_picture = false;
};
template <>
inline constexpr auto fields_of<ProposalAttributes> = std::tuple{
    field("scales", &ProposalAttributes::scales, "of the anchors, for each ratio"),
    field("ratios", &ProposalAttributes::ratios, "height to width"),
    field("stride", &ProposalAttributes::stride, "pixels from one cell to the next"),
    field("most_sorted", &ProposalAttributes::most_sorted, "only so many of the best take part; not above 0: all"),
    field("count", &ProposalAttributes::count, "of the regions of a picture"),
    field("overlap", &ProposalAttributes::overlap, "a region with a greater quotient of intersection and union is suppressed"),
    field("least_size", &ProposalAttributes::least_size, "smaller regions, in pixels of the unscaled picture, come last"),
    field("adds_offsets", &ProposalAttributes::adds_offsets, "the offsets are added to the corners of the anchors"),
    field("one_picture", &ProposalAttributes::one_picture, "a batch of several is an error"),
};

}  // namespace shoal::worker

// Deconvolution: the transpose of a convolution.
#pragma once

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kDeconvolution;
}  // namespace ops

struct DeconvolutionAttributes {
  Dims kernel, stride, dilate, pad, adj, target_shape;
  std::int64_t num_filter = 0, num_group = 1;
};
template <>
inline constexpr auto fields_of<DeconvolutionAttributes> = std::tuple{
    field("kernel", &DeconvolutionAttributes::kernel, "1 to 3 extents"),
    field("stride", &DeconvolutionAttributes::stride,
          "between the places of neighbors in the result; one per spatial axis, as the "
          "next four"),
    field("dilate", &DeconvolutionAttributes::dilate, "distance between the taps of the kernel"),
    field("pad", &DeconvolutionAttributes::pad, "what is cut off before and behind"),
    field("adj", &DeconvolutionAttributes::adj, "how much less is cut off behind; less than the stride"),
    field("target_shape", &DeconvolutionAttributes::target_shape, "of the result: pad and adj follow from it; empty: none"),
    field("num_filter", &DeconvolutionAttributes::num_filter, "channels of the output"),
    field("num_group", &DeconvolutionAttributes::num_group, "groups of channels, each with its own filters"),
};

/// What is cut off before the result, for data of this shape. infer() has checked the attributes.
Dims cut_before(const DeconvolutionAttributes& attributes, const Shape& data);

}  // namespace shoal::worker

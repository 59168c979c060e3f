// Convolution.
#pragma once

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kConvolution;
}  // namespace ops

struct ConvolutionAttributes {
  Dims kernel, stride, dilate, pad;
  std::int64_t num_filter = 0, num_group = 1;
};
template <>
inline constexpr auto fields_of<ConvolutionAttributes> = std::tuple{
    field("kernel", &ConvolutionAttributes::kernel, "1 to 3 extents"),
    field("stride", &ConvolutionAttributes::stride, "one per spatial axis, as the next two"),
    field("dilate", &ConvolutionAttributes::dilate, "distance between the taps of the kernel"),
    field("pad", &ConvolutionAttributes::pad, "zeros before and behind"),
    field("num_filter", &ConvolutionAttributes::num_filter, "channels of the output"),
    field("num_group", &ConvolutionAttributes::num_group, "groups of channels, each with its own filters"),
};

}  // namespace shoal::worker

// The attributes that Convolution and Deconvolution share.
#pragma once

#include "worker/import/mxnet/mxnet_lowering.hpp"

namespace shoal::worker {

/// A tuple as long as the kernel. If it is missing, every entry is `fill`.
Dims kernel_tuple(AttributeReader& attributes, const char* key, std::size_t length, std::int64_t fill, std::int64_t least);
/// Checks `layout`, and the inputs: data, weight and, unless the attribute no_bias is set, bias. `rank`: of the kernel.
/// `no_bias`: if the attribute is missing.
void check_filters(MxnetLowering& lowering, std::size_t rank, bool no_bias);

/// Reads kernel, stride, dilate, pad, num_filter and num_group, and checks as above.
template <typename Filters>
void read_filters(MxnetLowering& lowering, Filters& filters, bool no_bias) {
  AttributeReader& attributes = lowering.attributes;
  filters.kernel = attributes.tuple("kernel", {}, 1);
  const std::size_t rank = filters.kernel.size();
  if (rank < 1 || rank > 3) attributes.fail("kernel", "has no 1, 2 or 3 entries");
  filters.stride = kernel_tuple(attributes, "stride", rank, 1, 1);
  filters.dilate = kernel_tuple(attributes, "dilate", rank, 1, 1);
  filters.pad = kernel_tuple(attributes, "pad", rank, 0, 0);
  filters.num_filter = attributes.integer("num_filter", {}, 1);
  filters.num_group = attributes.integer("num_group", 1, 1);
  check_filters(lowering, rank, no_bias);
}

}  // namespace shoal::worker

// Kernels of regions of feature maps.
#include "worker/exec/cpu/kernels/detection.hpp"
#include "worker/exec/cpu/kernels/divided.hpp"
#include "worker/ops/regions_functions.hpp"

namespace shoal::worker::cpu {

Loop make_roi_pooling(const Node& node, TensorTypes src, TensorTypes dst) { return make_divided<RoiPooling>(node, src, dst); }
std::size_t roi_pooling_scratch_bytes(const Node& node, TensorTypes src, TensorTypes dst) {
  return divided_scratch_bytes<RoiPooling>(node, src, dst);
}
Loop make_roi_align(const Node& node, TensorTypes src, TensorTypes dst) { return make_divided<RoiAlign>(node, src, dst); }
std::size_t roi_align_scratch_bytes(const Node& node, TensorTypes src, TensorTypes dst) {
  return divided_scratch_bytes<RoiAlign>(node, src, dst);
}

}  // namespace shoal::worker::cpu

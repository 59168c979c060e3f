// Kernels of boxes.
#include "worker/exec/cpu/kernels/detection.hpp"
#include "worker/exec/cpu/kernels/divided.hpp"
#include "worker/ops/boxes_functions.hpp"

namespace shoal::worker::cpu {

Loop make_box_nms(const Node& node, TensorTypes src, TensorTypes dst) { return make_divided<BoxNms>(node, src, dst); }
std::size_t box_nms_scratch_bytes(const Node& node, TensorTypes src, TensorTypes dst) {
  return divided_scratch_bytes<BoxNms>(node, src, dst);
}
Loop make_box_iou(const Node& node, TensorTypes src, TensorTypes dst) { return make_divided<BoxIou>(node, src, dst); }
Loop make_box_decode(const Node& node, TensorTypes src, TensorTypes dst) { return make_divided<BoxDecode>(node, src, dst); }
Loop make_box_encode(const Node& node, TensorTypes src, TensorTypes dst) { return make_divided<BoxEncode>(node, src, dst); }
Loop make_matching(const Node& node, TensorTypes src, TensorTypes dst) { return make_divided<BipartiteMatching>(node, src, dst); }
std::size_t matching_scratch_bytes(const Node& node, TensorTypes src, TensorTypes dst) {
  return divided_scratch_bytes<BipartiteMatching>(node, src, dst);
}

}  // namespace shoal::worker::cpu

// Kernels that find the boxes of objects.
#include "worker/exec/cpu/kernels/detection.hpp"

#include "worker/exec/cpu/kernels/divided.hpp"
#include "worker/ops/detection_functions.hpp"
#include "worker/ops/proposal_functions.hpp"

namespace shoal::worker::cpu {

Loop make_multibox_detection(const Node& node, TensorTypes src, TensorTypes dst) {
  return make_divided<MultiBoxDetection>(node, src, dst);
}
std::size_t multibox_detection_scratch_bytes(const Node& node, TensorTypes src, TensorTypes dst) {
  return divided_scratch_bytes<MultiBoxDetection>(node, src, dst);
}

Loop make_proposal(const Node& node, TensorTypes src, TensorTypes dst) { return make_divided<Proposal>(node, src, dst); }
std::size_t proposal_scratch_bytes(const Node& node, TensorTypes src, TensorTypes dst) {
  return divided_scratch_bytes<Proposal>(node, src, dst);
}
Status check_proposal(const Node& node, TensorTypes src, std::span<std::byte* const> operands) {
  std::array<TensorView, 3> views;
  for (std::size_t i = 0; i < views.size(); ++i) views[i] = {src[i].dtype, src[i].shape, operands[i]};
  return check_pictures(node, views);
}

}  // namespace shoal::worker::cpu

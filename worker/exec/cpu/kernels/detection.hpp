// The kernels of boxes and regions, and of pictures in another size. `node` and the tensors are as in Kernel::make.
#pragma once

#include "worker/exec/cpu/kernels/kernels.hpp"
#include "worker/ops/resize_functions.hpp"

namespace shoal::worker::cpu {

// boxes.cpp
Loop make_box_nms(const Node& node, TensorTypes src, TensorTypes dst);
std::size_t box_nms_scratch_bytes(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_box_iou(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_box_decode(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_box_encode(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_matching(const Node& node, TensorTypes src, TensorTypes dst);
std::size_t matching_scratch_bytes(const Node& node, TensorTypes src, TensorTypes dst);

// detection.cpp
Loop make_multibox_detection(const Node& node, TensorTypes src, TensorTypes dst);
std::size_t multibox_detection_scratch_bytes(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_proposal(const Node& node, TensorTypes src, TensorTypes dst);
std::size_t proposal_scratch_bytes(const Node& node, TensorTypes src, TensorTypes dst);
Status check_proposal(const Node& node, TensorTypes src, std::span<std::byte* const> operands);

// regions.cpp
Loop make_roi_pooling(const Node& node, TensorTypes src, TensorTypes dst);
std::size_t roi_pooling_scratch_bytes(const Node& node, TensorTypes src, TensorTypes dst);
Loop make_roi_align(const Node& node, TensorTypes src, TensorTypes dst);
std::size_t roi_align_scratch_bytes(const Node& node, TensorTypes src, TensorTypes dst);

// resize.cpp
Loop make_resize(const Node& node, TensorTypes src, TensorTypes dst);
/// Operands: src, ..., dst. Null if there is nothing for the type.
Loop resize_loop(const ResizePictures& pictures, DType dtype);

}  // namespace shoal::worker::cpu

#include "worker/exec/cpu/kernels/kernels.hpp"

#include <algorithm>

#include "worker/exec/cpu/kernels/detection.hpp"
#include "worker/exec/cpu/kernels/elementwise.hpp"
#include "worker/exec/cpu/kernels/layers.hpp"
#include "worker/exec/cpu/kernels/linalg.hpp"
#include "worker/exec/cpu/kernels/lookup.hpp"
#include "worker/exec/cpu/kernels/movement.hpp"
#include "worker/exec/cpu/kernels/reduction.hpp"
#include "worker/exec/cpu/kernels/sequence.hpp"
#include "worker/exec/cpu/kernels/sparse.hpp"
#include "worker/ops/activation.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/boxes.hpp"
#include "worker/ops/cast.hpp"
#include "worker/ops/creation.hpp"
#include "worker/ops/detection.hpp"
#include "worker/ops/diagonal.hpp"
#include "worker/ops/indexing.hpp"
#include "worker/ops/linalg.hpp"
#include "worker/ops/movement.hpp"
#include "worker/ops/normalization.hpp"
#include "worker/ops/ordering.hpp"
#include "worker/ops/products.hpp"
#include "worker/ops/proposal.hpp"
#include "worker/ops/quantization.hpp"
#include "worker/ops/quantization_functions.hpp"
#include "worker/ops/rearrangement.hpp"
#include "worker/ops/reduce.hpp"
#include "worker/ops/regions.hpp"
#include "worker/ops/repetition.hpp"
#include "worker/ops/resize.hpp"
#include "worker/ops/selection.hpp"
#include "worker/ops/sequence.hpp"
#include "worker/ops/softmax.hpp"
#include "worker/ops/sparse.hpp"
#include "worker/ops/unary.hpp"

namespace shoal::worker::cpu {

using SparseTypes = Joined<Floats, Types<std::int64_t>>::Type;  // numbers and indices
using SparseSums = Types<float, double, std::int64_t>;          // at random places: not in halves

std::span<const Kernel> all_kernels() {
  static const Kernel kKernels[] = {
      {&ops::kUnary, AnyTypes(), make_unary, true},
      {&ops::kNanToNum, Numbers(), make_nan_to_num, true},
      {&ops::kAround, Numbers(), make_around, true},
      {&ops::kActivation, Numbers(), make_activation, true},
      {&ops::kLeakyRelu, Floats(), make_leaky, true},
      {&ops::kHardSigmoid, Floats(), make_hard_sigmoid, true},
      {&ops::kClip, Numbers(), make_clip, true},
      {&ops::kQuadratic, Numbers(), make_quadratic, true},
      {&ops::kDivSqrtDim, Numbers(), make_div_sqrt_dim, true},
      {&ops::kBinary, AnyTypes(), make_binary, true},
      {&ops::kScalar, AnyTypes(), make_scalar, true},
      {&ops::kAddN, Numbers(), make_add_n, true},
      {&ops::kWhere, AnyTypes(), make_where, true},
      {&ops::kCast, AnyTypes(), make_cast, true},
      {&ops::kAmpMulticast, AnyTypes(), make_cast},
      {&ops::kQuantize, Joined<Types<float>, QuantizedTypes>::Type(), make_quantize},
      {&ops::kDequantize, Joined<Types<float>, QuantizedTypes>::Type(), make_dequantize},
      {&ops::kQuantizedStep, Joined<Types<float>, QuantizedTypes>::Type(), make_quantized_step},
      {&ops::kReduce, Numbers(), make_reduce},
      {&ops::kCumSum, Numbers(), make_cum_sum},
      {&ops::kLayerNorm, Floats(), make_layer_norm, true},
      {&ops::kGroupNorm, Floats(), make_group_norm, true},
      {&ops::kSoftmax, Types<float, std::int32_t, std::int64_t>(), make_softmax, true},
      {&ops::kKhatriRao, Floats(), make_khatri_rao},
      {&ops::kTriangularProduct, Types<float, double>(), make_triangular_product},
      {&ops::kTriangularSolve, Types<float, double>(), make_triangular_solve},
      {&ops::kDiagonal, AnyTypes(), make_diagonal},
      {&ops::kMakeDiagonal, AnyTypes(), make_make_diagonal},
      {&ops::kExtractTriangle, AnyTypes(), make_extract_triangle},
      {&ops::kMakeTriangle, AnyTypes(), make_make_triangle},
      {&ops::kTranspose, AnyTypes(), make_transpose},
      {&ops::kMoveAxes, AnyTypes(), make_move_axes},
      {&ops::kSwapAxes, AnyTypes(), make_swap_axes},
      {&ops::kSlice, AnyTypes(), make_slice},
      {&ops::kSliceLike, AnyTypes(), make_slice_like},
      {&ops::kSplit, AnyTypes(), make_split},
      {&ops::kConcat, AnyTypes(), make_concat},
      {&ops::kPad, Numbers(), make_pad},
      {&ops::kBroadcast, AnyTypes(), make_broadcast},
      {&ops::kTile, AnyTypes(), make_tile},
      {&ops::kRepeat, AnyTypes(), make_repeat},
      {&ops::kTake, AnyTypes(), make_take},
      {&ops::kPick, AnyTypes(), make_pick},
      {&ops::kGatherNd, AnyTypes(), make_gather_nd},
      {&ops::kOneHot, AnyTypes(), make_one_hot},
      {&ops::kTopK, Numbers(), make_top_k, false, top_k_scratch_bytes},
      {&ops::kArgExtreme, Numbers(), make_arg_extreme},
      {&ops::kFill, AnyTypes(), make_fill},
      {&ops::kRange, AnyTypes(), make_from_shapes},
      {&ops::kEye, AnyTypes(), make_from_shapes},
      {&ops::kPositions, AnyTypes(), make_from_shapes},
      {&ops::kShapeOf, AnyTypes(), make_from_shapes},
      {&ops::kSequenceMask, AnyTypes(), make_sequence_mask, true},
      {&ops::kSequenceLast, AnyTypes(), make_sequence_last},
      {&ops::kSequenceReverse, AnyTypes(), make_sequence_reverse},
      {&ops::kBoxNms, Floats(), make_box_nms, false, box_nms_scratch_bytes},
      {&ops::kBoxIou, Floats(), make_box_iou},
      {&ops::kBoxDecode, Floats(), make_box_decode},
      {&ops::kBoxEncode, Floats(), make_box_encode},
      {&ops::kBipartiteMatching, Floats(), make_matching, false, matching_scratch_bytes},
      {&ops::kMultiBoxPrior, Floats(), make_from_shapes},
      {&ops::kMultiBoxDetection, Floats(), make_multibox_detection, false, multibox_detection_scratch_bytes},
      {&ops::kProposal, Floats(), make_proposal, false, proposal_scratch_bytes, check_proposal},
      {&ops::kRoiPooling, Floats(), make_roi_pooling, false, roi_pooling_scratch_bytes},
      {&ops::kRoiAlign, Floats(), make_roi_align, false, roi_align_scratch_bytes},
      {&ops::kResize, Numbers(), make_resize},
      {&ops::kCsrToDense, AnyTypes(), make_csr_to_dense},
      {&ops::kRowsToDense, AnyTypes(), make_rows_to_dense},
      {&ops::kSparseDot, SparseTypes(), make_sparse_dot},
      {&ops::kDotSparse, SparseSums(), make_dot_sparse},
      {&ops::kTakeRows, AnyTypes(), make_take_rows},
  };
  return kKernels;
}

const Kernel* find_kernel(const Operator* op) {
  const auto kernels = all_kernels();
  const auto found = std::ranges::find(kernels, op, &Kernel::op);
  return found == kernels.end() ? nullptr : &*found;
}

}  // namespace shoal::worker::cpu

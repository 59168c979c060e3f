#include "worker/passes/work.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>

#include "worker/ops/cast.hpp"
#include "worker/ops/contraction.hpp"
#include "worker/ops/convolution.hpp"
#include "worker/ops/creation.hpp"
#include "worker/ops/detection.hpp"
#include "worker/ops/diagonal.hpp"
#include "worker/ops/fully_connected.hpp"
#include "worker/ops/indexing.hpp"
#include "worker/ops/linalg.hpp"
#include "worker/ops/movement.hpp"
#include "worker/ops/normalization.hpp"
#include "worker/ops/ordering.hpp"
#include "worker/ops/products.hpp"
#include "worker/ops/quantization.hpp"
#include "worker/ops/rearrangement.hpp"
#include "worker/ops/recurrent.hpp"
#include "worker/ops/reduce.hpp"
#include "worker/ops/regions.hpp"
#include "worker/ops/repetition.hpp"
#include "worker/ops/resize.hpp"
#include "worker/ops/softmax.hpp"
#include "worker/ops/sparse.hpp"
#include "worker/ops/statistics.hpp"
#include "worker/ops/unary.hpp"

namespace shoal::worker {
namespace {

double elements_of(const TensorView& tensor) { return static_cast<double>(tensor.element_count()); }

double elements_of(std::span<const TensorView> tensors) {
  double sum = 0;
  for (const TensorView& tensor : tensors) sum += elements_of(tensor);
  return sum;
}

bool is_one_of(const Node& node, std::initializer_list<const Operator*> operators) {
  return std::ranges::find(operators, node.op) != operators.end();
}

/// Does the node touch each element of its inputs and outputs a few times? Exporters write these operators on weights.
bool is_linear(const Node& node) {
  if (node.op->facts.is_elementwise == Fact::kYes) return true;
  const bool makes = is_one_of(node, {&ops::kEye, &ops::kFill, &ops::kMultiBoxPrior, &ops::kOneHot, &ops::kPositions,
                                      &ops::kRange, &ops::kShapeOf, &ops::kQuantizedStep});
  const bool moves = is_one_of(node, {&ops::kBroadcast, &ops::kConcat, &ops::kDelete, &ops::kDiagonal, &ops::kLowerTriangle,
                                      &ops::kMakeDiagonal, &ops::kPad, &ops::kRepeat, &ops::kResize, &ops::kRoll,
                                      &ops::kScatterNd, &ops::kSliceAssign, &ops::kTile, &ops::kAmpMulticast});
  const bool is_sparse =
      is_one_of(node, {&ops::kCheckCsr, &ops::kCheckRows, &ops::kCsrToDense, &ops::kRetainRows, &ops::kRowsToDense});
  const bool reduces =
      is_one_of(node, {&ops::kArgExtreme, &ops::kAverage, &ops::kBatchNorm, &ops::kCumSum, &ops::kDivSqrtDim, &ops::kGroupNorm,
                       &ops::kL2Normalization, &ops::kLayerNorm, &ops::kReduce, &ops::kSoftmax, &ops::kTopK, &ops::kVariance});
  return makes || moves || is_sparse || reduces;
}

/// Does the node touch each element of its outputs a few times, and at most as many of its inputs?
bool picks_elements(const Node& node) {
  return node.op->facts.is_view == Fact::kYes || is_one_of(node, {&ops::kGatherNd, &ops::kPick, &ops::kTake, &ops::kTakeRows});
}

/// Products of two tensors, of which each index is in at least two of a, b and the result: a * b * result has it twice.
bool is_matrix_product(const Node& node) {
  return is_one_of(node, {&ops::kMatMul, &ops::kDot, &ops::kTensorDot, &ops::kTriangularProduct, &ops::kTriangularSolve});
}

}  // namespace

double flops_of(const Node& node, std::span<const TensorView> src, std::span<const TensorView> dst) {
  if (node.op == &ops::kRnn) return RnnSizes(node.attributes.get<RnnAttributes>(), src[kRnnData].shape).flops();
  if (node.op != &ops::kConvolution && node.op != &ops::kFullyConnected) return 0;
  if (dst[0].element_count() == 0) return 0;
  const Shape& weights = src[1].shape;  // one row for each channel of the output
  return 2.0 * elements_of(dst[0]) * static_cast<double>(weights.element_count() / weights[0]);
}

double most_work_of(const Node& node, std::span<const TensorView> src, std::span<const TensorView> dst) {
  const double elements = elements_of(src) + elements_of(dst);
  constexpr double kElementsCopiedAtOnce = 16;  // by who runs the node
  if (picks_elements(node)) return elements_of(dst) + elements_of(src) / kElementsCopiedAtOnce;
  if (is_linear(node)) return elements;
  if (const double flops = flops_of(node, src, dst); flops > 0) return elements + flops;
  if (is_matrix_product(node)) return elements + 2 * std::sqrt(elements_of(src[0]) * elements_of(src[1]) * elements_of(dst[0]));
  if (node.op == &ops::kRoiAlign) return std::numeric_limits<double>::infinity();  // an attribute says how many samples it takes
  if (node.op == &ops::kEinsum) {                                                  // each index is in an input
    double products = 1;
    for (const TensorView& tensor : src) products *= elements_of(tensor);
    return elements + products;
  }
  return elements * elements;  // windows, boxes, factorizations: at most each element with each
}

}  // namespace shoal::worker

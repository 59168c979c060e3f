#include "worker/exec/cpu/kernels/kernels.hpp"

#include <algorithm>

#include "worker/exec/cpu/kernels/elementwise.hpp"
#include "worker/exec/cpu/kernels/movement.hpp"
#include "worker/exec/cpu/kernels/reduction.hpp"
#include "worker/ops/activation.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/cast.hpp"
#include "worker/ops/movement.hpp"
#include "worker/ops/reduce.hpp"
#include "worker/ops/selection.hpp"
#include "worker/ops/unary.hpp"

namespace shoal::worker::cpu {

std::span<const Kernel> all_kernels() {
  static const Kernel kKernels[] = {
      {&ops::kUnary, Numbers(), make_unary, true},
      {&ops::kActivation, Numbers(), make_activation, true},
      {&ops::kLeakyRelu, Floats(), make_leaky, true},
      {&ops::kHardSigmoid, Floats(), make_hard_sigmoid, true},
      {&ops::kClip, Numbers(), make_clip, true},
      {&ops::kQuadratic, Numbers(), make_quadratic, true},
      {&ops::kDivSqrtDim, Numbers(), make_div_sqrt_dim, true},
      {&ops::kBinary, Numbers(), make_binary, true},
      {&ops::kScalar, Numbers(), make_scalar, true},
      {&ops::kAddN, Numbers(), make_add_n, true},
      {&ops::kWhere, AnyTypes(), make_where, true},
      {&ops::kCast, AnyTypes(), make_cast, true},
      {&ops::kAmpMulticast, AnyTypes(), make_cast},
      {&ops::kReduce, Numbers(), make_reduce},
      {&ops::kTranspose, AnyTypes(), make_transpose},
      {&ops::kSwapAxes, AnyTypes(), make_swap_axes},
      {&ops::kSlice, AnyTypes(), make_slice},
      {&ops::kSplit, AnyTypes(), make_split},
      {&ops::kConcat, AnyTypes(), make_concat},
      {&ops::kPad, Numbers(), make_pad},
  };
  return kKernels;
}

const Kernel* find_kernel(const Operator* op) {
  const auto kernels = all_kernels();
  const auto found = std::ranges::find(kernels, op, &Kernel::op);
  return found == kernels.end() ? nullptr : &*found;
}

}  // namespace shoal::worker::cpu

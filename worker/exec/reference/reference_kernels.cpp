#include "worker/exec/reference/reference_kernels.hpp"

#include <map>
#include <string>

#include "shm/base/check.hpp"
#include "worker/exec/reference/kernels.hpp"

namespace shoal::worker {
namespace {

using Kernels = std::map<std::string, ReferenceKernel, std::less<>>;

Kernels built_in() {
  return {
      {"Convolution", reference_convolution},
      {"FullyConnected", reference_fully_connected},
      {"BatchNorm", reference_batch_norm},
      {"LRN", reference_lrn},
      {"L2Normalization", reference_l2_normalization},
      {"Activation", reference_activation},
      {"LeakyReLU", reference_leaky},
      {"HardSigmoid", reference_hard_sigmoid},
      {"Pooling", reference_pooling},
      {"AdaptiveAvgPooling", reference_adaptive_pooling},
      {"Softmax", reference_softmax},
      {"Binary", reference_binary},
      {"Scalar", reference_scalar},
      {"Unary", reference_unary},
      {"DivSqrtDim", reference_div_sqrt_dim},
      {"AddN", reference_add_n},
      {"Clip", reference_clip},
      {"Reduce", reference_reduce},
      {"Cast", reference_cast},
      {"AmpMulticast", reference_cast},
      {"Identity", reference_copy},
      {"Flatten", reference_copy},
      {"Reshape", reference_copy},
      {"Concat", reference_concat},
      {"Transpose", reference_transpose},
      {"SwapAxes", reference_swap_axes},
      {"Slice", reference_slice},
      {"Split", reference_split},
      {"Pad", reference_pad},
  };
}

Kernels& registry() {
  static Kernels kernels = built_in();
  return kernels;
}

}  // namespace

ReferenceKernel find_reference_kernel(std::string_view operator_name) {
  const auto found = registry().find(operator_name);
  return found == registry().end() ? nullptr : found->second;
}

void register_reference_kernel(std::string_view operator_name, ReferenceKernel kernel) {
  SHOAL_CHECK(registry().emplace(operator_name, kernel).second);
}

}  // namespace shoal::worker

#include "worker/exec/reference/reference_kernels.hpp"

#include <map>
#include <string>

#include "shm/base/check.hpp"
#include "worker/exec/reference/kernels.hpp"
#include "worker/graph/operators.hpp"

namespace shoal::worker {
namespace {

using Kernels = std::map<std::string, ReferenceKernel, std::less<>>;

Kernels built_in() {
  Kernels kernels{
      {"Convolution", reference_convolution},
      {"FullyConnected", reference_fully_connected},
      {"BatchNorm", reference_batch_norm},
      {"LRN", reference_lrn},
      {"Activation", reference_activation},
      {"LeakyReLU", reference_leaky},
      {"Pooling", reference_pooling},
      {"Softmax", reference_softmax},
      {"Add", reference_binary},
      {"Sub", reference_binary},
      {"Mul", reference_binary},
      {"Div", reference_binary},
      {"AddN", reference_add_n},
      {"Clip", reference_clip},
      {"Round", reference_round},
      {"Sign", reference_sign},
      {"Cast", reference_cast},
      {"AmpMulticast", reference_cast},
      {"Identity", reference_copy},
      {"Flatten", reference_copy},
      {"Reshape", reference_copy},
      {"Concat", reference_concat},
      {"Transpose", reference_transpose},
  };
  for (const Operator* op : all_operators()) {
    if (op->name.ends_with("Scalar")) kernels.emplace(op->name, reference_scalar);
  }
  return kernels;
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

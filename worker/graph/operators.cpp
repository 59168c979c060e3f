#include "worker/graph/operators.hpp"

#include <map>

#include "shm/base/check.hpp"
#include "worker/graph/shapes.hpp"

namespace shoal::worker {
namespace {

using Registry = std::map<std::string, Operator, std::less<>>;

void add(Registry& registry, Operator op) {
  const std::string name = op.name;
  SHOAL_CHECK(op.infer != nullptr);
  SHOAL_CHECK(registry.emplace(name, std::move(op)).second);
}

Registry built_in() {
  constexpr auto kAsData = ConstantTypes::kAsData;
  Registry registry;
  add(registry, {"Convolution", 2, 3, 1, infer_convolution, kAsData, convolution_parameters});
  add(registry, {"FullyConnected", 2, 3, 1, infer_fully_connected, kAsData, fully_connected_parameters});
  add(registry, {"BatchNorm", 5, 5, 3, infer_batch_norm, ConstantTypes::kAtLeastF32, batch_norm_parameters});
  add(registry, {"LeakyReLU", 1, 2, 1, infer_leaky, ConstantTypes::kAtLeastF32, leaky_parameters});
  add(registry, {"Activation", 1, 1, 1, infer_numeric, kAsData});
  add(registry, {"Pooling", 1, 1, 1, infer_pooling, kAsData});
  add(registry, {"LRN", 1, 1, 2, infer_lrn, kAsData});
  add(registry, {.name = "Softmax", .max_inputs = 2, .infer = infer_softmax, .bounds_input = 1});
  add(registry, {"Concat", 1, -1, 1, infer_concat, kAsData});
  add(registry, {"AddN", 1, -1, 1, infer_numeric, kAsData, same_parameters});
  add(registry, {"Binary", 2, 2, 1, infer_binary, kAsData, binary_parameters});
  add(registry, {"Scalar", 1, 1, 1, infer_scalar});
  add(registry, {"Reduce", 1, 1, 1, infer_reduce});
  add(registry, {"L2Normalization", 1, 1, 2, infer_l2_normalization});
  add(registry, {"AdaptiveAvgPooling", 1, 1, 1, infer_adaptive_pooling});
  add(registry, {"HardSigmoid", 1, 1, 1, infer_float_elementwise});
  for (const char* name : {"Unary", "DivSqrtDim", "Clip"}) add(registry, {name, 1, 1, 1, infer_numeric});
  add(registry, {"Identity", 1, 1, 1, infer_same});
  add(registry, {"Flatten", 1, 1, 1, infer_flatten});
  add(registry, {"Reshape", 1, 1, 1, infer_reshape});
  add(registry, {"Transpose", 1, 1, 1, infer_transpose});
  add(registry, {"SwapAxes", 1, 1, 1, infer_swap_axes});
  add(registry, {"Slice", 1, 1, 1, infer_slice});
  add(registry, {"Split", 1, 1, -1, infer_split});
  add(registry, {"Pad", 1, 1, 1, infer_pad});
  add(registry, {"Cast", 1, 1, 1, infer_cast});
  add(registry, {"AmpMulticast", 1, -1, -1, infer_multicast});
  return registry;
}

Registry& registry() {
  static Registry operators = built_in();
  return operators;
}

}  // namespace

const Operator* find_operator(std::string_view name) {
  const auto found = registry().find(name);
  return found == registry().end() ? nullptr : &found->second;
}

std::vector<const Operator*> all_operators() {
  std::vector<const Operator*> all;
  for (const auto& [name, op] : registry()) all.push_back(&op);
  return all;
}

void register_operator(Operator op) { add(registry(), std::move(op)); }

}  // namespace shoal::worker

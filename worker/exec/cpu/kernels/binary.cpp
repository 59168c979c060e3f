// Kernels of functions of two tensors, or of a tensor and a number.
#include "worker/exec/cpu/kernels/elementwise.hpp"
#include "worker/exec/cpu/kernels/map.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/binary_functions.hpp"

namespace shoal::worker::cpu {
namespace {

/// The function for two numbers as elements of `dtype` are computed.
BlockFunction block_for(BinaryKind kind, DType dtype) {
  BlockFunction block;
  dispatch(ComputedNumbers(), computed_type(dtype),
           [&]<typename C>() { block = with_function<C>(kind, [](auto function) { return block_of<C, C, C>(function); }); });
  return block;
}

}  // namespace

Loop make_binary(const Node& node, TensorTypes src, TensorTypes dst) {
  const DType computed = computed_type(dst[0].dtype);
  return map_loop({MapInput::of(src[0], dst[0].shape, computed), MapInput::of(src[1], dst[0].shape, computed)}, dst[0], computed,
                  block_for(node.attributes.get<BinaryAttributes>().kind, computed));
}

Loop make_scalar(const Node& node, TensorTypes src, TensorTypes dst) {
  const auto& scalar = node.attributes.get<ScalarAttributes>();
  const DType computed = computed_type(dst[0].dtype);
  std::vector<MapInput> inputs = {MapInput::of(src[0], dst[0].shape, computed)};
  dispatch(Numbers(), dst[0].dtype, [&]<typename T>() {
    inputs.insert(scalar.reversed ? inputs.begin() : inputs.end(), MapInput::of_number(scalar_as<T>(scalar.scalar)));
  });
  return map_loop(inputs, dst[0], computed, block_for(scalar.kind, computed));
}

Loop make_add_n(const Node&, TensorTypes src, TensorTypes dst) {
  return fold_loop(src.size(), dst[0], block_for(BinaryKind::kAdd, dst[0].dtype));
}

}  // namespace shoal::worker::cpu

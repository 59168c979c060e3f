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

/// Bools are computed and written as bytes, and read as 0 or 1: a client may write any byte.
TensorType as_bytes(const TensorType& tensor) {
  return {tensor.dtype == DType::kBool ? DType::kUInt8 : tensor.dtype, tensor.shape};
}

}  // namespace

Loop make_binary(const Node& node, TensorTypes src, TensorTypes dst) {
  const BinaryKind kind = node.attributes.get<BinaryAttributes>().kind;
  const TensorType result = as_bytes(dst[0]);
  const DType computed = computed_type(result.dtype);
  return map_loop({MapInput::of(src[0], result.shape, computed), MapInput::of(src[1], result.shape, computed)}, result, computed,
                  block_for(dst[0].dtype == DType::kBool ? kind_of_bools(kind).value() : kind, computed));
}

Loop make_scalar(const Node& node, TensorTypes src, TensorTypes dst) {
  const auto& scalar = node.attributes.get<ScalarAttributes>();
  if (dst[0].dtype == DType::kBool) {
    const MapInput number = MapInput::of_number<std::uint8_t>(scalar.scalar != 0 ? 1 : 0),
                   data = MapInput::of(src[0], dst[0].shape, DType::kUInt8);
    return map_loop({scalar.reversed ? number : data, scalar.reversed ? data : number}, as_bytes(dst[0]), DType::kUInt8,
                    block_for(kind_of_bools(scalar.kind).value(), DType::kUInt8));
  }
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

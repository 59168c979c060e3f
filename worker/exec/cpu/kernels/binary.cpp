// Kernels of functions of two tensors, or of a tensor and a number.
#include "worker/exec/cpu/kernels/elementwise.hpp"
#include "worker/exec/cpu/kernels/map.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/binary_functions.hpp"

namespace shoal::worker::cpu {
namespace {

/// a / b of short integers, as the oracle kernel divides them. No processor divides vectors of integers. A quotient of
/// floating-point numbers that are so much longer than the integers is rounded to a whole number only if it is one.
template <typename C>
C short_quotient(C a, C b) {
  using F = std::conditional_t<sizeof(C) < 4, float, double>;
  constexpr F kBeyond = 0x1p31F;  // of int32, only the lowest number divided by -1 comes there, and is the lowest again
  const F whole = static_cast<F>(a) / static_cast<F>(b == 0 ? C{1} : b);
  const auto cut = static_cast<std::int32_t>(whole < kBeyond ? whole : -kBeyond);
  return static_cast<C>(b == 0 ? 0 : cut);
}
template <typename C>
inline constexpr bool kIsShort = std::is_integral_v<C> && (sizeof(C) < 4 || std::is_same_v<C, std::int32_t>);

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

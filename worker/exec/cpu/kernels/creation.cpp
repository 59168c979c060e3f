// Kernels of operators that make tensors of numbers and shapes.
#include "worker/ops/creation.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "worker/exec/cpu/kernels/conversion.hpp"
#include "worker/exec/cpu/kernels/lookup.hpp"
#include "worker/exec/cpu/kernels/parallel.hpp"
#include "worker/ops/elements.hpp"

namespace shoal::worker::cpu {

Loop make_fill(const Node& node, TensorTypes, TensorTypes dst) {
  const double number = node.attributes.get<FillAttributes>().value;
  Loop loop;
  dispatch(AnyTypes(), dst[0].dtype, [&]<typename T>() {
    loop = [count = dst[0].shape.element_count(), value = convert<T>(number)](std::span<std::byte* const> operands) {
      T* const to = reinterpret_cast<T*>(operands.back());
      for_ranges(count, kBlock, count, [&](std::int64_t begin, std::int64_t end) { std::fill(to + begin, to + end, value); });
    };
  });
  return loop;
}

Loop make_from_shapes(const Node& node, TensorTypes src, TensorTypes dst) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 20;  // a plan keeps them
  std::vector<TensorView> views;
  for (const TensorType& tensor : src) views.push_back({tensor.dtype, tensor.shape, nullptr});
  TensorView result{dst[0].dtype, dst[0].shape, nullptr};
  if (result.size_bytes() > kMostBytes) return {};
  std::vector<std::byte> made(result.size_bytes());
  result.data = made.data();
  if (!node.op->oracle(node, views, {&result, 1}).ok()) return {};
  const std::size_t kept_bytes = made.size();
  Loop loop = [made = std::move(made)](std::span<std::byte* const> operands) {
    std::memcpy(operands.back(), made.data(), made.size());
  };
  loop.kept_bytes = kept_bytes;
  return loop;
}

}  // namespace shoal::worker::cpu

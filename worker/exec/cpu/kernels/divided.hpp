// Kernels of functions that oracle kernels run as a whole (worker/ops/divided.hpp): here they run on all threads.
#pragma once

#include <vector>

#include "worker/exec/cpu/kernels/kernels.hpp"
#include "worker/exec/cpu/kernels/parallel.hpp"
#include "worker/exec/cpu/kernels/vectorized.hpp"
#include "worker/ops/divided.hpp"

namespace shoal::worker::cpu {

/// The policy of kernels.
struct OnThreads {
  template <typename Body>
  void ranges(std::int64_t count, std::int64_t grain, std::int64_t work, const Body& body) const {
    for_ranges(count, grain, work, body);
  }
  template <typename Body>
  void vectorized(const Body& body) const {
    cpu::vectorized(body);
  }
};

inline std::vector<Shape> shapes_of(TensorTypes tensors) {
  std::vector<Shape> shapes;
  for (const TensorType& tensor : tensors) shapes.push_back(tensor.shape);
  return shapes;
}

/// The loop of a function. The first output has the type that decides.
template <template <typename> typename Function, typename List = Floats>
Loop make_divided(const Node& node, TensorTypes src, TensorTypes dst) {
  Loop loop;
  dispatch(List(), dst[0].dtype, [&]<typename T>() {
    loop = [function = Function<T>(node, shapes_of(src), shapes_of(dst))](std::span<std::byte* const> operands) {
      function.run(operands, OnThreads());
    };
  });
  return loop;
}

/// The memory that it needs.
template <template <typename> typename Function, typename List = Floats>
std::size_t divided_scratch_bytes(const Node& node, TensorTypes src, TensorTypes dst) {
  std::size_t bytes = 0;
  dispatch(List(), dst[0].dtype,
           [&]<typename T>() { bytes = Function<T>(node, shapes_of(src), shapes_of(dst)).scratch_bytes(); });
  return bytes;
}

}  // namespace shoal::worker::cpu

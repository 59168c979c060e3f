// The kernel of pictures in another size.
#include "worker/ops/resize.hpp"

#include "worker/exec/cpu/kernels/detection.hpp"
#include "worker/exec/cpu/kernels/divided.hpp"

namespace shoal::worker::cpu {

Loop resize_loop(const ResizePictures& pictures, DType dtype) {
  constexpr std::size_t kMostKept = std::size_t{4} << 20;  // networks keep less
  const std::int64_t rows = pictures.count * pictures.new_height, work = rows * pictures.new_width * pictures.inner;
  const auto run = [rows, work](const auto& function, std::span<std::byte* const> operands) {
    for_ranges(rows, 1, work, [&](std::int64_t begin, std::int64_t end) {
      function.compute(operands.front(), operands.back(), begin, end, OnThreads());
    });
  };
  // Long tables are made for each run: the memory for the pictures is there then.
  if (resize_table_bytes(pictures) > kMostKept) {
    return [=](std::span<std::byte* const> operands) {
      with_resize_rows(pictures, dtype, [&](const auto& function) { run(function, operands); });
    };
  }
  Loop loop;
  with_resize_rows(pictures, dtype, [&](const auto& function) {
    loop = [=](std::span<std::byte* const> operands) { run(function, operands); };
    loop.kept_bytes = function.kept_bytes();
  });
  return loop;
}

Loop make_resize(const Node& node, TensorTypes src, TensorTypes dst) {
  return resize_loop(ResizePictures(node.attributes.get<ResizeAttributes>(), src[0].shape, dst[0].shape), dst[0].dtype);
}

}  // namespace shoal::worker::cpu

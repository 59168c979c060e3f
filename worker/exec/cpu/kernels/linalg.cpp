// Kernels of linear algebra: the loops of the oracle kernels, with the lines divided among the threads.
#include "worker/exec/cpu/kernels/linalg.hpp"

#include <cstring>

#include "worker/exec/cpu/kernels/parallel.hpp"
#include "worker/ops/linalg_functions.hpp"
#include "worker/ops/matrix_product.hpp"

namespace shoal::worker::cpu {
namespace {

template <bool kSolves>
Loop make_triangular(const Node& node, TensorTypes src, const TensorType& dst) {
  const auto& attributes = node.attributes.get<TriangularAttributes>();
  const TriangularExtents extents(attributes, dst.shape);
  const std::int64_t lines = extents.matrices * extents.lines;
  const std::size_t bytes = static_cast<std::size_t>(dst.shape.element_count()) * dtype_size_bytes(dst.dtype);
  Loop loop;
  dispatch(Types<float, double>(), src[0].dtype, [&]<typename T>() {
    loop = [=](std::span<std::byte* const> operands) {
      std::memcpy(operands[2], operands[1], bytes);
      const T* const a = reinterpret_cast<const T*>(operands[0]);
      T* const b = reinterpret_cast<T*>(operands[2]);
      for_ranges(lines, 1, lines * extents.size * extents.size, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const auto triangle = triangle_of(attributes, extents, a, i);
          const auto line = line_of(attributes, extents, b, i);
          kSolves ? triangular_solve(triangle, attributes.scale, line) : triangular_product(triangle, attributes.scale, line);
        }
      });
    };
  });
  return loop;
}

Loop make_lines(const Node& node, bool to_lines, const TensorType& src, const TensorType& dst) {
  const LineExtents extents(to_lines ? src.shape : dst.shape, to_lines ? dst.shape : src.shape);
  Loop loop;
  with_word(dst.dtype, [&]<typename Word>() {
    loop = [extents, to_lines, attributes = node.attributes.get<TriangleAttributes>()](std::span<std::byte* const> operands) {
      const Word* const from = reinterpret_cast<const Word*>(operands[0]);
      Word* const to = reinterpret_cast<Word*>(operands[1]);
      for_ranges(extents.count, 1, extents.count * extents.size * extents.size, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) copy_line(attributes, extents, to_lines, from, to, i);
      });
    };
  });
  return loop;
}

}  // namespace

Loop make_khatri_rao(const Node&, TensorTypes src, TensorTypes dst) {
  constexpr std::size_t kMostMatrices = 16;  // their addresses lie on the stack
  if (src.size() > kMostMatrices) return {};
  std::vector<std::int64_t> heights;
  for (const TensorType& matrix : src) heights.push_back(matrix.shape[0]);
  const std::int64_t rows = dst[0].shape[0], columns = dst[0].shape[1];
  Loop loop;
  dispatch(Floats(), dst[0].dtype, [&]<typename T>() {
    loop = [=](std::span<std::byte* const> operands) {
      KhatriRaoFactor<T> factors[kMostMatrices];
      for (std::size_t i = 0; i < heights.size(); ++i) factors[i] = {reinterpret_cast<const T*>(operands[i]), heights[i]};
      T* const to = reinterpret_cast<T*>(operands.back());
      for_ranges(rows, 1, rows * columns, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row)
          khatri_rao_row<T>(std::span(factors, heights.size()), columns, row, to + row * columns);
      });
    };
  });
  return loop;
}

Loop make_triangular_product(const Node& node, TensorTypes src, TensorTypes dst) {
  return make_triangular<false>(node, src, dst[0]);
}
Loop make_triangular_solve(const Node& node, TensorTypes src, TensorTypes dst) {
  return make_triangular<true>(node, src, dst[0]);
}
Loop make_extract_triangle(const Node& node, TensorTypes src, TensorTypes dst) { return make_lines(node, true, src[0], dst[0]); }
Loop make_make_triangle(const Node& node, TensorTypes src, TensorTypes dst) { return make_lines(node, false, src[0], dst[0]); }

}  // namespace shoal::worker::cpu

// Kernels of sparse tensors: the loops of the oracle kernels, on all threads. Each sum is computed by one thread, in the order of
// the stored elements.
#include "worker/exec/cpu/kernels/sparse.hpp"

#include "worker/exec/cpu/kernels/parallel.hpp"
#include "worker/exec/cpu/kernels/vectorized.hpp"
#include "worker/ops/indexing_functions.hpp"
#include "worker/ops/sparse_functions.hpp"

namespace shoal::worker::cpu {
namespace {

using Operands = std::span<std::byte* const>;

constexpr std::int64_t kLineElements = 16;  // of a result that is cut by columns: threads do not write the same cache line

/// Whether elements are of the type that sums have. Halves are not: a sum at a random place needs memory of its own, and the
/// oracle kernel, which takes it, runs them.
template <typename T>
constexpr bool kSumsInPlace = std::is_same_v<T, Compute<T>>;

const std::int64_t* numbers(const std::byte* at) { return reinterpret_cast<const std::int64_t*>(at); }

/// The csr matrix in the operands from number `first` on, whose values are `stored`.
template <typename T>
CsrMatrix<T> csr_at(Operands operands, std::size_t first, std::int64_t rows, std::int64_t columns, std::int64_t stored) {
  return {reinterpret_cast<const T*>(operands[first]),
          numbers(operands[first + 1]),
          numbers(operands[first + 2]),
          rows,
          columns,
          stored};
}

/// A loop over `count` rows of `bytes` bytes of the last operand: find(operands, first, last, run) calls run(row, place) for
/// each.
template <typename Find>
Loop rows_loop(std::int64_t count, std::size_t bytes, const Find& find) {
  return [=](Operands operands) {
    for_ranges(count, 1, count * static_cast<std::int64_t>(bytes), [&](std::int64_t begin, std::int64_t end) {
      find(operands, begin, end, [&](std::int64_t row, std::int64_t place) {
        copy_stored_row(operands[0], place, bytes, operands.back() + static_cast<std::size_t>(row) * bytes);
      });
    });
  };
}

}  // namespace

Loop make_csr_to_dense(const Node& node, TensorTypes src, TensorTypes dst) {
  const std::int64_t rows = dst[0].shape[0], columns = node.attributes.get<CsrAttributes>().columns, stored = src[0].shape[0];
  Loop loop;
  with_word(dst[0].dtype, [&]<typename Word>() {
    loop = [=](Operands operands) {
      const CsrMatrix<Word> csr = csr_at<Word>(operands, 0, rows, columns, stored);
      Word* const to = reinterpret_cast<Word*>(operands[3]);
      for_ranges(rows, 1, rows * columns, [&](std::int64_t begin, std::int64_t end) { expand_csr(csr, begin, end, to); });
    };
  });
  return loop;
}

Loop make_rows_to_dense(const Node&, TensorTypes src, TensorTypes dst) {
  const std::int64_t count = dst[0].shape[0];
  const std::size_t bytes = static_cast<std::size_t>(dst[0].shape.element_count() / count) * dtype_size_bytes(dst[0].dtype);
  return rows_loop(count, bytes,
                   [count, stored = src[1].shape[0]](Operands operands, std::int64_t begin, std::int64_t end, const auto& run) {
                     const StoredRows rows{numbers(operands[1]), stored, count};
                     for (std::int64_t row = begin; row < end; ++row) run(row, rows.find(row));
                   });
}

Loop make_sparse_dot(const Node& node, TensorTypes src, TensorTypes dst) {
  const auto& product = node.attributes.get<SparseDotAttributes>();
  const std::int64_t rows = src[1].shape[0] - 1, columns = product.columns, stored = src[0].shape[0];
  const std::int64_t width = dst[0].shape.element_count() / dst[0].shape[0];
  const std::int64_t depth = product.transpose ? rows : columns, rows_of_b = src.size() == 5 ? src[4].shape[0] : depth;
  const bool has_rows = src.size() == 5;
  Loop loop;
  dispatch(Floats(), dst[0].dtype, [&]<typename T>() {
    if (product.transpose && !kSumsInPlace<T>) return;
    loop = [=, transpose = product.transpose](Operands operands) {
      const CsrMatrix<T> csr = csr_at<T>(operands, 0, rows, columns, stored);
      const StoredRows places{has_rows ? numbers(operands[4]) : nullptr, rows_of_b, depth};
      const T* const b = reinterpret_cast<const T*>(operands[3]);
      T* const to = reinterpret_cast<T*>(operands.back());
      const std::int64_t work = stored * width + rows;
      if constexpr (kSumsInPlace<T>) {
        if (transpose) {
          return for_ranges(width, kLineElements, work, [&](std::int64_t begin, std::int64_t end) {
            vectorized([=] { multiply_csr_transposed(csr, b, places, width, begin, end, to); });
          });
        }
      }
      for_ranges(rows, 1, work, [&](std::int64_t begin, std::int64_t end) {
        vectorized([=] { multiply_csr_rows(csr, b, places, width, begin, end, to); });
      });
    };
  });
  return loop;
}

Loop make_dot_sparse(const Node& node, TensorTypes src, TensorTypes dst) {
  const auto& product = node.attributes.get<SparseDotAttributes>();
  const std::int64_t rows = src[2].shape[0] - 1, columns = product.columns, stored = src[1].shape[0];
  const std::int64_t lines = dst[0].shape.element_count() / (product.transpose ? rows : columns);
  Loop loop;
  dispatch(Types<float, double>(), dst[0].dtype, [&]<typename T>() {
    loop = [=, transpose = product.transpose](Operands operands) {
      const CsrMatrix<T> csr = csr_at<T>(operands, 1, rows, columns, stored);
      const T* const a = reinterpret_cast<const T*>(operands[0]);
      T* const to = reinterpret_cast<T*>(operands[4]);
      for_ranges(lines, 1, lines * (stored + rows + columns),
                 [&](std::int64_t begin, std::int64_t end) { multiply_by_csr(a, csr, transpose, begin, end, to); });
    };
  });
  return loop;
}

Loop make_take_rows(const Node& node, TensorTypes src, TensorTypes dst) {
  const auto& take = node.attributes.get<TakeRowsAttributes>();
  const ReadPlaces read = places_reader(src[2].dtype, outside_of(take.mode));
  if (take.mode == IndexMode::kRaise || read == nullptr) return {};
  const std::int64_t count = src[2].shape.element_count();
  const std::size_t bytes = static_cast<std::size_t>(dst[0].shape.element_count() / count) * dtype_size_bytes(dst[0].dtype);
  return rows_loop(count, bytes,
                   [read, all = take.count, stored = src[1].shape[0]](Operands operands, std::int64_t begin, std::int64_t end,
                                                                      const auto& run) {
                     const StoredRows rows{numbers(operands[1]), stored, all};
                     for (std::int64_t i = begin; i < end; ++i) {
                       std::int64_t row = 0;
                       read(operands[2], i, 1, all, &row);
                       run(i, rows.find(row));
                     }
                   });
}

}  // namespace shoal::worker::cpu

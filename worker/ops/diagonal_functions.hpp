// Where the elements of diagonals lie. The oracle kernels and the kernels of devices share it.
#pragma once

#include <algorithm>
#include <cstring>

#include "worker/ops/diagonal.hpp"
#include "worker/ops/elements.hpp"

namespace shoal::worker {

/// Of the rows and of the columns, those before the first element of a diagonal.
struct DiagonalStart {
  std::int64_t row, column;
  explicit DiagonalStart(std::int64_t offset)
      : row(std::max<std::int64_t>(-offset, 0)), column(std::max<std::int64_t>(offset, 0)) {}
};

/// Where the elements of the diagonals of matrices lie in them.
struct DiagonalPlaces {
  std::int64_t first = 0;
  Strides strides{};  ///< along the axes of the result

  DiagonalPlaces(const DiagonalAttributes& diagonal, const Shape& shape) {
    const DiagonalStart start(diagonal.offset);
    const auto rows = static_cast<std::size_t>(positive_axis(diagonal.rows, shape)),
               columns = static_cast<std::size_t>(positive_axis(diagonal.columns, shape));
    const Strides own = row_major(shape);
    std::size_t last = 0;
    for (std::size_t axis = 0; axis < static_cast<std::size_t>(shape.rank()); ++axis) {
      if (axis != rows && axis != columns) strides[last++] = own[axis];
    }
    strides[last] = own[rows] + own[columns];
    first = start.row * own[rows] + start.column * own[columns];
  }
};

/// The matrix of zeros of which a line is a diagonal.
template <typename Word>
void make_diagonal(std::int64_t offset, const Word* line, std::int64_t length, Word* matrix) {
  const DiagonalStart start(offset);
  const std::int64_t size = length + start.row + start.column;
  std::memset(matrix, 0, static_cast<std::size_t>(size * size) * sizeof(Word));
  for (std::int64_t i = 0; i < length; ++i) matrix[(start.row + i) * size + start.column + i] = line[i];
}

}  // namespace shoal::worker

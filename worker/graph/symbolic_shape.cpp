#include "worker/graph/symbolic_shape.hpp"

#include <algorithm>

namespace shoal::worker {

SymbolicShape::SymbolicShape(const Shape& shape) : rank_(shape.rank()) {
  std::transform(shape.begin(), shape.end(), dims_.begin(), [](std::int64_t size) { return Dim(size); });
}

SymbolicShape::SymbolicShape(std::span<const Dim> dims) : rank_(static_cast<int>(dims.size())) {
  SHOAL_CHECK(dims.size() <= static_cast<std::size_t>(kMaxRank));
  std::ranges::copy(dims, dims_.begin());
}

SymbolicShape SymbolicShape::any() {
  SymbolicShape shape;
  shape.rank_ = -1;
  return shape;
}

bool SymbolicShape::is_numeric() const {
  return is_known() && std::all_of(begin(), end(), [](Dim dim) { return dim.is_number(); });
}

Dim SymbolicShape::element_count() const {
  Dim count = 1;
  for (const Dim dim : *this) count *= dim;
  return count;
}

Shape SymbolicShape::bound() const {
  if (!is_known()) return Shape::any();
  std::array<std::int64_t, kMaxRank> sizes{};
  std::transform(begin(), end(), sizes.begin(), [](Dim dim) { return dim.is_number() ? dim.number() : dim.highest(); });
  return Shape(std::span(sizes.data(), static_cast<std::size_t>(rank_)));
}

Shape SymbolicShape::least() const {
  if (!is_known()) return Shape::any();
  std::array<std::int64_t, kMaxRank> sizes{};
  std::transform(begin(), end(), sizes.begin(), [](Dim dim) { return std::max<std::int64_t>(dim.lowest(), 0); });
  return Shape(std::span(sizes.data(), static_cast<std::size_t>(rank_)));
}

std::string SymbolicShape::to_string() const {
  if (rank_ <= 0 || is_numeric()) return bound().to_string();
  std::string text;
  for (const Dim dim : *this) {
    if (!text.empty()) text += 'x';
    text += dim.to_word();
  }
  return text;
}

bool operator==(const SymbolicShape& a, const SymbolicShape& b) {
  return a.rank_ == b.rank_ && std::equal(a.begin(), a.end(), b.begin());
}

bool known_unequal(const SymbolicShape& a, const SymbolicShape& b) {
  if (a.rank() != b.rank()) return true;
  for (int axis = 0; axis < a.rank(); ++axis) {
    if (known_unequal(a[axis], b[axis])) return true;
  }
  return false;
}

bool unify(const SymbolicShape& a, const SymbolicShape& b) {
  if (a.rank() != b.rank()) return false;
  for (int axis = 0; axis < a.rank(); ++axis) {
    if (!unify(a[axis], b[axis])) return false;
  }
  return true;
}

}  // namespace shoal::worker

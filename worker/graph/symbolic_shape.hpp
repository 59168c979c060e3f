// SymbolicShape: the shape of a value as rules compute it, with a Dim for each axis.
#pragma once

#include <array>
#include <initializer_list>
#include <span>
#include <string>

#include "shoal/tensor.hpp"
#include "worker/graph/dim.hpp"

namespace shoal::worker {

/// Dimensions, outermost first; or any(), of which not even the rank is known. As Shape, but sizes may be expressions.
///   Lifetime  that of the DimTable of its expressions
///   Threads   a value: thread-compatible
class SymbolicShape {
 public:
  SymbolicShape() = default;          ///< a scalar
  SymbolicShape(const Shape& shape);  // NOLINT(google-explicit-constructor): a shape of numbers; none of them is -1
  SymbolicShape(std::initializer_list<Dim> dims) : SymbolicShape(std::span(dims.begin(), dims.size())) {}
  explicit SymbolicShape(std::span<const Dim> dims);  ///< at most kMaxRank
  static SymbolicShape any();

  bool is_known() const { return rank_ >= 0; }
  bool is_numeric() const;            ///< known, and every size is a number
  int rank() const { return rank_; }  ///< -1 for any()
  Dim operator[](int axis) const { return dims_[static_cast<std::size_t>(axis)]; }
  Dim& operator[](int axis) { return dims_[static_cast<std::size_t>(axis)]; }
  const Dim* begin() const { return dims_.data(); }
  const Dim* end() const { return dims_.data() + std::max(rank_, 0); }
  std::span<const Dim> dims() const& { return {begin(), end()}; }

  /// The product of the dimensions, 1 for a scalar.
  Dim element_count() const;
  /// Each dimension at its upper bound; Shape::any() for any().
  Shape bound() const;
  /// Each dimension at its lower bound; one that may be negative counts as 0.
  Shape least() const;
  /// "1x3x224xdata[2]", as Shape::to_string().
  std::string to_string() const;
  /// Are they known to be equal? The opposite is known_unequal().
  friend bool operator==(const SymbolicShape& a, const SymbolicShape& b);
  friend bool operator!=(const SymbolicShape& a, const SymbolicShape& b) = delete;

 private:
  std::array<Dim, kMaxRank> dims_{};
  int rank_ = 0;
};

/// Other ranks, or a dimension in which they are known to differ.
bool known_unequal(const SymbolicShape& a, const SymbolicShape& b);
/// For shapes that must be equal: unify() of their dimensions; false for other ranks.
bool unify(const SymbolicShape& a, const SymbolicShape& b);

}  // namespace shoal::worker

// Dim: the size of one dimension. Either a number, or an expression over sizes that are not known yet.
//
//   DimTable table;
//   const Dim h = table.symbol("data[2]", {1, 640});
//   const Dim pooled = floor_div(h + 1, 2);          // floor((data[2] + 1) / 2), bound [1, 320]
//   floor_div(pooled * 2 * 64, pooled) == Dim(128)   // true: equal expressions are the same object
//
// The same shape rule serves both cases. With numbers alone nothing is allocated, and no table is needed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shm/base/check.hpp"
#include "shoal/tensor.hpp"

namespace shoal::worker {

struct DimExpression;

/// A number of at most kMost, or an expression. Equal expressions have one normal form, which is stored once in their table, so
/// equality compares pointers. Arithmetic never overflows: numbers end at -kMost and kMost.
///   Lifetime  an expression lives as long as its DimTable; all operands of an operation are of one table
///   Threads   a number is a value; expressions are thread-compatible for reading, as their table is for arithmetic
class Dim {
 public:
  static constexpr std::int64_t kMost = std::int64_t{1} << 61;

  constexpr Dim() = default;          ///< 0
  constexpr Dim(std::int64_t number)  // NOLINT(google-explicit-constructor): a number is a size
      : word_(std::clamp(number, -kMost, kMost) * 2 + 1) {}

  constexpr bool is_number() const { return (word_ & 1) != 0; }
  constexpr std::int64_t number() const {  ///< of a number
    SHOAL_CHECK(is_number());
    return (word_ - 1) / 2;
  }
  /// What values it may have, both ends included. The ends are at most kMost away from 0: that stands for no limit.
  DimRange bound() const { return is_number() ? DimRange{number(), number()} : bound_of_expression(); }
  std::int64_t lowest() const { return bound().lowest; }
  std::int64_t highest() const { return bound().highest; }
  /// "224", "floor((data[2] + 1) / 2)". A long text is cut off: "...".
  std::string to_string() const;
  /// The same, in parentheses if it is a sum or product.
  std::string to_word() const;

  /// Are they the same for all values of the symbols, as far as the normal form can tell? Two expressions that differ here may
  /// still be equal: rules ask known_unequal(), which is not the opposite.
  friend constexpr bool operator==(Dim a, Dim b) { return a.word_ == b.word_; }
  friend bool operator!=(Dim a, Dim b) = delete;

  friend Dim operator+(Dim a, Dim b) { return a.is_number() && b.is_number() ? Dim(a.number() + b.number()) : sum(a, b); }
  friend Dim operator*(Dim a, Dim b) {
    return a.is_number() && b.is_number() ? Dim(product(a.number(), b.number())) : times(a, b);
  }
  friend Dim operator-(Dim a, Dim b) { return a + b * Dim(-1); }
  Dim& operator+=(Dim other) { return *this = *this + other; }
  Dim& operator*=(Dim other) { return *this = *this * other; }

 private:
  friend struct DimExpression;
  explicit Dim(const DimExpression& expression) : word_(reinterpret_cast<std::intptr_t>(&expression)) {}
  DimRange bound_of_expression() const;
  static Dim sum(Dim a, Dim b);
  static Dim times(Dim a, Dim b);
  static std::int64_t product(std::int64_t a, std::int64_t b) {
    std::int64_t result = 0;
    return __builtin_mul_overflow(a, b, &result) ? ((a < 0) == (b < 0) ? kMost : -kMost) : result;
  }

  std::string text(bool is_word) const;

  std::int64_t word_ = 1;  ///< odd: a number, doubled, plus one; even: the address of the expression
};
static_assert(sizeof(Dim) == 8);

using Sizes = std::vector<Dim>;

// Numbers, which is all that a compilation has, are computed in place.
namespace dim_detail {
Dim floor_div(Dim a, Dim b);
bool known_unequal(Dim a, Dim b);
bool known_less(Dim a, Dim b);
}  // namespace dim_detail

/// a / b, rounded down or up. b is positive: a number that is not is a bug of the caller.
inline Dim floor_div(Dim a, Dim b) {
  if (!a.is_number() || !b.is_number()) return dim_detail::floor_div(a, b);
  SHOAL_CHECK(b.number() > 0);
  return a.number() / b.number() - (a.number() % b.number() < 0 ? 1 : 0);
}
Dim ceil_div(Dim a, Dim b);
Dim min(Dim a, Dim b);
Dim max(Dim a, Dim b);
/// A new symbol that is one of the two, of which one at least is an expression.
Dim either(Dim a, Dim b);
/// The q with a == q * b for all values of the symbols; none if the normal form shows none. b is not 0.
std::optional<Dim> exact_quotient(Dim a, Dim b);

// Questions of rules. "Known" means for all values of the symbols, so both an answer and its opposite may be unknown. What a rule
// does not know to be wrong it accepts: each compilation for numbers, and each run behind data, checks again.

inline bool known_unequal(Dim a, Dim b) { return a.is_number() && b.is_number() ? !(a == b) : dim_detail::known_unequal(a, b); }
inline bool known_less(Dim a, Dim b) {  ///< a < b
  return a.is_number() && b.is_number() ? a.number() < b.number() : dim_detail::known_less(a, b);
}
bool known_indivisible(Dim a, Dim b);  ///< a % b != 0; b is positive
/// For sizes that must be equal: false if they are known to differ. Else an open size among them (DimTable) is found if it can
/// be.
bool unify(Dim a, Dim b);

/// Owns expressions. Their normal form is a sum of products of *atoms*; an atom is a symbol, or a quotient, minimum or maximum
/// that could not be simplified. So equality does not depend on the order of the operations.
///   Threads  thread-bound while expressions are made; thread-compatible afterwards
class DimTable {
 public:
  DimTable();
  ~DimTable();
  DimTable(const DimTable&) = delete;
  DimTable& operator=(const DimTable&) = delete;

  /// A size that is not known yet, unequal to all others; a number if `bound` leaves only one. `name` is for messages.
  Dim symbol(std::string name, DimRange bound);

  // Open sizes: a file leaves them to the readers of a value. A pass over a graph asks for them, always in the same order, which
  // tells them apart. The pass that finds them has symbols in their place, and unify() solves the equations that rules demand.

  /// Begins a pass over the graph.
  void start_pass(bool finds_open_sizes);
  /// The next open size of this pass; none if it is not known and the pass does not find any.
  std::optional<Dim> open_size(std::string name);
  /// Has this pass found one?
  bool found_open_size() const;

 private:
  friend struct DimExpression;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shoal::worker

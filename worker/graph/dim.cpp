#include "worker/graph/dim.hpp"

#include <map>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "shm/base/ranges.hpp"

namespace shoal::worker {
namespace {

constexpr std::size_t kMostTerms = 256, kMostFactors = 64;  // of a sum, and of each term; what is larger becomes a symbol

using Atom = std::int32_t;          ///< the number of an expression in its table
using Product = std::vector<Atom>;  ///< ascending; an atom may occur several times; empty: 1

/// The highest degree first, then the atoms in their order: in such an order polynomials can be divided.
struct LeadingFirst {
  bool operator()(const Product& a, const Product& b) const { return a.size() != b.size() ? a.size() > b.size() : a < b; }
};
using Polynomial = std::map<Product, std::int64_t, LeadingFirst>;  ///< factors; none is 0

DimRange sum_of(DimRange a, DimRange b) {
  return {(Dim(a.lowest) + Dim(b.lowest)).number(), (Dim(a.highest) + Dim(b.highest)).number()};
}

DimRange product_of(DimRange a, DimRange b) {
  const auto [lowest, highest] =
      std::minmax({(Dim(a.lowest) * Dim(b.lowest)).number(), (Dim(a.lowest) * Dim(b.highest)).number(),
                   (Dim(a.highest) * Dim(b.lowest)).number(), (Dim(a.highest) * Dim(b.highest)).number()});
  return {lowest, highest};
}

std::int64_t floor_of(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

DimRange quotient_of(DimRange a, DimRange b) {
  const std::int64_t least = std::max<std::int64_t>(b.lowest, 1), most = std::max<std::int64_t>(b.highest, 1);
  return {floor_of(a.lowest, a.lowest < 0 ? least : most), floor_of(a.highest, a.highest < 0 ? most : least)};
}

/// False: a factor does not fit.
bool add_term(Polynomial& to, const Product& product, std::int64_t factor) {
  const auto sum = checked_add(to[product], factor);
  if (!sum || *sum > Dim::kMost || *sum < -Dim::kMost) return false;
  if (*sum == 0)
    to.erase(product);
  else
    to[product] = *sum;
  return true;
}

Product joined(const Product& a, const Product& b) {
  Product both;
  std::ranges::merge(a, b, std::back_inserter(both));
  return both;
}

/// a / b; none if b has an atom that a lacks.
std::optional<Product> without(const Product& a, const Product& b) {
  if (!std::ranges::includes(a, b)) return std::nullopt;
  Product rest;
  std::ranges::set_difference(a, b, std::back_inserter(rest));
  return rest;
}

/// a + b * factor * product.
bool add_multiple(Polynomial& a, const Polynomial& b, std::int64_t factor, const Product& product) {
  for (const auto& [atoms, count] : b) {
    const auto scaled = checked_multiply(count, factor);
    if (!scaled || atoms.size() + product.size() > kMostFactors || !add_term(a, joined(atoms, product), *scaled)) return false;
  }
  return a.size() <= kMostTerms;
}

}  // namespace

struct DimExpression {
  enum class Kind : std::uint8_t { kSymbol, kQuotient, kLesser, kGreater, kSum };

  DimTable::State& table;
  Kind kind;
  Atom number;  ///< in the table
  DimRange bound;
  std::string name;       ///< of a symbol
  Dim left, right;        ///< of a quotient, minimum or maximum
  Polynomial terms = {};  ///< of a sum
  bool is_open = false;   ///< an open size, or made of one

  static const DimExpression* of(Dim dim) { return reinterpret_cast<const DimExpression*>(dim.word_); }
  static Dim dim_of(const DimExpression* expression) { return Dim(*expression); }
  static std::int64_t word_of(Dim dim) { return dim.word_; }
  static bool is_open_size(Dim dim) { return !dim.is_number() && of(dim)->is_open; }
  /// One of the two is an expression.
  static DimTable::State& table_of(Dim a, Dim b) { return (a.is_number() ? of(b) : of(a))->table; }
  /// Appends until the text has kMostText bytes: expressions share parts, so a whole text may be exponentially long.
  void write(std::string& text) const;
  static void write(Dim dim, bool is_word, std::string& text);
  static constexpr std::size_t kMostText = 500;
};

struct DimTable::State {
  using Kind = DimExpression::Kind;

  std::vector<std::unique_ptr<const DimExpression>> expressions;  ///< by number
  std::map<std::tuple<Kind, std::int64_t, std::int64_t>, const DimExpression*> atoms;
  std::map<Polynomial, const DimExpression*> sums;

  struct OpenSize {
    Dim symbol;
    std::optional<Dim> size;
  };
  std::vector<OpenSize> open_sizes;  ///< in the order in which passes ask for them
  std::map<Atom, std::size_t> open_symbols;
  std::size_t asked = 0;  ///< how many this pass has asked for
  bool finds = false, has_found = false;

  const DimExpression& expression(Atom atom) const { return *expressions[static_cast<std::size_t>(atom)]; }
  bool has_open_size(const Polynomial& polynomial) const {
    for (const auto& [atoms, factor] : polynomial) {
      if (std::ranges::any_of(atoms, [this](Atom atom) { return expression(atom).is_open; })) return true;
    }
    return false;
  }

  std::optional<Dim> open_size(std::string name) {
    const std::size_t index = asked++;
    if (finds && index == open_sizes.size()) {
      auto* const symbol = const_cast<DimExpression*>(add(Kind::kSymbol, {0, Dim::kMost}, std::move(name)));
      symbol->is_open = true;
      open_symbols.emplace(symbol->number, index);
      open_sizes.push_back({DimExpression::dim_of(symbol), std::nullopt});
    }
    if (index >= open_sizes.size()) return std::nullopt;
    const OpenSize& open = open_sizes[index];
    return open.size || !finds ? open.size : std::optional(open.symbol);
  }
  /// From a == b: an open size whose multiple stands there, beside sizes that are not open.
  void solve(Dim a, Dim b) {
    if (!finds || open_symbols.empty()) return;
    const Polynomial terms = polynomial_of(a - b);
    for (const auto& [atoms, factor] : terms) {
      const auto symbol = atoms.size() == 1 ? open_symbols.find(atoms[0]) : open_symbols.end();
      if (symbol == open_symbols.end() || open_sizes[symbol->second].size) continue;
      Polynomial others = terms;
      others.erase(atoms);
      const auto size = has_open_size(others) ? std::nullopt : exact_quotient(dim_of(others), -factor);
      if (!size || size->highest() < 0) continue;
      open_sizes[symbol->second].size = size;
      has_found = true;
      return;
    }
  }

  const DimExpression* add(Kind kind, DimRange bound, std::string name = {}, Dim left = {}, Dim right = {}) {
    const auto number = static_cast<Atom>(expressions.size());
    const bool is_open = DimExpression::is_open_size(left) || DimExpression::is_open_size(right);
    expressions.push_back(std::unique_ptr<const DimExpression>(
        new DimExpression{*this, kind, number, bound, std::move(name), left, right, {}, is_open}));
    return expressions.back().get();
  }
  /// What cannot be expressed.
  Dim unknown(DimRange bound) {
    if (bound.lowest == bound.highest) return bound.lowest;
    return DimExpression::dim_of(add(Kind::kSymbol, bound, "?" + std::to_string(expressions.size())));
  }
  Dim atom(Kind kind, Dim left, Dim right, DimRange bound) {
    if (bound.lowest == bound.highest) return bound.lowest;
    const auto [known, is_new] = atoms.try_emplace({kind, DimExpression::word_of(left), DimExpression::word_of(right)}, nullptr);
    if (is_new) known->second = add(kind, bound, {}, left, right);
    return DimExpression::dim_of(known->second);
  }

  Polynomial polynomial_of(Dim dim) const {
    if (dim == Dim(0)) return {};
    if (dim.is_number()) return {{Product(), dim.number()}};
    const DimExpression* const expression = DimExpression::of(dim);
    return expression->kind == Kind::kSum ? expression->terms : Polynomial{{Product{expression->number}, 1}};
  }
  DimRange bound_of(const Polynomial& polynomial) const {
    DimRange bound{0, 0};
    for (const auto& [atoms, factor] : polynomial) {
      DimRange term{factor, factor};
      for (const Atom atom : atoms) term = product_of(term, expression(atom).bound);
      bound = sum_of(bound, term);
    }
    return bound;
  }
  Dim dim_of(const Polynomial& polynomial) {
    if (polynomial.empty()) return 0;
    const auto& [atoms, factor] = *polynomial.begin();
    if (atoms.empty()) return factor;
    if (polynomial.size() == 1 && atoms.size() == 1 && factor == 1) return DimExpression::dim_of(&expression(atoms[0]));
    const auto known = sums.find(polynomial);
    if (known != sums.end()) return DimExpression::dim_of(known->second);
    const DimRange bound = bound_of(polynomial);
    if (bound.lowest == bound.highest && bound.highest < Dim::kMost && bound.lowest > -Dim::kMost) return bound.lowest;
    auto* const sum = const_cast<DimExpression*>(add(Kind::kSum, bound));
    sum->terms = polynomial;
    sum->is_open = has_open_size(polynomial);
    sums.emplace(polynomial, sum);
    return DimExpression::dim_of(sum);
  }

  Dim sum(Dim a, Dim b) {
    Polynomial terms = polynomial_of(a);
    return add_multiple(terms, polynomial_of(b), 1, {}) ? dim_of(terms) : unknown(sum_of(a.bound(), b.bound()));
  }
  Dim product(Dim a, Dim b) {
    const Polynomial left = polynomial_of(a);
    Polynomial terms;
    for (const auto& [atoms, factor] : polynomial_of(b)) {
      if (!add_multiple(terms, left, factor, atoms)) return unknown(product_of(a.bound(), b.bound()));
    }
    return dim_of(terms);
  }

  /// The division of polynomials: takes the leading term away until nothing is left.
  std::optional<Dim> exact_quotient(Dim a, Dim b) {
    Polynomial rest = polynomial_of(a), quotient;
    const Polynomial divisor = polynomial_of(b);
    while (!rest.empty()) {
      const auto& [atoms, factor] = *rest.begin();
      const auto& [by_atoms, by_factor] = *divisor.begin();
      const auto product = without(atoms, by_atoms);
      if (!product || factor % by_factor != 0) return std::nullopt;
      const std::int64_t times = factor / by_factor;
      if (!add_term(quotient, *product, times) || !add_multiple(rest, divisor, -times, *product)) return std::nullopt;
    }
    return dim_of(quotient);
  }

  /// floor((floor(x / c) + r) / d) = floor((x + c r) / (c d)).
  void flatten(Polynomial& whole, std::int64_t& divisor) const {
    for (auto term = whole.begin(); term != whole.end(); ++term) {
      const auto& [atoms, factor] = *term;
      if (factor != 1 || atoms.size() != 1) continue;
      const DimExpression& inner = expression(atoms[0]);
      if (inner.kind != Kind::kQuotient || !inner.right.is_number()) continue;
      const std::int64_t by = inner.right.number();
      const auto both = checked_multiply(by, divisor);
      Polynomial rest = whole, flat = polynomial_of(inner.left);
      rest.erase(atoms);
      if (!both || *both > Dim::kMost || !add_multiple(flat, rest, by, {})) continue;
      whole = std::move(flat);
      divisor = *both;
      return flatten(whole, divisor);
    }
  }
  Dim quotient(Dim a, std::int64_t divisor) {
    const DimRange bound = quotient_of(a.bound(), {divisor, divisor});
    Polynomial whole = polynomial_of(a), outside;
    flatten(whole, divisor);
    Polynomial inside;  // factors from 0 to divisor - 1; the multiples of the divisor stand outside
    std::int64_t common = divisor;
    for (const auto& [atoms, factor] : whole) {
      const std::int64_t times = floor_of(factor, divisor), rest = factor - times * divisor;
      if (times != 0) outside[atoms] = times;
      if (rest != 0) inside[atoms] = rest;
      if (!atoms.empty()) common = std::gcd(common, rest);
    }
    // floor((g x + r) / (g d)) = floor((x + floor(r / g)) / d).
    Polynomial reduced;
    for (const auto& [atoms, factor] : inside) {
      if (factor / common != 0) reduced[atoms] = factor / common;
    }
    const Dim dividend = dim_of(reduced), by = divisor / common;
    const Dim rest = dividend.is_number() ? Dim(floor_of(dividend.number(), by.number()))
                     : by == Dim(1)       ? dividend
                                          : atom(Kind::kQuotient, dividend, by, quotient_of(dividend.bound(), by.bound()));
    return outside.empty() ? rest : narrowed(dim_of(outside) + rest, bound);
  }
  /// A value that is known to lie in `bound` is a number if that leaves only one.
  static Dim narrowed(Dim dim, DimRange bound) { return bound.lowest == bound.highest ? Dim(bound.lowest) : dim; }

  Dim quotient(Dim a, Dim b) {
    if (b.is_number()) return quotient(a, b.number());
    if (const auto exact = exact_quotient(a, b)) return *exact;
    return atom(Kind::kQuotient, a, b, quotient_of(a.bound(), b.bound()));
  }

  Dim extreme(Kind kind, Dim a, Dim b) {
    const DimRange difference = (a - b).bound();
    const bool is_lesser = kind == Kind::kLesser;
    if (difference.highest <= 0) return is_lesser ? a : b;
    if (difference.lowest >= 0) return is_lesser ? b : a;
    const auto rank = [](Dim dim) { return dim.is_number() ? -1 : DimExpression::of(dim)->number; };
    if (rank(a) > rank(b)) std::swap(a, b);
    const DimRange left = a.bound(), right = b.bound();
    return atom(kind, a, b,
                is_lesser ? DimRange{std::min(left.lowest, right.lowest), std::min(left.highest, right.highest)}
                          : DimRange{std::max(left.lowest, right.lowest), std::max(left.highest, right.highest)});
  }
};

void DimExpression::write(std::string& text) const {
  if (text.size() >= kMostText) return;
  const auto call = [&](std::string_view before, std::string_view between, bool are_words) {
    text += before;
    write(left, are_words, text);
    text += between;
    write(right, are_words, text);
    text += ")";
  };
  switch (kind) {
    case Kind::kSymbol:
      text += name;
      return;
    case Kind::kQuotient:
      return call("floor(", " / ", true);
    case Kind::kLesser:
      return call("min(", ", ", false);
    case Kind::kGreater:
      return call("max(", ", ", false);
    case Kind::kSum:
      break;
  }
  bool is_first = true;
  for (const auto& [atoms, factor] : terms) {
    const std::int64_t size = factor < 0 ? -factor : factor;
    if (factor < 0 || !is_first) text += is_first ? "-" : factor < 0 ? " - " : " + ";
    is_first = false;
    if (atoms.empty() || size != 1) text += std::to_string(size) + (atoms.empty() ? "" : " * ");
    for (std::size_t i = 0; i < atoms.size(); ++i) {
      if (i > 0) text += " * ";
      table.expression(atoms[i]).write(text);
    }
  }
}

void DimExpression::write(Dim dim, bool is_word, std::string& text) {
  if (dim.is_number()) {
    text += std::to_string(dim.number());
    return;
  }
  const bool has_parentheses = is_word && of(dim)->kind == Kind::kSum;
  if (has_parentheses) text += "(";
  of(dim)->write(text);
  if (has_parentheses) text += ")";
}

DimTable::DimTable() : state_(std::make_unique<State>()) {}
DimTable::~DimTable() = default;

Dim DimTable::symbol(std::string name, DimRange bound) {
  bound = {Dim(bound.lowest).number(), Dim(bound.highest).number()};
  if (bound.lowest == bound.highest) return bound.lowest;
  return DimExpression::dim_of(state_->add(DimExpression::Kind::kSymbol, bound, std::move(name)));
}

void DimTable::start_pass(bool finds_open_sizes) {
  state_->asked = 0;
  state_->finds = finds_open_sizes;
  state_->has_found = false;
}
std::optional<Dim> DimTable::open_size(std::string name) { return state_->open_size(std::move(name)); }
bool DimTable::found_open_size() const { return state_->has_found; }

DimRange Dim::bound_of_expression() const { return DimExpression::of(*this)->bound; }
std::string Dim::text(bool is_word) const {
  std::string text;
  DimExpression::write(*this, is_word, text);
  if (text.size() > DimExpression::kMostText) text.replace(DimExpression::kMostText, std::string::npos, "...");
  return text;
}
std::string Dim::to_string() const { return text(/*is_word=*/false); }
std::string Dim::to_word() const { return text(/*is_word=*/true); }
Dim Dim::sum(Dim a, Dim b) { return DimExpression::table_of(a, b).sum(a, b); }
Dim Dim::times(Dim a, Dim b) { return DimExpression::table_of(a, b).product(a, b); }

namespace dim_detail {

Dim floor_div(Dim a, Dim b) {
  SHOAL_CHECK(!b.is_number() || b.number() > 0);
  return DimExpression::table_of(a, b).quotient(a, b);
}
bool known_unequal(Dim a, Dim b) { return !(a - b).bound().contains(0); }
bool known_less(Dim a, Dim b) { return (a - b).highest() < 0; }

}  // namespace dim_detail

Dim ceil_div(Dim a, Dim b) { return floor_div(a - 1, b) + 1; }  // a + b might end at a limit

Dim min(Dim a, Dim b) {
  if (a.is_number() && b.is_number()) return std::min(a.number(), b.number());
  return DimExpression::table_of(a, b).extreme(DimExpression::Kind::kLesser, a, b);
}

Dim max(Dim a, Dim b) {
  if (a.is_number() && b.is_number()) return std::max(a.number(), b.number());
  return DimExpression::table_of(a, b).extreme(DimExpression::Kind::kGreater, a, b);
}

Dim either(Dim a, Dim b) {
  const DimRange left = a.bound(), right = b.bound();
  return DimExpression::table_of(a, b).unknown({std::min(left.lowest, right.lowest), std::max(left.highest, right.highest)});
}

std::optional<Dim> exact_quotient(Dim a, Dim b) {
  SHOAL_CHECK(!(b == Dim(0)));
  if (!a.is_number() || !b.is_number()) return DimExpression::table_of(a, b).exact_quotient(a, b);
  return a.number() % b.number() == 0 ? std::optional<Dim>(a.number() / b.number()) : std::nullopt;
}

bool unify(Dim a, Dim b) {
  if (known_unequal(a, b)) return false;
  if (!a.is_number() || !b.is_number()) DimExpression::table_of(a, b).solve(a, b);
  return true;
}

bool known_indivisible(Dim a, Dim b) { return (a - b * floor_div(a, b)).lowest() > 0; }

}  // namespace shoal::worker

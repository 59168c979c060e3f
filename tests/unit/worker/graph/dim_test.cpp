#include "worker/graph/dim.hpp"

#include <gtest/gtest.h>

#include <array>
#include <random>

#include "shm/base/format.hpp"
#include "tests/support/sanitizers.hpp"

namespace shoal::worker {
namespace {

/// Two symbols from 1 to 640.
struct TwoSizes {
  DimTable table;
  const Dim n = table.symbol("n", {1, 640}), h = table.symbol("h", {1, 640});
};

TEST(Dim, OfNumbersComputesLikeNumbers) {
  EXPECT_EQ((Dim(7) + 3 - 4) * 5, Dim(30));
  EXPECT_EQ(floor_div(-7, 2), Dim(-4));
  EXPECT_EQ(ceil_div(7, 2), Dim(4));
  EXPECT_EQ(min(3, 4), Dim(3));
  EXPECT_EQ(max(3, 4), Dim(4));
  EXPECT_TRUE(known_less(3, 4));
  EXPECT_FALSE(known_less(4, 4));
  EXPECT_TRUE(known_unequal(3, 4));
  EXPECT_TRUE(known_indivisible(7, 2));
  EXPECT_FALSE(known_indivisible(8, 2));
}

TEST(Dim, EndsAtItsLimitsInsteadOfOverflowing) {
  const Dim most = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(most.number(), Dim::kMost);
  EXPECT_EQ(most + most, most);
  EXPECT_EQ(most * most, most);
  EXPECT_EQ(most * -1 - most, Dim(std::numeric_limits<std::int64_t>::min()));
}

TEST(Dim, IsEqualWhateverTheOrderOfItsOperations) {
  const TwoSizes s;
  EXPECT_EQ(s.n * s.h, s.h * s.n);
  EXPECT_EQ((s.n + 1) * (s.n - 1) + 1, s.n * s.n);
  EXPECT_EQ(s.n + s.h - s.n, s.h);
  EXPECT_EQ(s.n * 64 * s.h - s.h * s.n * 64, Dim(0));
  EXPECT_FALSE(s.n == s.h);
}

TEST(Dim, DividesWhatIsAMultiple) {
  const TwoSizes s;
  EXPECT_EQ(floor_div(s.n * 64 * s.h, s.n), s.h * 64);
  EXPECT_EQ(floor_div(s.n * 64 * s.h, 64), s.n * s.h);
  const Dim pooled = floor_div(s.h, 2) + 1;
  EXPECT_EQ(floor_div(s.n * pooled * pooled * 10, pooled * pooled), s.n * 10);
  EXPECT_EQ(exact_quotient(s.n * 6, s.n), std::optional<Dim>(6));
  EXPECT_EQ(exact_quotient(s.n * 6 + 1, s.n), std::nullopt);
  EXPECT_EQ(exact_quotient(floor_div(s.n, 2), s.n), std::nullopt);
}

TEST(Dim, SimplifiesQuotients) {
  const TwoSizes s;
  EXPECT_EQ(floor_div(s.n * 2 + 1, 2), s.n);
  EXPECT_EQ(floor_div(floor_div(s.n + 1, 2) + 3, 2), floor_div(s.n + 7, 4)) << "a layer behind a layer";
  EXPECT_EQ(floor_div(s.n * 6 + 4, 9), floor_div(s.n * 2 + 1, 3));
  EXPECT_EQ(floor_div(s.n - 1, 1000), Dim(0)) << "its bound leaves nothing else";
}

TEST(Dim, SimplifiesTheLesserAndTheGreater) {
  const TwoSizes s;
  EXPECT_EQ(min(s.n, s.n + 1), s.n);
  EXPECT_EQ(max(s.n, 0), s.n);
  EXPECT_EQ(min(s.n, 1000), s.n);
  EXPECT_EQ(max(s.n, s.h), max(s.h, s.n));
  EXPECT_FALSE(min(s.n, s.h) == max(s.n, s.h));
}

TEST(Dim, HasABound) {
  const TwoSizes s;
  const auto bound = [](Dim dim) { return std::pair(dim.lowest(), dim.highest()); };
  EXPECT_EQ(bound(s.n * 3 - 1), std::pair(2l, 1919l));
  EXPECT_EQ(bound(s.n - s.h), std::pair(-639l, 639l));
  EXPECT_EQ(bound(floor_div(s.n + 1, 2)), std::pair(1l, 320l));
  EXPECT_EQ(bound(min(s.n, 100)), std::pair(1l, 100l));
  EXPECT_EQ(bound(either(s.n, 1000)), std::pair(1l, 1000l));
}

TEST(Dim, AnswersOnlyWhatHoldsForAllSizes) {
  const TwoSizes s;
  EXPECT_TRUE(known_less(s.n, s.n + 1));
  EXPECT_TRUE(known_less(s.n, 641));
  EXPECT_FALSE(known_less(s.n, s.h));
  EXPECT_TRUE(known_unequal(s.n, s.n + 1));
  EXPECT_FALSE(known_unequal(s.n, s.h));
  EXPECT_TRUE(known_indivisible(s.n * 2 + 1, 2));
  EXPECT_FALSE(known_indivisible(s.n, 2));
}

TEST(Dim, SaysWhatItIs) {
  const TwoSizes s;
  EXPECT_EQ((s.n * s.h * 64 - s.n * 2 + 1).to_string(), "64 * n * h - 2 * n + 1");
  EXPECT_EQ(floor_div(s.n + 1, 2).to_string(), "floor((n + 1) / 2)");
  EXPECT_EQ(min(s.n, s.h).to_string(), "min(n, h)");
}

TEST(DimTable, MakesANumberOfABoundWithOneSize) {
  DimTable table;
  EXPECT_EQ(table.symbol("n", {4, 4}), Dim(4));
  EXPECT_FALSE(table.symbol("n", {1, 4}) == table.symbol("n", {1, 4})) << "two sizes of one name are two sizes";
}

TEST(DimTable, ReplacesASumThatIsTooLargeByASymbolOfItsBound) {
  DimTable table;
  Dim product = 1;
  for (int i = 0; i < 12; ++i) product *= table.symbol(format("s{}", i), {0, 1}) + 1;  // 2^12 terms
  EXPECT_LE(product.highest(), 4096);
  EXPECT_GE(product.highest(), 2048);
  EXPECT_LT(product.to_string().size(), 10'000u);
}

TEST(DimTable, ReplacesAProductThatIsTooLongByASymbolOfItsBound) {
  DimTable table;
  Dim power = table.symbol("n", {0, 2});
  for (int i = 0; i < 12; ++i) power *= power;  // n^4096
  EXPECT_EQ(power.lowest(), 0);
  EXPECT_EQ(power.highest(), Dim::kMost);
  EXPECT_LT(power.to_string().size(), 1'000u);
}

// Each step uses the one before twice.
TEST(Dim, OfSharedPartsHasAShortText) {
  TwoSizes s;
  Dim size = s.n;
  for (int i = 0; i < 200; ++i) size = max(0, size - max(0, size - 3 - i));
  EXPECT_FALSE(size.is_number());
  EXPECT_LT(size.to_string().size(), 1'000u);
  EXPECT_LT(size.to_word().size(), 1'000u);
}

/// The same random operations on symbols and on numbers.
class Random {
 public:
  explicit Random(std::uint64_t seed) : random_(seed) {}

  static constexpr std::size_t kSamples = 12, kSymbols = 3;
  struct Pair {
    Dim symbolic;
    std::array<Dim, kSamples> numbers;
  };

  Pair symbol(DimTable& table) {
    const auto lowest = static_cast<std::int64_t>(pick(3)), highest = lowest + 1 + static_cast<std::int64_t>(pick(20));
    Pair pair{table.symbol("s", {lowest, highest}), {}};
    for (Dim& number : pair.numbers)
      number = lowest + static_cast<std::int64_t>(pick(static_cast<std::size_t>(highest - lowest + 1)));
    return pair;
  }
  Pair next(const std::vector<Pair>& known) {
    const Pair &a = known[pick(known.size())], &b = known[pick(known.size())];
    const Dim number = static_cast<std::int64_t>(pick(9)) - 4, divisor = 1 + static_cast<std::int64_t>(pick(6));
    switch (pick(8)) {
      case 0:
        return with(a, b, [](Dim x, Dim y) { return x + y; });
      case 1:
        return with(a, b, [](Dim x, Dim y) { return x - y; });
      case 2:
        return with(a, b, [](Dim x, Dim y) { return x * y; });
      case 3:
        return with(a, b, [](Dim x, Dim y) { return min(x, y); });
      case 4:
        return with(a, b, [](Dim x, Dim y) { return max(x, y); });
      case 5:
        return with(a, b, [&](Dim x, Dim) { return x + number; });
      case 6:
        return with(a, b, [](Dim x, Dim y) { return floor_div(x, max(y, 1)); });
      default:
        return with(a, b, [&](Dim x, Dim) { return floor_div(x, divisor); });
    }
  }

 private:
  std::size_t pick(std::size_t count) { return random_() % count; }
  template <typename Run>
  static Pair with(const Pair& a, const Pair& b, Run run) {
    Pair result{run(a.symbolic, b.symbolic), {}};
    for (std::size_t i = 0; i < kSamples; ++i) result.numbers[i] = run(a.numbers[i], b.numbers[i]);
    return result;
  }
  std::mt19937_64 random_;
};

TEST(Dim, HoldsForTheNumbersWhateverIsComputed) {
  int equal = 0;
  for (std::uint64_t seed = 0; seed < (test::kSanitized ? 40 : 400); ++seed) {
    Random random(seed);
    DimTable table;
    std::vector<Random::Pair> known;
    for (std::size_t i = 0; i < Random::kSymbols; ++i) known.push_back(random.symbol(table));
    while (known.size() < 20) {
      known.push_back(random.next(known));
      const Random::Pair& made = known.back();
      for (std::size_t i = 0; i < Random::kSamples; ++i) {
        const std::int64_t number = made.numbers[i].number();
        if (std::abs(number) > 1'000'000'000) continue;  // grown beyond any size
        ASSERT_TRUE(made.symbolic.bound().contains(number)) << seed << ": " << made.symbolic.to_string() << " was " << number;
        for (const Random::Pair& other : known) {
          const Dim a = made.symbolic, b = other.symbolic, x = made.numbers[i], y = other.numbers[i];
          ASSERT_TRUE(!(a == b) || x == y) << seed << ": " << a.to_string();
          ASSERT_TRUE(!known_unequal(a, b) || !(x == y)) << seed << ": " << a.to_string() << ", " << b.to_string();
          ASSERT_TRUE(!known_less(a, b) || x.number() < y.number()) << seed << ": " << a.to_string() << ", " << b.to_string();
          equal += a == b && &made != &other;
        }
      }
    }
  }
  EXPECT_GT(equal, 100) << "else nothing was compared";
}

}  // namespace
}  // namespace shoal::worker

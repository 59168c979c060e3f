// How long a request will compute: running estimates per shape and number of rows.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace shoal::supervisor {

/// Means and mean deviations, the last eight or so measurements weighing most. The shapes seen last are kept; another one is
/// guessed from its rows.
///   Threads  thread-compatible
class CostEstimates {
 public:
  static constexpr std::uint64_t kGuessNs = 1'000'000;  // of a row while nothing has been measured

  struct Cost {
    std::uint64_t mean_ns = 0, deviation_ns = 0;  // both 0: nothing has been measured
    /// What nearly every run stays below.
    std::uint64_t most_ns() const { return mean_ns + 2 * deviation_ns; }
  };

  void add(std::uint64_t shape, std::uint32_t rows, std::uint64_t ns) {
    ns = std::max<std::uint64_t>(ns, 1);
    const std::uint64_t tag = tag_of(shape, rows);
    Known& known = known_[tag % known_.size()];
    if (known.tag != tag) known = {tag, {}};
    follow(known.cost, ns);
    follow(row_, ns / std::max(rows, 1u));
  }
  /// It ran that long and was not done.
  void at_least(std::uint64_t shape, std::uint32_t rows, std::uint64_t ns) {
    if (ns > of(shape, rows).mean_ns) add(shape, rows, ns);
  }
  /// The estimate kept a request from running, so that nothing measures it any more: let it fall, in case it is wrong.
  void doubt(std::uint64_t shape, std::uint32_t rows) {
    const std::uint64_t tag = tag_of(shape, rows);
    Known& known = known_[tag % known_.size()];
    if (known.tag != tag) known = {tag, of(shape, rows)};
    known.cost.mean_ns -= known.cost.mean_ns / 16;
    known.cost.deviation_ns -= known.cost.deviation_ns / 16;
  }
  Cost of(std::uint64_t shape, std::uint32_t rows) const {
    const std::uint64_t tag = tag_of(shape, rows);
    const Known& known = known_[tag % known_.size()];
    return known.tag == tag ? known.cost : Cost{row_.mean_ns * rows, row_.deviation_ns * rows};
  }
  /// The same as a number that is never 0.
  std::uint64_t guess_ns(std::uint64_t shape, std::uint32_t rows) const {
    const std::uint64_t mean_ns = of(shape, rows).mean_ns;
    return mean_ns ? mean_ns : kGuessNs;
  }
  /// Of one row, among as many as ran together lately.
  std::uint64_t row_ns() const { return row_.mean_ns ? row_.mean_ns : kGuessNs; }

 private:
  struct Known {
    std::uint64_t tag = 0;
    Cost cost;
  };
  // Rows by powers of two, as programs are compiled; never 0.
  static std::uint64_t tag_of(std::uint64_t shape, std::uint32_t rows) {
    const std::uint64_t mixed = (shape ^ std::bit_ceil(std::uint64_t{std::max(rows, 1u)})) * 0x9e3779b97f4a7c15;
    return (mixed ^ mixed >> 32) | std::uint64_t{1} << 63;
  }
  static void follow(Cost& cost, std::uint64_t ns) {
    if (cost.mean_ns == 0) {
      cost = {std::max<std::uint64_t>(ns, 1), 0};
      return;
    }
    const auto off = static_cast<std::int64_t>(ns) - static_cast<std::int64_t>(cost.mean_ns);
    cost.mean_ns += static_cast<std::uint64_t>(off / 8);
    cost.deviation_ns += static_cast<std::uint64_t>(((off < 0 ? -off : off) - static_cast<std::int64_t>(cost.deviation_ns)) / 8);
  }

  std::array<Known, 64> known_{};
  Cost row_;
};

}  // namespace shoal::supervisor

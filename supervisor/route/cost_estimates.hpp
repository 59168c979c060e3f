// Running estimates of how long a request computes, per shape and number of rows.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace shoal::supervisor {

/// Keeps means and mean deviations of the shapes that ran last; the last eight or so measurements weigh most. A shape that was
/// not measured is guessed from its rows. Only runs and time change an estimate. A request that does not run changes none.
///
/// If an estimate is too high, requests are refused, or wait too long for their turn, whose runs would correct it. So estimates
/// are doubted: for a refusal and for a turn, the estimate is halved for each kDoubtNs since the last measurement. A guess
/// refuses no request.
///   Threads  thread-compatible
class CostEstimates {
 public:
  static constexpr std::uint64_t kGuessNs = 1'000'000;         // guess for a run while nothing has been measured
  static constexpr std::uint64_t kMostNs = 3'600'000'000'000;  // upper limit of measurements and guesses
  static constexpr std::uint64_t kDoubtNs = 1'000'000'000;     // time after which the doubt halves an estimate
  static constexpr std::uint64_t kMostHalvings = 20;
  // A stopped run replaces an estimate of another shape only if that estimate is older than this.
  static constexpr std::uint64_t kKeptNs = 10'000'000'000;

  struct Cost {
    std::uint64_t mean_ns = 0, deviation_ns = 0;  // both 0: nothing has been measured
    /// Nearly every run takes less.
    std::uint64_t most_ns() const { return mean_ns + 2 * deviation_ns; }
  };

  /// Adds the measurement of a run that ended.
  void add(std::uint64_t shape, std::uint32_t rows, std::uint64_t ns, std::uint64_t now_ns) {
    ns = std::clamp<std::uint64_t>(ns, 1, kMostNs);
    const std::uint64_t row_ns = std::max<std::uint64_t>(ns / std::max(rows, 1u), 1);
    add(runs_, tag_of(shape, rows), ns, now_ns);
    add(rows_, tag_of(shape, 1), row_ns, now_ns);
    follow(run_, ns);
    follow(row_, row_ns);
  }
  /// Adds a run that was stopped after `ns`: a whole run takes at least that long.
  void at_least(std::uint64_t shape, std::uint32_t rows, std::uint64_t ns, std::uint64_t now_ns) {
    ns = std::clamp<std::uint64_t>(ns, 1, kMostNs);
    at_least(runs_, tag_of(shape, rows), ns, now_ns);
    at_least(rows_, tag_of(shape, 1), std::max<std::uint64_t>(ns / std::max(rows, 1u), 1), now_ns);
  }
  /// The estimate of the shape or, if it was not measured, a guess from the rows. For plans.
  Cost of(std::uint64_t shape, std::uint32_t rows) const {
    if (const Known* known = find(runs_, tag_of(shape, rows))) return known->cost;
    const Cost row = row_of(shape);
    return {times(row.mean_ns, rows), times(row.deviation_ns, rows)};
  }
  /// How long a run takes, for the decision whether to refuse a request: halved by doubt; 0 if the shape was not measured.
  std::uint64_t refusing_ns(std::uint64_t shape, std::uint32_t rows, std::uint64_t now_ns) const {
    const Known* known = find(runs_, tag_of(shape, rows));
    return known ? known->cost.most_ns() >> halvings(*known, now_ns) : 0;
  }
  /// How long a run takes, for the waits of other requests; never 0. Clients choose shapes and rows, so the guess for a shape
  /// that was not measured is at most the mean of all runs.
  std::uint64_t guess_ns(std::uint64_t shape, std::uint32_t rows) const {
    if (const Known* known = find(runs_, tag_of(shape, rows))) return known->cost.mean_ns;
    return run_.mean_ns ? std::max<std::uint64_t>(std::min(times(row_of(shape).mean_ns, rows), run_.mean_ns), 1) : kGuessNs;
  }
  bool is_measured(std::uint64_t shape, std::uint32_t rows) const { return find(runs_, tag_of(shape, rows)) != nullptr; }

  struct Price {
    std::uint64_t ns = 0;       // how long the request uses a lane; never 0
    std::uint8_t halvings = 0;  // by doubt
  };
  /// The price of a request: that of a run, or that of its rows if it `joins` others.
  Price price(std::uint64_t shape, std::uint32_t rows, bool joins, std::uint64_t now_ns) const {
    const Known* known = joins ? find(rows_, tag_of(shape, 1)) : find(runs_, tag_of(shape, rows));
    const std::uint64_t row_ns = run_.mean_ns ? row_of(shape).mean_ns : kGuessNs;
    return {.ns = joins ? times(row_ns, std::max(rows, 1u)) : guess_ns(shape, rows),
            .halvings = known ? static_cast<std::uint8_t>(halvings(*known, now_ns)) : std::uint8_t{0}};
  }

 private:
  struct Known {
    std::uint64_t tag = 0;  // 0 = none
    Cost cost;
    std::uint64_t measured_ns = 0;  // time of the last measurement, where the doubt begins
  };
  // Rows are rounded up to a power of two, as programs are. The tag is never 0.
  static std::uint64_t tag_of(std::uint64_t shape, std::uint32_t rows) {
    const std::uint64_t mixed = (shape ^ std::bit_ceil(std::uint64_t{std::max(rows, 1u)})) * 0x9e3779b97f4a7c15;
    return (mixed ^ mixed >> 32) | std::uint64_t{1} << 63;
  }
  static std::uint64_t times(std::uint64_t ns, std::uint32_t rows) {
    return ns > kMostNs / std::max(rows, 1u) ? kMostNs : ns * rows;
  }
  static std::uint64_t since(const Known& known, std::uint64_t now_ns) { return now_ns - std::min(now_ns, known.measured_ns); }
  static std::uint64_t halvings(const Known& known, std::uint64_t now_ns) {
    return std::min(since(known, now_ns) / kDoubtNs, kMostHalvings);
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

  using Table = std::array<Known, 64>;
  static const Known* find(const Table& table, std::uint64_t tag) {
    const Known& known = table[tag % table.size()];
    return known.tag == tag ? &known : nullptr;
  }
  /// One row of the shape or, if the shape was not measured, of all shapes.
  Cost row_of(std::uint64_t shape) const {
    const Known* known = find(rows_, tag_of(shape, 1));
    return known ? known->cost : row_;
  }
  static void add(Table& table, std::uint64_t tag, std::uint64_t ns, std::uint64_t now_ns) {
    Known& known = table[tag % table.size()];
    if (known.tag != tag) known = {.tag = tag};
    // If the measurement is lower, the doubt was right: halve the estimate as often as the doubt does, but not below the
    // measurement.
    for (std::uint64_t left = halvings(known, now_ns); left > 0 && known.cost.mean_ns / 2 >= ns; --left) {
      known.cost.mean_ns /= 2;
      known.cost.deviation_ns /= 2;
    }
    follow(known.cost, ns);
    known.measured_ns = now_ns;
  }
  static void at_least(Table& table, std::uint64_t tag, std::uint64_t ns, std::uint64_t now_ns) {
    Known& known = table[tag % table.size()];
    if (known.tag != tag) {
      if (known.tag != 0 && since(known, now_ns) < kKeptNs) return;
      known = {.tag = tag};
    }
    if (ns > known.cost.mean_ns) {
      follow(known.cost, ns);
      known.measured_ns = now_ns;
      return;
    }
    // The doubt must not go below what was measured. Take back as many halvings as that needs.
    const std::uint64_t doubt = halvings(known, now_ns);
    std::uint64_t left = doubt;
    while (left > 0 && known.cost.most_ns() >> left < ns) --left;
    if (left < doubt) known.measured_ns = now_ns - left * kDoubtNs;
  }

  Table runs_{}, rows_{};  // a run of a shape and number of rows; one row of a shape, in runs of any size
  Cost row_, run_;         // one row and one run, over all shapes
};

}  // namespace shoal::supervisor

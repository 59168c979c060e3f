// What recurrent cells compute. The oracle kernel and the kernels of devices share it; F is float or double.
//
// `Gates` has the functions sigmoid(x) and tanh(x).
#pragma once

#include <cmath>
#include <limits>

#include "worker/ops/recurrent.hpp"

namespace shoal::worker {

/// The functions of libm.
template <typename F>
struct ExactGates {
  static F sigmoid(F x) { return 1 / (1 + std::exp(-x)); }
  static F tanh(F x) { return std::tanh(x); }
};

/// The limits of the numbers in the cells of an lstm.
template <typename F>
struct CellLimits {
  F least = -std::numeric_limits<F>::infinity(), most = std::numeric_limits<F>::infinity();
  bool cuts_nan = false;

  CellLimits() = default;
  explicit CellLimits(const RnnAttributes& rnn) {
    if (!rnn.clip_min || !rnn.clip_max) return;
    least = static_cast<F>(*rnn.clip_min);
    most = static_cast<F>(*rnn.clip_max);
    cuts_nan = rnn.clips_nan;
  }
  F cut(F x) const {
    const F raised = x < least ? least : x, within = raised > most ? most : raised;
    return cuts_nan && x != x ? least : within;
  }
};

/// As in MXNet, NaN becomes 0.
template <typename F>
F relu_cell(F x) {
  return x > 0 ? x : F{0};
}

/// Gives the new hidden number and changes the cell. The gates get the sums of both products.
template <typename Gates, typename F>
F lstm_cell(F input, F forget, F candidate, F output, F& cell, const CellLimits<F>& limits) {
  cell = limits.cut(Gates::sigmoid(forget) * cell + Gates::sigmoid(input) * Gates::tanh(candidate));
  return Gates::sigmoid(output) * Gates::tanh(cell);
}

/// Gives the new hidden number. The reset gate acts on what the candidate gets from the state, its bias included.
template <typename Gates, typename F>
F gru_cell(F reset, F update, F candidate_of_input, F candidate_of_state, F before) {
  const F kept = Gates::sigmoid(update);
  const F candidate = Gates::tanh(candidate_of_input + Gates::sigmoid(reset) * candidate_of_state);
  return (1 - kept) * candidate + kept * before;
}

}  // namespace shoal::worker

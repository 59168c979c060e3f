#include "worker/exec/cpu/kernels/recurrent.hpp"

#include <algorithm>

#include "worker/exec/cpu/kernels/exponential.hpp"
#include "worker/exec/cpu/kernels/parallel.hpp"
#include "worker/exec/cpu/kernels/vectorized.hpp"

namespace shoal::worker::cpu {
namespace {

constexpr std::int64_t kUnits = 256;    // of a sequence that one thread computes together
constexpr std::int64_t kCellWork = 16;  // a cell costs as much as so many elements of cheap work

/// `count` units of one sequence.
struct Units {
  const float *of_input, *of_state;  // of the first gate
  std::int64_t gate;                 // how far the gates lie apart
  float* cell;
  const float* before;
  float* made;
  std::int64_t count;
};

template <typename Function>
void run_simple(const Units& units, Function function) {
  vectorized([=] {
#pragma omp simd
    for (std::int64_t i = 0; i < units.count; ++i) units.made[i] = function(units.of_input[i] + units.of_state[i]);
  });
}

void run_lstm(const Units& units, const CellLimits<float>& limits) {
  vectorized([=] {
    const float *const a = units.of_input, *const u = units.of_state;
    const std::int64_t gate = units.gate;
#pragma omp simd
    for (std::int64_t i = 0; i < units.count; ++i) {
      float cell = units.cell[i];
      units.made[i] = lstm_cell<VectorGates>(a[i] + u[i], a[gate + i] + u[gate + i], a[2 * gate + i] + u[2 * gate + i],
                                             a[3 * gate + i] + u[3 * gate + i], cell, limits);
      units.cell[i] = cell;
    }
  });
}

void run_gru(const Units& units) {
  vectorized([=] {
    const float *const a = units.of_input, *const u = units.of_state;
    const std::int64_t gate = units.gate;
#pragma omp simd
    for (std::int64_t i = 0; i < units.count; ++i) {
      units.made[i] =
          gru_cell<VectorGates>(a[i] + u[i], a[gate + i] + u[gate + i], a[2 * gate + i], u[2 * gate + i], units.before[i]);
    }
  });
}

void run_units(const CellStep& step, const Units& units) {
  switch (step.mode) {
    case RnnMode::kRelu:
      return run_simple(units, [](float x) { return relu_cell(x); });
    case RnnMode::kTanh:
      return run_simple(units, [](float x) { return vector_tanh(x); });
    case RnnMode::kLstm:
      return run_lstm(units, step.limits);
    case RnnMode::kGru:
      return run_gru(units);
  }
}

}  // namespace

void run_cells(const CellStep& step) {
  const std::int64_t parts = (step.hidden + kUnits - 1) / kUnits, row = rnn_gates(step.mode) * step.hidden;
  for_ranges(step.sequences * parts, 1, step.sequences * step.hidden * kCellWork, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      const std::int64_t n = part / parts, first = part % parts * kUnits, at = n * step.hidden + first;
      if (step.is_active != nullptr && !step.is_active[n]) continue;
      run_units(step, {step.of_input + n * row + first, step.of_state + n * row + first, step.hidden,
                       step.cell == nullptr ? nullptr : step.cell + at, step.before == nullptr ? nullptr : step.before + at,
                       step.made + at, std::min(kUnits, step.hidden - first)});
    }
  });
}

}  // namespace shoal::worker::cpu

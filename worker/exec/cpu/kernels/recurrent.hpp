// The element-wise half of a recurrent cell of float32; the products are oneDNN's.
#pragma once

#include <cstdint>

#include "worker/ops/recurrent_functions.hpp"

namespace shoal::worker::cpu {

/// One step of a batch. Rows are those of the sequences.
struct CellStep {
  RnnMode mode = RnnMode::kLstm;
  CellLimits<float> limits;
  std::int64_t sequences = 0, hidden = 0;
  const float *of_input = nullptr, *of_state = nullptr;  ///< rows of gates * hidden: what the gates get, biases included
  float* cell = nullptr;                                 ///< of an lstm
  const float* before = nullptr;                         ///< what the cells gave at the step before
  float* made = nullptr;                                 ///< may be `before`
  const bool* is_active = nullptr;                       ///< per sequence; the others keep their numbers. Null: all are
};
/// Runs on all threads of the lane.
///   Threads  thread-safe
void run_cells(const CellStep& step);

}  // namespace shoal::worker::cpu

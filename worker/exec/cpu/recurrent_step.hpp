// The step that goes through a sequence: one direction of a layer of a Rnn, after the products of all its inputs.
#pragma once

#include <memory>
#include <string>

#include "worker/exec/plan.hpp"
#include "worker/ops/lengths.hpp"
#include "worker/ops/recurrent_functions.hpp"

namespace shoal::worker::cpu {

struct Recurrence {
  RnnMode mode = RnnMode::kLstm;
  CellLimits<float> limits;
  std::int64_t steps = 0, sequences = 0, hidden = 0, result = 0;
  std::int64_t row = 0, column = 0;  ///< elements of a step of a sequence in what the layer gives, and where the direction begins
  std::int64_t state = 0, cell = 0;  ///< the first element of this direction in the states, and in the cells
  bool is_backward = false;
  LengthReader length_of = nullptr;  ///< null: there are no lengths
  double flops = 0;

  // All of float32, but the lengths.
  BufferId of_input = kNoBuffer;  ///< (steps, sequences, gates * hidden), biases included
  BufferId first_state = kNoBuffer, first_cell = kNoBuffer, lengths = kNoBuffer;
  BufferId given = kNoBuffer;                              ///< (steps, sequences, row)
  BufferId last_state = kNoBuffer, last_cell = kNoBuffer;  ///< kNoBuffer: nobody reads them
  BufferId now = kNoBuffer;                                ///< (sequences, result): the state between two steps
  BufferId cells = kNoBuffer;                              ///< (sequences, hidden), of an lstm
  BufferId of_state = kNoBuffer;                           ///< (sequences, gates * hidden)
  BufferId made = kNoBuffer, projected = kNoBuffer;  ///< (sequences, hidden) and (sequences, result), if there is a projection
};

///   state_product  of_state = now x weights + bias
///   projection     projected = made x weights; null: there is none
std::unique_ptr<Step> make_recurrence_step(std::string name, const Recurrence& work, std::unique_ptr<Step> state_product,
                                           std::unique_ptr<Step> projection);

}  // namespace shoal::worker::cpu

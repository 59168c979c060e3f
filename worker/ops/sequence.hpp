// SequenceMask, SequenceLast, SequenceReverse: batches of sequences of different lengths.
#pragma once

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kSequenceMask, kSequenceLast, kSequenceReverse;
}  // namespace ops

struct SequenceAttributes {
  std::int64_t axis = 0;
};
template <>
inline constexpr auto fields_of<SequenceAttributes> = std::tuple{
    field("axis", &SequenceAttributes::axis, "of the steps, 0 or 1; the other one is of the sequences"),
};

struct SequenceMaskAttributes {
  std::int64_t axis = 0;
  double value = 0;
};
template <>
inline constexpr auto fields_of<SequenceMaskAttributes> = std::tuple{
    field("axis", &SequenceMaskAttributes::axis, "of the steps, 0 or 1; the other one is of the sequences"),
    field("value", &SequenceMaskAttributes::value, "of the elements behind a sequence"),
};

/// A batch of sequences in memory.
struct SequenceLayout {
  std::int64_t steps = 0, sequences = 0, elements = 1;  ///< elements of one step
  bool steps_first = true;                              ///< the axis of the steps is the first

  SequenceLayout(const Shape& data, std::int64_t axis);
  /// The place of a step, in steps.
  std::int64_t at(std::int64_t step, std::int64_t sequence) const {
    return steps_first ? step * sequences + sequence : sequence * steps + step;
  }
};

/// The step of a sequence of that length that stands at `step` when it is reversed.
inline std::int64_t reversed_step(std::int64_t step, std::int64_t length) { return step < length ? length - 1 - step : step; }

}  // namespace shoal::worker

#include "shm/tensor/state.hpp"

#include <algorithm>

#include "shm/base/errors.hpp"
#include "shm/tensor/spec.hpp"

namespace shoal {
namespace {

const TensorSpec* find(std::span<const TensorSpec> specs, std::string_view name) {
  const auto found = std::ranges::find(specs, name, &TensorSpec::name);
  return found == specs.end() ? nullptr : &*found;
}

/// The input whose dimension pair.batch_axis is the batch; null if it is not given.
const TensorSpec* batch_holder(std::span<const TensorSpec> inputs, std::span<const StatePair> state, const StatePair& pair,
                               std::span<const TensorSpec> given) {
  if (!pair.batch_input.empty()) return find(given, pair.batch_input);
  for (const TensorSpec& input : inputs) {
    const TensorSpec* const here = find_state(state, input.name) ? nullptr : find(given, input.name);
    if (here && here->shape.rank() > 0) return here;
  }
  return nullptr;
}

/// Whether a run may have these sizes where model.toml gives those.
bool fits(const Shape& sizes, const Shape& given) {
  return !given.is_known() || std::ranges::equal(sizes.dims(), given.dims(), [](std::int64_t size, std::int64_t wanted) {
    return wanted < 0 || size == wanted;
  });
}

}  // namespace

const StatePair* find_state(std::span<const StatePair> state, std::string_view input) {
  const auto found = std::ranges::find(state, input, &StatePair::in);
  return found == state.end() ? nullptr : &*found;
}

Result<TensorSpec> zero_state(std::span<const TensorSpec> inputs, std::span<const StatePair> state, const StatePair& pair,
                              std::span<const TensorSpec> given) {
  const TensorSpec* const input = find(inputs, pair.in);
  if (!input) return invalid_argument("the model has no input '{}' for its state '{}'", pair.in, pair.out);
  TensorSpec zeros{pair.in, input->dtype, input->shape};
  if (zeros.shape.element_count() >= 0) return zeros;
  const TensorSpec* const holder = zeros.shape.is_known() ? batch_holder(inputs, state, pair, given) : nullptr;
  if (holder && holder->shape.rank() <= pair.batch_axis) {
    return invalid_argument(
        "state '{}' of shape {} is left out. Its `batch_axis` is {}, but the input '{}' has the shape {}: give the state, or "
        "write the axis of the batch into model.toml, as in state = [{out = \"{}\", in = \"{}\", batch_axis = 0}]",
        pair.in, shape_text(*input), pair.batch_axis, holder->name, holder->shape.to_string(), pair.out, pair.in);
  }
  for (int axis = 0; holder && axis < zeros.shape.rank(); ++axis) {
    if (zeros.shape[axis] < 0) zeros.shape[axis] = holder->shape[pair.batch_axis];
  }
  if (zeros.shape.element_count() >= 0) return zeros;
  if (zeros.shape.is_known() && !pair.batch_input.empty()) {
    return invalid_argument(
        "state '{}' of shape {} is left out, and the input '{}', of which dimension {} (`batch_axis`, or N of its `layout`) is "
        "the batch, does not give it: give the state, or write its sizes into model.toml",
        pair.in, shape_text(*input), pair.batch_input, pair.batch_axis);
  }
  return invalid_argument(
      "state '{}' of shape {} is left out, and no other input gives it a batch: give it, or write its sizes into model.toml",
      pair.in, shape_text(*input));
}

Status check_state(std::span<const StatePair> state, std::span<const TensorSpec> inputs, std::span<const TensorSpec> outputs,
                   const std::string& where) {
  for (const StatePair& pair : state) {
    const TensorSpec* const in = find(inputs, pair.in);
    const TensorSpec* const out = find(outputs, pair.out);
    if (!in || !out) {
      return invalid_argument("{}: 'state' names an {} '{}' that the model does not have; it has {}", where,
                              in ? "output" : "input", in ? pair.out : pair.in, names_of(in ? outputs : inputs));
    }
    const TensorSpec* const holder = pair.batch_input.empty() ? nullptr : find(inputs, pair.batch_input);
    if (!pair.batch_input.empty() && (!holder || (holder->shape.is_known() && holder->shape.rank() <= pair.batch_axis))) {
      return invalid_argument(
          "{}: 'state' takes the batch of '{}' from dimension {} (`batch_axis`) of the input '{}' (`batch_input`), which the "
          "model does not have; it has {}",
          where, pair.in, pair.batch_axis, pair.batch_input, names_of(inputs));
    }
    if (!fits(in->shape, pair.shape)) {
      return invalid_argument("{}: 'state' gives '{}' the shape {}, but its input has {}", where, pair.in, pair.shape.to_string(),
                              in->shape.to_string());
    }
    if (in->dtype != out->dtype || in->shape != out->shape) {
      return invalid_argument(
          "{}: 'state' pairs the output '{}', {} of shape {}, with the input '{}', {} of shape {}: they must "
          "be equal",
          where, pair.out, dtype_name(out->dtype), out->shape.to_string(), pair.in, dtype_name(in->dtype), in->shape.to_string());
    }
  }
  return {};
}

}  // namespace shoal

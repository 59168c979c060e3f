// SequenceMask, SequenceLast, SequenceReverse: batches of sequences of different lengths.
#include "worker/ops/sequence.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/elements.hpp"
#include "worker/ops/lengths.hpp"

namespace shoal::worker {
namespace {

/// data has the axes of steps and sequences, and there is a length for each sequence.
Status check_sequences(const Node& node, std::int64_t axis, SourceValues src) {
  const TypedValue &data = src[0], &lengths = src[1];
  if (axis != 0 && axis != 1) return invalid_argument("{}: axis is {}; the steps are along axis 0 or 1", describe(node), axis);
  SHOAL_RETURN_IF_ERROR(check_rank(node, data, 2));
  SHOAL_RETURN_IF_ERROR(check_number(node, lengths));
  return check_shape(node, "lengths", lengths, SymbolicShape{data.shape[axis == 0 ? 1 : 0]});
}

Status infer_sequence_mask(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_RETURN_IF_ERROR(check_sequences(node, node.attributes.get<SequenceMaskAttributes>().axis, src));
  set_result(dst[0], src[0].dtype, src[0].shape);
  return {};
}

Status infer_sequence_reverse(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_RETURN_IF_ERROR(check_sequences(node, node.attributes.get<SequenceAttributes>().axis, src));
  set_result(dst[0], src[0].dtype, src[0].shape);
  return {};
}

Status infer_sequence_last(const Node& node, SourceValues src, ResultValues dst) {
  const std::int64_t axis = node.attributes.get<SequenceAttributes>().axis;
  SHOAL_RETURN_IF_ERROR(check_sequences(node, axis, src));
  const TypedValue& data = src[0];
  if (known_less(data.shape[static_cast<int>(axis)], 1))
    return invalid_argument("{}: '{}' of shape {} has no step", describe(node), data.name, data.shape.to_string());
  Sizes dims(data.shape.begin(), data.shape.end());
  dims.erase(dims.begin() + axis);
  set_result(dst[0], data.dtype, SymbolicShape(dims));
  return {};
}

Status compute_sequence_mask(const Node& node, Sources src, Results dst) {
  const auto& mask = node.attributes.get<SequenceMaskAttributes>();
  const SequenceLayout layout(src[0].shape, mask.axis);
  const LengthReader length_of = length_reader(src[1].dtype);
  return dispatch<AnyTypes>(node, src[0].dtype, [&]<typename T>() {
    const T value = convert<T>(mask.value);
    for (std::int64_t sequence = 0; sequence < layout.sequences; ++sequence) {
      const std::int64_t length = length_of(src[1].data, sequence, layout.steps);
      for (std::int64_t step = 0; step < layout.steps; ++step) {
        const std::int64_t at = layout.at(step, sequence) * layout.elements;
        if (step < length)
          std::copy_n(elements<T>(src[0]) + at, layout.elements, elements<T>(dst[0]) + at);
        else
          std::fill_n(elements<T>(dst[0]) + at, layout.elements, value);
      }
    }
    return Status();
  });
}

/// Copies one step; `from` and `to` count steps.
void copy_step(const TensorView& src, std::int64_t from, TensorView& dst, std::int64_t to, std::size_t bytes) {
  if (bytes > 0)
    std::memcpy(dst.data + static_cast<std::size_t>(to) * bytes, src.data + static_cast<std::size_t>(from) * bytes, bytes);
}

std::size_t step_bytes(const SequenceLayout& layout, DType dtype) {
  return static_cast<std::size_t>(layout.elements) * dtype_size_bytes(dtype);
}

// A sequence without steps gives its first one, which MXNet looks for before the beginning of the data.
Status compute_sequence_last(const Node& node, Sources src, Results dst) {
  const SequenceLayout layout(src[0].shape, node.attributes.get<SequenceAttributes>().axis);
  const LengthReader length_of = length_reader(src[1].dtype);
  const std::size_t bytes = step_bytes(layout, src[0].dtype);
  for (std::int64_t sequence = 0; sequence < layout.sequences; ++sequence) {
    const std::int64_t length = length_of(src[1].data, sequence, layout.steps);
    copy_step(src[0], layout.at(std::max<std::int64_t>(length - 1, 0), sequence), dst[0], sequence, bytes);
  }
  return {};
}

Status compute_sequence_reverse(const Node& node, Sources src, Results dst) {
  const SequenceLayout layout(src[0].shape, node.attributes.get<SequenceAttributes>().axis);
  const LengthReader length_of = length_reader(src[1].dtype);
  const std::size_t bytes = step_bytes(layout, src[0].dtype);
  for (std::int64_t sequence = 0; sequence < layout.sequences; ++sequence) {
    const std::int64_t length = length_of(src[1].data, sequence, layout.steps);
    for (std::int64_t step = 0; step < layout.steps; ++step)
      copy_step(src[0], layout.at(reversed_step(step, length), sequence), dst[0], layout.at(step, sequence), bytes);
  }
  return {};
}

/// The sequences are the rows if the steps are along axis 1, and then each row needs its own length.
template <typename Attributes>
bool sequence_rows(const BatchedNode& batched) {
  return batched.node.attributes.get<Attributes>().axis == 1 && batched.has_rows_in(0) && batched.has_rows_in(1);
}

}  // namespace

SequenceLayout::SequenceLayout(const Shape& data, std::int64_t axis)
    : steps(data[static_cast<int>(axis)]), sequences(data[axis == 0 ? 1 : 0]), steps_first(axis == 0) {
  for (int i = 2; i < data.rank(); ++i) elements *= data[i];
}

namespace ops {

const Operator kSequenceMask({
    .name = "SequenceMask",
    .inputs = 2,
    .attributes = &kSchema<SequenceMaskAttributes>,
    .infer = infer_sequence_mask,
    .facts = indexed_facts(sequence_rows<SequenceMaskAttributes>, 1, work_of_elements, Accuracy::kLost),
    .oracle = compute_sequence_mask,
    .formula =
        "data, lengths: the data, with `value` in the steps of each sequence from its length on. A length is cut to a whole "
        "number from 0 to the number of steps; NaN is 0",
    .source = "MXNet 1.9.1 src/operator/sequence_mask-inl.h",
});

const Operator kSequenceLast({
    .name = "SequenceLast",
    .inputs = 2,
    .attributes = &kSchema<SequenceAttributes>,
    .infer = infer_sequence_last,
    .facts = indexed_facts(sequence_rows<SequenceAttributes>, 1, work_of_elements, Accuracy::kLost),
    .oracle = compute_sequence_last,
    .formula =
        "data, lengths: step length - 1 of each sequence, without the axis of the steps. Lengths as of SequenceMask; 0 counts "
        "as 1",
    .source = "MXNet 1.9.1 src/operator/sequence_last-inl.h",
});

const Operator kSequenceReverse({
    .name = "SequenceReverse",
    .inputs = 2,
    .attributes = &kSchema<SequenceAttributes>,
    .infer = infer_sequence_reverse,
    .facts = indexed_facts(sequence_rows<SequenceAttributes>, 1, work_of_elements, Accuracy::kLost),
    .oracle = compute_sequence_reverse,
    .formula = "data, lengths: the first `length` steps of each sequence in reverse order, the others as they are. Lengths as of "
               "SequenceMask",
    .source = "MXNet 1.9.1 src/operator/sequence_reverse-inl.h",
});

}  // namespace ops

}  // namespace shoal::worker

#include "worker/exec/cpu/kernels/sequence.hpp"

#include <array>
#include <cstring>

#include "worker/exec/cpu/kernels/parallel.hpp"
#include "worker/ops/lengths.hpp"
#include "worker/ops/sequence.hpp"

namespace shoal::worker::cpu {
namespace {

/// What the loops know of a node.
struct Sequences {
  SequenceLayout layout;
  LengthReader length_of;
  std::size_t step_bytes;

  Sequences(const TensorType& data, const TensorType& lengths, std::int64_t axis)
      : layout(data.shape, axis),
        length_of(length_reader(lengths.dtype)),
        step_bytes(static_cast<std::size_t>(layout.elements) * dtype_size_bytes(data.dtype)) {}

  /// Calls body(at, step, sequence, length) for all steps, in the order in which they lie; `at` counts them.
  template <typename Body>
  void for_steps(const std::byte* lengths, const Body& body) const {
    const std::int64_t count = layout.steps * layout.sequences, inner = layout.steps_first ? layout.sequences : layout.steps;
    for_ranges(count, 1, count * layout.elements, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t at = begin; at < end; ++at) {
        const std::int64_t step = layout.steps_first ? at / inner : at % inner;
        const std::int64_t sequence = layout.steps_first ? at % inner : at / inner;
        body(at, step, sequence, length_of(lengths, sequence, layout.steps));
      }
    });
  }
  void copy(const std::byte* src, std::int64_t from, std::byte* dst, std::int64_t to) const {
    const std::byte* const source = src + static_cast<std::size_t>(from) * step_bytes;
    std::byte* const place = dst + static_cast<std::size_t>(to) * step_bytes;
    if (place != source) std::memcpy(place, source, step_bytes);
  }
};

}  // namespace

Loop make_sequence_mask(const Node& node, TensorTypes src, TensorTypes dst) {
  const auto& mask = node.attributes.get<SequenceMaskAttributes>();
  std::uint64_t value = 0;
  dispatch(AnyTypes(), dst[0].dtype, [&]<typename T>() {
    const T element = convert<T>(mask.value);
    std::memcpy(&value, &element, sizeof element);
  });
  Loop loop;
  with_word(dst[0].dtype, [&]<typename Word>() {
    Word word{};
    std::memcpy(&word, &value, sizeof word);
    loop = [sequences = Sequences(src[0], src[1], mask.axis), word](std::span<std::byte* const> operands) {
      sequences.for_steps(operands[1], [&](std::int64_t at, std::int64_t step, std::int64_t, std::int64_t length) {
        if (step < length)
          sequences.copy(operands[0], at, operands[2], at);
        else
          std::fill_n(reinterpret_cast<Word*>(operands[2]) + at * sequences.layout.elements, sequences.layout.elements, word);
      });
    };
  });
  return loop;
}

Loop make_sequence_last(const Node& node, TensorTypes src, TensorTypes) {
  const Sequences sequences(src[0], src[1], node.attributes.get<SequenceAttributes>().axis);
  return [sequences](std::span<std::byte* const> operands) {
    const SequenceLayout& layout = sequences.layout;
    for_ranges(layout.sequences, 1, layout.sequences * layout.elements, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) {
        const std::int64_t length = sequences.length_of(operands[1], n, layout.steps);
        sequences.copy(operands[0], layout.at(std::max<std::int64_t>(length - 1, 0), n), operands[2], n);
      }
    });
  };
}

Loop make_sequence_reverse(const Node& node, TensorTypes src, TensorTypes) {
  const Sequences sequences(src[0], src[1], node.attributes.get<SequenceAttributes>().axis);
  return [sequences](std::span<std::byte* const> operands) {
    sequences.for_steps(operands[1], [&](std::int64_t at, std::int64_t step, std::int64_t sequence, std::int64_t length) {
      sequences.copy(operands[0], sequences.layout.at(reversed_step(step, length), sequence), operands[2], at);
    });
  };
}

}  // namespace shoal::worker::cpu

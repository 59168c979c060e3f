// Kernels that take elements as they are, or in another type.
#include "worker/ops/selection.hpp"
#include "worker/exec/cpu/kernels/elementwise.hpp"
#include "worker/exec/cpu/kernels/map.hpp"
#include "worker/exec/cpu/kernels/parallel.hpp"

namespace shoal::worker::cpu {
namespace {

template <typename Word>
void select_words(const std::byte* const* src, std::byte* dst, std::int64_t count) {
  const auto* const condition = reinterpret_cast<const std::uint8_t*>(src[0]);
  const Word *const x = reinterpret_cast<const Word*>(src[1]), *const y = reinterpret_cast<const Word*>(src[2]);
  Word* const to = reinterpret_cast<Word*>(dst);
  vectorized([=] {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) {
      const Word left = x[i], right = y[i];
      to[i] = condition[i] != 0 ? left : right;
    }
  });
}

}  // namespace

// The elements are copied as they are, so x, y and the result are words of their size.
Loop make_where(const Node& node, TensorTypes src, TensorTypes dst) {
  const Shape& shape = dst[0].shape;
  Loop loop;
  with_word(dst[0].dtype, [&]<typename Word>() {
    constexpr DType kWord = kDTypeOf<Word>;
    const TensorType condition{src[0].dtype, condition_along(node, src[0].shape, shape)};
    loop = map_loop({MapInput::of(condition, shape, DType::kBool), MapInput::of({kWord, src[1].shape}, shape, kWord),
                     MapInput::of({kWord, src[2].shape}, shape, kWord)},
                    {kWord, shape}, kWord, select_words<Word>);
  });
  return loop;
}

// Of one tensor, or of several, each into its own.
Loop make_cast(const Node&, TensorTypes src, TensorTypes dst) {
  struct Part {
    Conversion conversion;
    std::int64_t count;
    std::size_t src_bytes, dst_bytes;  // of an element
  };
  std::vector<Part> parts;
  for (std::size_t i = 0; i < src.size(); ++i)
    parts.push_back({Conversion(src[i].dtype, dst[i].dtype), src[i].shape.element_count(), dtype_size_bytes(src[i].dtype),
                     dtype_size_bytes(dst[i].dtype)});
  return [parts](std::span<std::byte* const> operands) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const Part& part = parts[i];
      const std::byte* const from = operands[i];
      std::byte* const to = operands[parts.size() + i];
      if (to == nullptr) continue;
      for_ranges(part.count, kBlock, part.count, [&](std::int64_t begin, std::int64_t end) {
        const std::byte* const first = from + static_cast<std::size_t>(begin) * part.src_bytes;
        std::byte* const place = to + static_cast<std::size_t>(begin) * part.dst_bytes;
        if (!part.conversion.is_copy())
          part.conversion(first, place, end - begin);
        else if (place != first)
          std::memcpy(place, first, static_cast<std::size_t>(end - begin) * part.src_bytes);
      });
    }
  };
}

}  // namespace shoal::worker::cpu

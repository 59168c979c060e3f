#include "worker/exec/cpu/kernels/map.hpp"

#include <algorithm>

#include "shm/base/check.hpp"
#include "worker/exec/cpu/kernels/parallel.hpp"

namespace shoal::worker::cpu {
namespace {

template <typename Word>
void gather_words(const std::byte* src, const Walk& walk, std::int64_t begin, std::int64_t count, std::byte* dst) {
  gather(reinterpret_cast<const Word*>(src), walk, begin, count, reinterpret_cast<Word*>(dst));
}

/// Gives the blocks of one input.
class Reader {
 public:
  explicit Reader(const MapInput& input)
      : walk_(input.walk),
        number_(input.number),
        conversion_(is_number(input) ? input.computed : input.dtype, input.computed),
        bytes_(dtype_size_bytes(is_number(input) ? input.computed : input.dtype)),
        is_number_(is_number(input)) {
    with_word(is_number_ ? input.computed : input.dtype, [&]<typename Word>() { gather_ = gather_words<Word>; });
  }
  bool is_number() const { return is_number_; }

  /// Returns elements begin .. begin + count, as computed, in `room` or in the input itself. `room` holds what the last call for
  /// the same thread has put there, if `is_later`.
  const std::byte* read(const std::byte* src, std::int64_t begin, std::int64_t count, bool is_later, std::byte* room) const {
    if (is_number_ || walk_.is_one_element()) {
      if (is_later) return room;  // the first block is the longest
      return fill(is_number_ ? number_.data() : src + static_cast<std::size_t>(walk_.first) * bytes_, count, room);
    }
    if (walk_.is_dense()) {
      src += static_cast<std::size_t>(walk_.first + begin) * bytes_;
      if (conversion_.is_copy()) return src;
      conversion_(src, room, count);
      return room;
    }
    if (conversion_.is_copy()) {
      gather_(src, walk_, begin, count, room);
      return room;
    }
    alignas(64) std::byte raw[kBlockBytes];
    gather_(src, walk_, begin, count, raw);
    conversion_(raw, room, count);
    return room;
  }

 private:
  static bool is_number(const MapInput& input) { return input.dtype == DType::kInvalid; }

  const std::byte* fill(const std::byte* element, std::int64_t count, std::byte* room) const {
    Walk same;
    same.dims[0] = count;
    same.strides[0] = 0;
    if (conversion_.is_copy()) {
      gather_(element, same, 0, count, room);
    } else {
      alignas(64) std::byte raw[kBlockBytes];
      gather_(element, same, 0, count, raw);
      conversion_(raw, room, count);
    }
    return room;
  }

  Walk walk_;
  std::array<std::byte, 8> number_;
  Conversion conversion_;
  std::size_t bytes_;
  bool is_number_;
  void (*gather_)(const std::byte* src, const Walk& walk, std::int64_t begin, std::int64_t count, std::byte* dst) = nullptr;
};

/// Where a function writes its blocks, and what becomes of them.
class Writer {
 public:
  Writer(DType computed, DType dtype) : conversion_(computed, dtype), bytes_(dtype_size_bytes(dtype)) {}
  std::byte* place(std::byte* dst, std::int64_t begin, std::byte* room) const {
    return conversion_.is_copy() ? at(dst, begin) : room;
  }
  void finish(std::byte* dst, std::int64_t begin, std::int64_t count, const std::byte* room) const {
    if (!conversion_.is_copy()) conversion_(room, at(dst, begin), count);
  }

 private:
  std::byte* at(std::byte* dst, std::int64_t begin) const { return dst + static_cast<std::size_t>(begin) * bytes_; }

  Conversion conversion_;
  std::size_t bytes_;
};

}  // namespace

Loop map_loop(const std::vector<MapInput>& inputs, const TensorType& dst, DType computed, BlockFunction function) {
  SHOAL_CHECK(inputs.size() <= kMostMapInputs);
  std::vector<Reader> readers(inputs.begin(), inputs.end());
  const std::int64_t all = dst.shape.element_count();
  return [readers, all, writer = Writer(computed, dst.dtype), function](std::span<std::byte* const> operands) {
    for_ranges(all, kBlock, all, [&](std::int64_t first, std::int64_t end) {
      alignas(64) std::byte rooms[kMostMapInputs + 1][kBlockBytes];
      const std::byte* src[kMostMapInputs];
      for (std::int64_t begin = first; begin < end; begin += kBlock) {
        const std::int64_t count = std::min(kBlock, end - begin);
        std::size_t operand = 0;
        for (std::size_t k = 0; k < readers.size(); ++k) {
          const std::byte* const memory = readers[k].is_number() ? nullptr : operands[operand++];
          src[k] = readers[k].read(memory, begin, count, begin > first, rooms[k]);
        }
        std::byte* const room = rooms[kMostMapInputs];
        function(src, writer.place(operands[operand], begin, room), count);
        writer.finish(operands[operand], begin, count, room);
      }
    });
  };
}

Loop fold_loop(std::size_t inputs, const TensorType& dst, BlockFunction function) {
  const DType computed = computed_type(dst.dtype);
  const Reader reader(MapInput::of(dst, dst.shape, computed));
  const std::int64_t all = dst.shape.element_count();
  return [inputs, reader, all, writer = Writer(computed, dst.dtype), function](std::span<std::byte* const> operands) {
    for_ranges(all, kBlock, all * static_cast<std::int64_t>(inputs), [&](std::int64_t first, std::int64_t end) {
      alignas(64) std::byte sum[kBlockBytes], room[kBlockBytes];
      for (std::int64_t begin = first; begin < end; begin += kBlock) {
        const std::int64_t count = std::min(kBlock, end - begin);
        std::fill(std::begin(sum), std::end(sum), std::byte{0});
        for (std::size_t k = 0; k < inputs; ++k) {
          const std::byte* const src[] = {sum, reader.read(operands[k], begin, count, false, room)};
          const bool is_last = k + 1 == inputs;
          function(src, is_last ? writer.place(operands[inputs], begin, sum) : sum, count);
        }
        writer.finish(operands[inputs], begin, count, sum);
      }
    });
  };
}

}  // namespace shoal::worker::cpu

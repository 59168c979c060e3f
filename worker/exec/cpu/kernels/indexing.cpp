// Kernels that copy the elements which indices name. They treat all types of one size alike.
#include <algorithm>
#include <cstring>

#include "worker/exec/cpu/kernels/conversion.hpp"
#include "worker/exec/cpu/kernels/lookup.hpp"
#include "worker/exec/cpu/kernels/parallel.hpp"
#include "worker/exec/cpu/kernels/walk.hpp"
#include "worker/ops/indexing_functions.hpp"

namespace shoal::worker::cpu {
namespace {

static_assert(NamedAxes::kMost >= kBlock);

/// dst[i] = the `length` elements from src[firsts[i]] on.
template <typename Word>
void copy_slices(const Word* src, const std::int64_t* firsts, std::int64_t count, std::int64_t length, Word* dst) {
  if (length == 1) {
    for (std::int64_t i = 0; i < count; ++i) dst[i] = src[firsts[i]];
  } else {
    for (std::int64_t i = 0; i < count; ++i) copy_row(src + firsts[i], 1, length, dst + i * length);
  }
}

/// Copies `slices` slices of `length` elements, in blocks. Operands: src, indices, dst.
///   find  find(indices, first, count, firsts): where `count` slices from number `first` on begin in the source
template <typename Find>
Loop slices_loop(DType dtype, std::int64_t slices, std::int64_t length, const Find& find) {
  Loop loop;
  with_word(dtype, [&]<typename Word>() {
    loop = [=](std::span<std::byte* const> operands) {
      const auto* const src = reinterpret_cast<const Word*>(operands[0]);
      auto* const dst = reinterpret_cast<Word*>(operands[2]);
      for_ranges(slices, 1, slices * length, [&](std::int64_t begin, std::int64_t end) {
        std::int64_t firsts[kBlock];
        for (std::int64_t first = begin; first < end; first += kBlock) {
          const std::int64_t count = std::min(kBlock, end - first);
          find(operands[1], first, count, firsts);
          copy_slices(src, firsts, count, length, dst + first * length);
        }
      });
    };
  });
  return loop;
}

}  // namespace

Loop make_take(const Node& node, TensorTypes src, TensorTypes dst) {
  const auto& take = node.attributes.get<TakeAttributes>();
  const ReadPlaces read = places_reader(src[1].dtype, outside_of(take.mode));
  if (take.mode == IndexMode::kRaise || read == nullptr) return {};
  const AxisView view(src[0].shape, positive_axis(take.axis, src[0].shape));
  const std::int64_t indices = src[1].shape.element_count();
  return slices_loop(dst[0].dtype, view.outer * indices, view.inner,
                     [=](const std::byte* from, std::int64_t first, std::int64_t count, std::int64_t* firsts) {
                       while (count > 0) {  // the indices begin again for each position before the axis
                         const std::int64_t outer = first / indices, index = first % indices,
                                            some = std::min(count, indices - index);
                         read(from, index, some, view.size, firsts);
                         for (std::int64_t i = 0; i < some; ++i) firsts[i] = (outer * view.size + firsts[i]) * view.inner;
                         first += some;
                         count -= some;
                         firsts += some;
                       }
                     });
}

Loop make_pick(const Node& node, TensorTypes src, TensorTypes dst) {
  const auto& pick = node.attributes.get<PickAttributes>();
  const ReadPlaces read = places_reader(src[1].dtype, outside_of(pick.mode));
  if (pick.mode == IndexMode::kRaise || read == nullptr) return {};
  const AxisView view(src[0].shape, positive_axis(pick.axis, src[0].shape));
  return slices_loop(dst[0].dtype, view.outer * view.inner, 1,
                     [=](const std::byte* from, std::int64_t first, std::int64_t count, std::int64_t* firsts) {
                       read(from, first, count, view.size, firsts);
                       for (std::int64_t i = 0; i < count; ++i) {
                         const std::int64_t outer = (first + i) / view.inner, inner = (first + i) % view.inner;
                         firsts[i] = (outer * view.size + firsts[i]) * view.inner + inner;
                       }
                     });
}

Loop make_gather_nd(const Node&, TensorTypes src, TensorTypes dst) {
  const NamedAxes named(src[0].shape, src[1].shape);
  const ReadPlaces read = places_reader(src[1].dtype, Outside::kFromEnd);
  if (read == nullptr) return {};
  return slices_loop(dst[0].dtype, named.slices, named.length,
                     [=](const std::byte* from, std::int64_t first, std::int64_t count, std::int64_t* firsts) {
                       named.find(read, from, first, count, firsts);
                     });
}

Loop make_one_hot(const Node& node, TensorTypes src, TensorTypes dst) {
  const auto& one_hot = node.attributes.get<OneHotAttributes>();
  const ReadPlaces read = places_reader(src[0].dtype, Outside::kNowhere);
  if (read == nullptr) return {};
  Loop loop;
  dispatch(AnyTypes(), dst[0].dtype, [&]<typename T>() {
    loop = [read, rows = src[0].shape.element_count(), depth = one_hot.depth, on = convert<T>(one_hot.on),
            off = convert<T>(one_hot.off)](std::span<std::byte* const> operands) {
      for_ranges(rows, 1, rows * depth, [&](std::int64_t begin, std::int64_t end) {
        std::int64_t places[kBlock];
        for (std::int64_t first = begin; first < end; first += kBlock) {
          const std::int64_t count = std::min(kBlock, end - first);
          read(operands[0], first, count, depth, places);
          T* const to = reinterpret_cast<T*>(operands[1]) + first * depth;
          std::fill_n(to, count * depth, off);
          for (std::int64_t i = 0; i < count; ++i) {
            if (places[i] >= 0) to[i * depth + places[i]] = on;
          }
        }
      });
    };
  });
  return loop;
}

}  // namespace shoal::worker::cpu

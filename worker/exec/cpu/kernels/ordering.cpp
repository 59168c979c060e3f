// TopK and ArgExtreme.
#include "worker/ops/ordering.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "worker/exec/cpu/kernels/conversion.hpp"
#include "worker/exec/cpu/kernels/lookup.hpp"
#include "worker/exec/cpu/kernels/parallel.hpp"
#include "worker/exec/cpu/kernels/vectorized.hpp"
#include "worker/ops/ordering_functions.hpp"

namespace shoal::worker::cpu {
namespace {

constexpr std::int64_t kMostChunks = 16;  // of the rows: each has memory of its own
constexpr std::int64_t kWork = 8;         // of comparing, beside that of reading an element

/// The rows of a TopK, and how the memory is used.
struct TopKRows {
  AxisView rows;
  std::int64_t count;   ///< elements that are found in each row
  std::int64_t room;    ///< elements that are kept at a time
  std::int64_t chunks;  ///< of the rows

  TopKRows(const TopKAttributes& top, const Shape& shape)
      : rows(rows_along(top.axis, shape)), count(top.count > 0 ? top.count : rows.size) {
    constexpr std::int64_t kFew = 8;  // the best are kept in a heap if a row has so many times more
    room = count < rows.size / kFew ? count : rows.size;
    chunks = std::min(rows.outer * rows.inner, kMostChunks);
  }
};

/// The first `top.count` elements of a row, in `room`. Each is loaded once.
template <typename T, typename Before>
void find_first(const TopKRows& top, const T* row, Before before, Ranked<Compute<T>>* room) {
  using C = Compute<T>;
  const auto element = [&](std::int64_t i) { return Ranked<C>{static_cast<C>(load_element_once(row + i * top.rows.inner)), i}; };
  for (std::int64_t i = 0; i < top.room; ++i) room[i] = element(i);
  auto* const end = room + top.count;
  if (top.count == top.rows.size) return std::sort(room, end, before);
  if (top.room == top.rows.size) return std::partial_sort(room, end, room + top.room, before);
  std::make_heap(room, end, before);  // the last of them is in front
  for (std::int64_t i = top.room; i < top.rows.size; ++i) {
    const Ranked<C> next = element(i);
    if (!before(next, room[0])) continue;
    std::pop_heap(room, end, before);
    end[-1] = next;
    std::push_heap(room, end, before);
  }
  std::sort_heap(room, end, before);
}

/// Where the results go; null if nobody reads them.
struct TopKOutputs {
  std::byte *values = nullptr, *indices = nullptr, *mask = nullptr;
};

template <typename T, bool kAscending>
void top_k(const TopKRows& top, const std::byte* data, StoreIndex store, const TopKOutputs& to, std::byte* scratch) {
  using C = Compute<T>;
  const AxisView& rows = top.rows;
  const std::int64_t all = rows.outer * rows.inner;
  for_ranges(top.chunks, 1, all * rows.size * kWork, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t chunk = begin; chunk < end; ++chunk) {
      auto* const room = reinterpret_cast<Ranked<C>*>(scratch) + chunk * top.room;
      for (std::int64_t row = all * chunk / top.chunks; row < all * (chunk + 1) / top.chunks; ++row) {
        const std::int64_t outer = row / rows.inner, inner = row % rows.inner;
        const std::int64_t first = outer * rows.size * rows.inner + inner, place = outer * top.count * rows.inner + inner;
        find_first(top, reinterpret_cast<const T*>(data) + first, ComesBefore<C, kAscending>(), room);
        for (std::int64_t i = 0; i < top.count; ++i) {
          if (to.values) reinterpret_cast<T*>(to.values)[place + i * rows.inner] = to_element<T>(room[i].value);
          if (to.indices) store(to.indices, place + i * rows.inner, room[i].index);
          if (to.mask) reinterpret_cast<T*>(to.mask)[first + room[i].index * rows.inner] = to_element<T>(C{1});
        }
      }
    }
  });
}

/// Finds the extremes of `width` neighboring rows, as the oracle kernel does.
template <typename T, bool kLowest>
void find_extremes(const T* src, const AxisView& rows, std::int64_t width, std::int32_t* found) {
  using C = Compute<T>;
  alignas(64) C best[kBlock];
  std::fill_n(best, width, worst<C>(kLowest));
  std::fill_n(found, width, 0);
  for (std::int64_t k = 0; k < rows.size; ++k) {
    const auto number = static_cast<std::int32_t>(k);
    const T* const row = src + k * rows.inner;
    C* const so_far = best;
    vectorized([=] {
#pragma omp simd
      for (std::int64_t i = 0; i < width; ++i) {
        const C value = static_cast<C>(row[i]);
        const bool is_better = kLowest ? value < so_far[i] : value > so_far[i];
        const bool wins = is_better || (value != value && so_far[i] == so_far[i]);  // no number is better than NaN
        so_far[i] = wins ? value : so_far[i];
        found[i] = wins ? number : found[i];
      }
    });
  }
}

template <typename T, bool kLowest>
std::int32_t find_extreme(const T* row, std::int64_t size) {
  using C = Compute<T>;
  C best = worst<C>(kLowest);
  std::int32_t found = 0;
  for (std::int64_t k = 0; k < size; ++k) {
    const C value = static_cast<C>(row[k]);
    if (value != value) return static_cast<std::int32_t>(k);
    if (!(kLowest ? value < best : value > best)) continue;
    best = value;
    found = static_cast<std::int32_t>(k);
  }
  return found;
}

template <typename T, bool kLowest>
Loop extremes_loop(const AxisView& rows, StoreIndex store) {
  const std::int64_t width = std::min(rows.inner, kBlock), strips = (rows.inner + width - 1) / width;
  return [=](std::span<std::byte* const> operands) {
    const auto* const src = reinterpret_cast<const T*>(operands[0]);
    std::byte* const dst = operands[1];
    for_ranges(rows.outer * strips, 1, rows.outer * rows.size * rows.inner, [&](std::int64_t begin, std::int64_t end) {
      std::int32_t found[kBlock];
      for (std::int64_t at = begin; at < end; ++at) {
        const std::int64_t outer = at / strips, inner = at % strips * width, count = std::min(width, rows.inner - inner);
        const T* const from = src + outer * rows.size * rows.inner + inner;
        if (rows.inner == 1)
          found[0] = find_extreme<T, kLowest>(from, rows.size);
        else
          find_extremes<T, kLowest>(from, rows, count, found);
        for (std::int64_t i = 0; i < count; ++i) store(dst, outer * rows.inner + inner + i, found[i]);
      }
    });
  };
}

}  // namespace

Loop make_top_k(const Node& node, TensorTypes src, TensorTypes dst) {
  const auto& attributes = node.attributes.get<TopKAttributes>();
  const TopKRows top(attributes, src[0].shape);
  const StoreIndex store = index_store(attributes.dtype);
  const bool is_mask = attributes.result == TopKResult::kMask, has_values = dst.size() == 2;
  const std::size_t mask_bytes = static_cast<std::size_t>(dst[0].shape.element_count()) * dtype_size_bytes(dst[0].dtype);
  Loop loop;
  dispatch(Numbers(), src[0].dtype, [&]<typename T>() {
    const auto run = attributes.ascending ? top_k<T, true> : top_k<T, false>;
    loop = [=](std::span<std::byte* const> operands) {
      TopKOutputs to;
      if (is_mask) {
        to.mask = operands[1];
        std::memset(to.mask, 0, mask_bytes);
      } else {
        to.indices = operands[has_values ? 2 : 1];
        if (has_values) to.values = operands[1];
      }
      run(top, operands[0], store, to, operands.back());
    };
  });
  return loop;
}

std::size_t top_k_scratch_bytes(const Node& node, TensorTypes src, TensorTypes) {
  const TopKRows top(node.attributes.get<TopKAttributes>(), src[0].shape);
  return static_cast<std::size_t>(top.chunks * top.room) * sizeof(Ranked<std::int64_t>);  // the largest of them
}

Loop make_arg_extreme(const Node& node, TensorTypes src, TensorTypes dst) {
  const auto& extreme = node.attributes.get<ArgExtremeAttributes>();
  const AxisView rows = rows_along(extreme.axis, src[0].shape);
  const StoreIndex store = index_store(dst[0].dtype);
  Loop loop;
  if (store == nullptr || rows.size > std::numeric_limits<std::int32_t>::max()) return loop;
  dispatch(Numbers(), src[0].dtype, [&]<typename T>() {
    loop = extreme.lowest ? extremes_loop<T, true>(rows, store) : extremes_loop<T, false>(rows, store);
  });
  return loop;
}

}  // namespace shoal::worker::cpu

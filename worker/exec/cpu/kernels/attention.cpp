#include "worker/exec/cpu/kernels/attention.hpp"

#include <omp.h>

#include <algorithm>

#include "worker/exec/cpu/kernels/panel_product.hpp"
#include "worker/exec/cpu/kernels/vectorized.hpp"

namespace shoal::worker::cpu {
namespace {

constexpr std::int64_t kQueriesAtOnce = 48;  // with 512 keys their scores take 96 KB

std::int64_t whole_vectors(std::int64_t count) { return (count + kPanelGrain - 1) / kPanelGrain * kPanelGrain; }

/// The memory of one thread, in elements.
struct Room {
  explicit Room(const AttentionExtents& extents)
      : keys(whole_vectors(extents.keys.positions)),
        width(whole_vectors(extents.values.size)),
        key_elements(keys * extents.queries.size),
        value_elements(extents.values.positions * width),
        elements(key_elements + value_elements + std::min(kQueriesAtOnce, extents.queries.positions) * keys) {}
  std::int64_t keys, width;  ///< as many as fill vectors
  std::int64_t key_elements, value_elements, elements;
};

/// One head at a time, in the memory of one thread.
class Head {
 public:
  Head(const AttentionExtents& extents, std::span<std::byte* const> operands, float* memory)
      : extents_(extents),
        room_(extents),
        operands_(operands),
        keys_(memory),
        values_(keys_ + room_.key_elements),
        scores_(values_ + room_.value_elements) {}

  void run(std::int64_t head, std::int64_t first, std::int64_t count) {
    if (head != head_) take(head);
    const HeadVectors &queries = extents_.queries, &result = extents_.result;
    const ConstRows asking{vectors(0, queries, head) + first * queries.position_stride, queries.position_stride};
    for (std::int64_t key = 0; key < room_.keys; key += kPanelColumns) {
      const std::int64_t width = std::min(kPanelColumns, room_.keys - key);
      multiply_panel(count, queries.size, width, asking, {keys_ + key * queries.size, width}, {}, {scores_ + key, room_.keys});
    }
    for (std::int64_t i = 0; i < count; ++i) weigh(head, first + i, scores_ + i * room_.keys);
    auto* const to =
        reinterpret_cast<float*>(operands_[5]) + result.first + head * result.head_stride + first * result.position_stride;
    for (std::int64_t column = 0; column < extents_.values.size; column += kPanelColumns) {
      multiply_panel(count, extents_.keys.positions, std::min(kPanelColumns, extents_.values.size - column),
                     {scores_, room_.keys}, {values_ + column, room_.width}, {}, {to + column, result.position_stride});
    }
  }

 private:
  const float* vectors(std::size_t operand, const HeadVectors& all, std::int64_t head) const {
    return reinterpret_cast<const float*>(operands_[operand]) + all.first + head * all.head_stride;
  }

  // The keys of a panel stand side by side; values are moved together, because rows that are thousands of bytes apart evict each
  // other.
  void take(std::int64_t head) {
    head_ = head;
    const HeadVectors &keys = extents_.keys, &values = extents_.values;
    const float* key = vectors(1, keys, head);
    for (std::int64_t first = 0; first < room_.keys; first += kPanelColumns) {
      const std::int64_t width = std::min(kPanelColumns, room_.keys - first), count = std::min(width, keys.positions - first);
      float* const panel = keys_ + first * keys.size;
      for (std::int64_t i = 0; i < width; ++i) {
        for (std::int64_t k = 0; k < keys.size; ++k)
          panel[k * width + i] = i < count ? key[(first + i) * keys.position_stride + k] : 0.0F;
      }
    }
    const float* value = vectors(2, values, head);
    for (std::int64_t i = 0; i < values.positions; ++i) {
      float* const row = std::copy_n(value + i * values.position_stride, values.size, values_ + i * room_.width);
      std::fill_n(row, room_.width - values.size, 0.0F);
    }
  }

  // Scores become weights.
  void weigh(std::int64_t head, std::int64_t query, float* row) const {
    const std::int64_t keys = extents_.keys.positions;
    const float scale = extents_.scale;
    if (!extents_.masks.empty()) {
      const float* const mask = reinterpret_cast<const float*>(operands_[3]) + extents_.masks[static_cast<std::size_t>(head)] +
                                query * extents_.mask_stride;
      vectorized([=] {
#pragma omp simd
        for (std::int64_t i = 0; i < keys; ++i) row[i] = row[i] * scale + mask[i];
      });
    } else if (scale != 1) {
      vectorized([=] {
#pragma omp simd
        for (std::int64_t i = 0; i < keys; ++i) row[i] *= scale;
      });
    }
    std::int64_t length = keys;
    if (extents_.read_length != nullptr)
      length = std::clamp<std::int64_t>(extents_.read_length(operands_[4], head * extents_.queries.positions + query), 0, keys);
    softmax_of_row(row, length);
    std::fill(row + length, row + keys, 0.0F);
  }

  const AttentionExtents& extents_;
  const Room room_;
  std::span<std::byte* const> operands_;
  float *keys_, *values_, *scores_;
  std::int64_t head_ = -1;  ///< whose keys and values are in the memory
};

}  // namespace

std::size_t attention_scratch_bytes(const AttentionExtents& extents, int threads) {
  return static_cast<std::size_t>(Room(extents).elements * threads) * sizeof(float);
}

Loop attention_loop(const AttentionExtents& extents, int threads) {
  Loop loop = [extents, threads](std::span<std::byte* const> operands) {
    const std::int64_t blocks = (extents.queries.positions + kQueriesAtOnce - 1) / kQueriesAtOnce,
                       count = extents.queries.count * blocks;
    const auto run = [&](std::int64_t begin, std::int64_t end, int thread) {
      Head head(extents, operands, reinterpret_cast<float*>(operands[6]) + Room(extents).elements * thread);
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t block = i % blocks, first = extents.queries.positions * block / blocks;
        head.run(i / blocks, first, extents.queries.positions * (block + 1) / blocks - first);
      }
    };
    if (threads == 1 || count == 1) return run(0, count, 0);
#pragma omp parallel num_threads(threads)
    {
      const std::int64_t all = ::omp_get_num_threads(), index = ::omp_get_thread_num();
      run(count * index / all, count * (index + 1) / all, static_cast<int>(index));
    }
  };
  loop.kept_bytes = extents.masks.size() * sizeof extents.masks[0];
  return loop;
}

}  // namespace shoal::worker::cpu

#include "worker/exec/cpu/kernels/reduction.hpp"

#include <algorithm>
#include <array>

#include "worker/exec/cpu/kernels/block_elements.hpp"
#include "worker/exec/cpu/kernels/parallel.hpp"
#include "worker/exec/cpu/kernels/vectorized.hpp"
#include "worker/exec/cpu/kernels/walk.hpp"
#include "worker/ops/reduce_functions.hpp"

namespace shoal::worker::cpu {
namespace {

constexpr std::int64_t kWidest = 256;  // outputs that are computed together
constexpr std::int64_t kChunks = 64;   // of a long row

/// Axes of the data that are reduced, or kept.
struct Group : Axes {
  /// Takes the last axis away. Returns its size; 1 if there is none.
  std::int64_t take_last() { return rank == 0 ? 1 : dims[static_cast<std::size_t>(--rank)]; }
  std::int64_t count() const {
    std::int64_t count = 1;
    for (int axis = 0; axis < rank; ++axis) count *= dims[static_cast<std::size_t>(axis)];
    return count;
  }
  std::int64_t offset_of(std::int64_t index) const {
    std::int64_t offset = 0;
    for (auto k = static_cast<std::size_t>(rank); k-- > 0; index /= dims[k]) offset += index % dims[k] * strides[k];
    return offset;
  }
};

/// What is reduced: for each position of `kept`, and each of its `width` neighbors, the positions of `reduced`, each a row of
/// `length`. Either `width` or `length` is 1.
struct Reduction {
  Group kept, reduced;
  std::int64_t width = 1, length = 1;
  ReduceKind kind = ReduceKind::kSum;
  bool is_ordered = false;
};

/// The partial results of one row. There are enough of them for some vectors.
template <typename A>
inline constexpr std::int64_t kLanes = std::max<std::int64_t>(16, 64 / sizeof(A));

/// The loops of one kind over elements of type X. The results are of type A.
template <typename X>
struct Fold {
  using A = Accumulator<X>;
  A start;
  void (*across)(const X* x, std::int64_t count, A* values);  ///< adds each element to the value at its position
  void (*along)(const X* x, std::int64_t count, A* lanes);    ///< adds all elements to kLanes<A> partial results
  A (*in_order)(const X* x, std::int64_t count, A value);     ///< adds all elements to one result
  A (*join)(const A* values, std::int64_t count, A value);    ///< adds results to one result
};

template <typename X, typename A, typename Step>
void fold_across(const X* x, std::int64_t count, A* values) {
  vectorized([=] {
#pragma omp simd
    for (std::int64_t k = 0; k < count; ++k) values[k] = Step()(values[k], static_cast<A>(x[k]));
  });
}

template <typename X, typename A, typename Step>
void fold_along(const X* x, std::int64_t count, A* lanes) {
  vectorized([=] {
    A sums[kLanes<A>];
    std::copy_n(lanes, kLanes<A>, sums);
    std::int64_t i = 0;
    for (; i + kLanes<A> <= count; i += kLanes<A>) {
#pragma omp simd
      for (std::int64_t k = 0; k < kLanes<A>; ++k) sums[k] = Step()(sums[k], static_cast<A>(x[i + k]));
    }
    std::copy_n(sums, kLanes<A>, lanes);
    for (std::int64_t k = 0; i + k < count; ++k) lanes[k] = Step()(lanes[k], static_cast<A>(x[i + k]));
  });
}

template <typename X, typename A, typename Step>
A fold_in_order(const X* x, std::int64_t count, A value) {
  for (std::int64_t i = 0; i < count; ++i) value = Step()(value, static_cast<A>(x[i]));
  return value;
}

template <typename X>
Fold<X> fold_of(ReduceKind kind) {
  using A = Accumulator<X>;
  if constexpr (std::is_integral_v<A>) {  // no integer is NaN
    if (kind == ReduceKind::kNanSum) kind = ReduceKind::kSum;
    if (kind == ReduceKind::kNanProd) kind = ReduceKind::kProd;
  }
  return with_fold<A>(kind, []<typename Step, typename Join>(A start, Step, Join) {
    return Fold<X>{start, fold_across<X, A, Step>, fold_along<X, A, Step>, fold_in_order<X, A, Step>, fold_in_order<A, A, Join>};
  });
}

template <typename T>
class Reducer {
 public:
  explicit Reducer(const Reduction& what) : what_(what), fold_(fold_of<X>(what.kind)) {}

  void run(const T* src, T* dst) const {
    const std::int64_t outer = what_.kept.count(), all = outer * what_.width * what_.reduced.count() * what_.length;
    if (what_.width > 1) {
      const std::int64_t strips = (what_.width + kWidest - 1) / kWidest;
      for_ranges(outer * strips, 1, all, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i)
          strip(src + what_.kept.offset_of(i / strips), i % strips * kWidest, dst + i / strips * what_.width);
      });
    } else if (is_long()) {
      for (std::int64_t i = 0; i < outer; ++i) dst[i] = finish(long_row(src + what_.kept.offset_of(i)));
    } else {
      for_ranges(outer, 1, all, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) dst[i] = finish(rows(src + what_.kept.offset_of(i)));
      });
    }
  }

 private:
  using X = Compute<T>;
  using A = Accumulator<X>;

  T finish(A value) const { return to_element<T>(result_of(what_.kind, value, what_.reduced.count() * what_.length)); }

  /// Neighboring outputs, each in the order of the oracle kernel.
  void strip(const T* src, std::int64_t first, T* dst) const {
    const std::int64_t width = std::min(kWidest, what_.width - first), rows = what_.reduced.count();
    A values[kWidest];
    X room[kWidest];
    std::fill_n(values, width, fold_.start);
    for (std::int64_t i = 0; i < rows; ++i) {
      const X* const row = elements_.read(src + what_.reduced.offset_of(i) + first, width, room);
      fold_.across(row, width, values);
    }
    for (std::int64_t k = 0; k < width; ++k) dst[first + k] = finish(values[k]);
  }

  A rows(const T* src) const {
    const std::int64_t count = what_.reduced.count();
    if (what_.is_ordered || what_.length < 2 * kLanes<A>) {
      A value = fold_.start;
      for (std::int64_t i = 0; i < count; ++i) value = in_order(src + what_.reduced.offset_of(i), value);
      return value;
    }
    A lanes[kLanes<A>];
    std::fill_n(lanes, kLanes<A>, fold_.start);
    for (std::int64_t i = 0; i < count; ++i) add(src + what_.reduced.offset_of(i), what_.length, lanes);
    return join(lanes);
  }

  /// Too few outputs for all threads, and each of one long row.
  bool is_long() const {
    return what_.kept.count() < kChunks && what_.reduced.rank == 0 && what_.length >= 4 * kLeastPerThread && !what_.is_ordered;
  }
  A long_row(const T* src) const {
    A chunks[kChunks];
    for_ranges(kChunks, 1, what_.length, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t first = what_.length * i / kChunks, last = what_.length * (i + 1) / kChunks;
        A lanes[kLanes<A>];
        std::fill_n(lanes, kLanes<A>, fold_.start);
        add(src + first, last - first, lanes);
        chunks[i] = join(lanes);
      }
    });
    return fold_.join(chunks, kChunks, fold_.start);
  }

  A in_order(const T* src, A value) const {
    X room[kBlock];
    for (std::int64_t first = 0; first < what_.length; first += kBlock) {
      const std::int64_t count = std::min(kBlock, what_.length - first);
      value = fold_.in_order(elements_.read(src + first, count, room), count, value);
    }
    return value;
  }

  void add(const T* src, std::int64_t length, A* lanes) const {
    X room[kBlock];
    for (std::int64_t first = 0; first < length; first += kBlock) {
      const std::int64_t count = std::min(kBlock, length - first);
      fold_.along(elements_.read(src + first, count, room), count, lanes);
    }
  }

  A join(const A* lanes) const { return fold_.join(lanes, kLanes<A>, fold_.start); }

  Reduction what_;
  Fold<X> fold_;
  BlockElements<T> elements_;
  static_assert(kWidest <= kBlock);
};

/// nansum and nanprod of floats are no sums of sums: what a NaN or an infinity does depends on what came before. A product that
/// begins with 0 stays 0, while a part of it may be infinite: 0 times that would be NaN.
bool is_ordered(ReduceKind kind, DType dtype) {
  const bool depends_on_order = kind == ReduceKind::kNanSum || kind == ReduceKind::kNanProd || kind == ReduceKind::kProd;
  return depends_on_order && TypeSet(Floats()).holds(dtype);
}

Reduction reduction_of(const ReduceAttributes& attributes, const TensorType& src) {
  Reduction what{.kind = attributes.kind, .is_ordered = is_ordered(attributes.kind, src.dtype)};
  const std::vector<bool> is_reduced = reduced_axes(attributes, src.shape.rank());
  const Strides strides = row_major(src.shape);
  bool ends_reduced = false;
  for (int axis = 0; axis < src.shape.rank(); ++axis) {
    const auto k = static_cast<std::size_t>(axis);
    if (src.shape[axis] == 1) continue;
    (is_reduced[k] ? what.reduced : what.kept).add(src.shape[axis], strides[k]);
    ends_reduced = is_reduced[k];
  }
  (ends_reduced ? what.length : what.width) = (ends_reduced ? what.reduced : what.kept).take_last();
  return what;
}

/// The norms of integers, each in the order of its elements.
template <typename T>
Loop integer_norms(const Reduction& what) {
  return [what](std::span<std::byte* const> operands) {
    const T* const src = reinterpret_cast<const T*>(operands[0]);
    T* const dst = reinterpret_cast<T*>(operands[1]);
    const std::int64_t outer = what.kept.count(), count = what.reduced.count();
    for_ranges(outer * what.width, 1, outer * what.width * count * what.length, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const T* const first = src + what.kept.offset_of(i / what.width) + i % what.width;
        IntegerNorm<T> norm;
        for (std::int64_t row = 0; row < count; ++row) {
          const T* const from = first + what.reduced.offset_of(row);
          for (std::int64_t k = 0; k < what.length; ++k) norm.add(from[k]);
        }
        dst[i] = norm.result();
      }
    });
  };
}

}  // namespace

Loop make_reduce(const Node& node, TensorTypes src, TensorTypes) {
  if (src[0].shape.element_count() == 0) return {};
  const auto& attributes = node.attributes.get<ReduceAttributes>();
  const Reduction what = reduction_of(attributes, src[0]);
  Loop loop;
  dispatch(Numbers(), src[0].dtype, [&]<typename T>() {
    if constexpr (std::is_integral_v<T>) {
      if (what.kind == ReduceKind::kNorm2) {
        loop = integer_norms<T>(what);
        return;
      }
    }
    loop = [reducer = Reducer<T>(what)](std::span<std::byte* const> operands) {
      reducer.run(reinterpret_cast<const T*>(operands[0]), reinterpret_cast<T*>(operands[1]));
    };
  });
  return loop;
}

Loop make_cum_sum(const Node& node, TensorTypes src, TensorTypes dst) {
  const auto axis = node.attributes.get<CumSumAttributes>().axis;
  const AxisView view(dst[0].shape, axis ? positive_axis(*axis, dst[0].shape) : 0);
  const std::int64_t lines = view.outer * view.inner;
  Loop loop;
  dispatch(Numbers(), src[0].dtype, [&]<typename T>() {
    loop = [view, lines](std::span<std::byte* const> operands) {
      const T* const from = reinterpret_cast<const T*>(operands[0]);
      T* const to = reinterpret_cast<T*>(operands[1]);
      for_ranges(lines, 1, lines * view.size, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t line = begin; line < end; ++line) {
          const std::int64_t first = line / view.inner * view.size * view.inner + line % view.inner;
          running_sum(from + first, to + first, view.size, view.inner);
        }
      });
    };
  });
  return loop;
}

}  // namespace shoal::worker::cpu

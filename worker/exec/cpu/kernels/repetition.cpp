// Tile and Repeat. They treat all types of one size alike.
#include "worker/ops/repetition.hpp"

#include <vector>

#include "worker/exec/cpu/kernels/movement.hpp"
#include "worker/exec/cpu/kernels/parallel.hpp"
#include "worker/exec/cpu/kernels/walk.hpp"

namespace shoal::worker::cpu {
namespace {

/// An axis of the data, and how often it occurs in the result. Axes that are not repeated are merged into the one before them.
struct TiledAxis {
  std::int64_t size = 1, count = 1;
};

std::vector<TiledAxis> tiled_axes(const Shape& src, const Shape& dst) {
  const Shape from = with_axes_in_front(src, dst.rank());
  std::vector<TiledAxis> axes;
  for (int axis = 0; axis < dst.rank(); ++axis) {
    const TiledAxis next{from[axis], dst[axis] / from[axis]};
    if (next.count == 1 && !axes.empty())
      axes.back().size *= next.size;
    else
      axes.push_back(next);
  }
  if (axes.empty()) axes.emplace_back();
  return axes;
}

/// The first element of the data's row that becomes row `row` of the result.
std::int64_t first_of_row(const std::vector<TiledAxis>& axes, std::int64_t row) {
  std::int64_t first = 0, stride = axes.back().size;
  for (std::size_t axis = axes.size() - 1; axis-- > 0;) {
    const auto [size, count] = axes[axis];
    first += row % size * stride;  // position % (size * count) % size
    row /= size * count;
    stride *= size;
  }
  return first;
}

}  // namespace

Loop make_tile(const Node&, TensorTypes src, TensorTypes dst) {
  const std::vector<TiledAxis> axes = tiled_axes(src[0].shape, dst[0].shape);
  const std::int64_t all = dst[0].shape.element_count();
  Loop loop;
  with_word(dst[0].dtype, [&]<typename Word>() {
    loop = [axes, all](std::span<std::byte* const> operands) {
      const auto* const from = reinterpret_cast<const Word*>(operands[0]);
      auto* const to = reinterpret_cast<Word*>(operands[1]);
      const std::int64_t size = axes.back().size, count = axes.back().count;  // lambdas capture no bindings
      const std::int64_t length = size * count;
      for_ranges(all / length, 1, all, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          const Word* const data = from + first_of_row(axes, row);
          for (std::int64_t i = 0; i < count; ++i) copy_row(data, 1, size, to + row * length + i * size);
        }
      });
    };
  });
  return loop;
}

Loop make_repeat(const Node& node, TensorTypes src, TensorTypes dst) {
  const auto& repeat = node.attributes.get<RepeatAttributes>();
  const std::int64_t length = repeat.axis ? AxisView(src[0].shape, positive_axis(*repeat.axis, src[0].shape)).inner : 1;
  const std::int64_t slices = src[0].shape.element_count() / length;
  Loop loop;
  with_word(dst[0].dtype, [&]<typename Word>() {
    loop = [length, slices, times = repeat.count](std::span<std::byte* const> operands) {
      const auto* const from = reinterpret_cast<const Word*>(operands[0]);
      auto* const to = reinterpret_cast<Word*>(operands[1]);
      for_ranges(slices, 1, slices * length * times, [&](std::int64_t begin, std::int64_t end) {
        Word* place = to + begin * times * length;
        for (std::int64_t slice = begin; slice < end; ++slice) {
          for (std::int64_t i = 0; i < times; ++i, place += length) copy_row(from + slice * length, 1, length, place);
        }
      });
    };
  });
  return loop;
}

}  // namespace shoal::worker::cpu

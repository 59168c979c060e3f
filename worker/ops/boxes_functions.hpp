// BoxNms, BoxIou, BoxDecode, BoxEncode, BipartiteMatching as functions that devices divide among their threads.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>

#include "worker/ops/boxes.hpp"
#include "worker/ops/suppression.hpp"

namespace shoal::worker {

template <typename F>
using Box = std::array<F, 4>;

/// Computed once: of a client's memory, too.
template <typename T>
Box<Compute<T>> box_from(const T* row) {
  Box<Compute<T>> box;
  for (std::size_t i = 0; i < box.size(); ++i) box[i] = static_cast<Compute<T>>(row[i]);
  return box;
}

template <typename F>
Box<F> to_center(const Box<F>& box) {
  return {(box[0] + box[2]) / 2, (box[1] + box[3]) / 2, box[2] - box[0], box[3] - box[1]};
}

template <typename F>
Box<F> to_corner(const Box<F>& box) {
  return {box[0] - box[2] / 2, box[1] - box[3] / 2, box[0] + box[2] / 2, box[1] + box[3] / 2};
}

/// Its corners, and its area: that of a box with a negative side is 0.
template <typename F>
SizedBox<F> sized(const Box<F>& box, BoxFormat format) {
  const F width = format == BoxFormat::kCorner ? box[2] - box[0] : box[2];
  const F height = format == BoxFormat::kCorner ? box[3] - box[1] : box[3];
  const Box<F> corners = format == BoxFormat::kCorner ? box : to_corner(box);
  return {corners[0], corners[1], corners[2], corners[3], width < 0 || height < 0 ? F{0} : width * height};
}

template <typename F>
F intersection_of(const SizedBox<F>& a, const SizedBox<F>& b) {
  const auto shared = [](F a_low, F b_low, F a_high, F b_high) {
    const F begin = a_low > b_low ? a_low : b_low, end = a_high < b_high ? a_high : b_high;
    return end - begin > 0 ? end - begin : F{0};
  };
  return shared(a.left, b.left, a.right, b.right) * shared(a.top, b.top, a.bottom, b.bottom);
}

template <typename T>
class BoxNms {
 public:
  using F = Compute<T>;

  BoxNms(const Node& node, std::span<const Shape> src, std::span<const Shape>)
      : nms_(node.attributes.get<BoxNmsAttributes>()),
        count_(src[0][src[0].rank() - 2]),
        width_(src[0][src[0].rank() - 1]),
        batch_(AxisView(src[0], src[0].rank() - 2).outer),
        most_(nms_.topk < 0 ? count_ : std::min(nms_.topk, count_)) {}
  std::size_t scratch_bytes() const { return bytes_of_room<Room>(count_, most_); }
  template <typename Policy>
  void run(std::span<std::byte* const> operands, const Policy& policy) const {
    const T* const data = reinterpret_cast<const T*>(operands[0]);
    T* const out = reinterpret_cast<T*>(operands[1]);
    Scratch scratch(operands[2]);
    const Room room(scratch, count_, most_);
    for (std::int64_t n = 0; n < batch_; ++n) {
      const std::int64_t first = n * count_ * width_;
      if (nms_.topk == 0) {
        std::copy_n(data + first, count_ * width_, out + first);
        continue;
      }
      const std::int64_t kept = suppress(data + first, room, out + first, policy) * width_;
      const std::int64_t rest = count_ * width_ - kept;
      policy.ranges(rest, 1, rest, [&](std::int64_t begin, std::int64_t end) {
        std::fill(out + first + kept + begin, out + first + kept + end, to_element<T>(F{-1}));
      });
    }
  }

 private:
  struct Room {
    Ranked<F>* ranks;
    BoxRanking<F> boxes;
    Room(Scratch& scratch, std::int64_t count, std::int64_t most) : ranks(scratch.take<Ranked<F>>(count)), boxes(scratch, most) {}
  };

  /// Writes the rows that are kept. Returns how many there are.
  template <typename Policy>
  std::int64_t suppress(const T* data, const Room& room, T* out, const Policy& policy) const {
    const std::int64_t found = rank_best(count_, most_, room.ranks, policy, [&](std::int64_t i, F& score) {
      const T* const row = data + i * width_;
      score = static_cast<F>(load_element_once(row + nms_.score));
      return score > nms_.valid && !(nms_.class_id >= 0 && static_cast<F>(row[nms_.class_id]) == static_cast<F>(nms_.background));
    });
    for (std::int64_t rank = 0; rank < found; ++rank) {
      const T* const row = data + room.ranks[rank].index * width_;
      const bool has_class = nms_.class_id >= 0 && !nms_.across_classes;
      room.boxes.set(rank, sized(box_from(row + nms_.coordinates), nms_.in_format),
                     has_class ? convert<std::int32_t>(row[nms_.class_id]) : 0);
    }
    const auto overlap = nms_.overlap;
    room.boxes.keep(
        found, found,
        [overlap](const SizedBox<F>& kept, const SizedBox<F>& other) {
          const F both = intersection_of(kept, other);
          return both / (kept.area + other.area - both) > overlap;
        },
        policy);
    std::int64_t kept = 0;
    for (std::int64_t rank = 0; rank < found; ++rank) {
      if (room.boxes.is_kept(rank)) write(data + room.ranks[rank].index * width_, out + kept++ * width_);
    }
    return kept;
  }

  void write(const T* row, T* out) const {
    const Box<F> box = box_from(row + nms_.coordinates);
    std::copy_n(row, width_, out);
    if (nms_.in_format == nms_.out_format || box[0] < 0) return;
    const Box<F> converted = nms_.out_format == BoxFormat::kCenter ? to_center(box) : to_corner(box);
    std::ranges::transform(converted, out + nms_.coordinates, to_element<T, F>);
  }

  BoxNmsAttributes nms_;
  std::int64_t count_, width_, batch_, most_;
};

/// What a function that needs no memory has.
struct NoScratch {
  static std::size_t scratch_bytes() { return 0; }
};

template <typename T>
class BoxIou : public NoScratch {
 public:
  using F = Compute<T>;

  BoxIou(const Node& node, std::span<const Shape> src, std::span<const Shape>)
      : format_(node.attributes.get<BoxIouAttributes>().format),
        lefts_(src[0].element_count() / 4),
        rights_(src[1].element_count() / 4) {}
  template <typename Policy>
  void run(std::span<std::byte* const> operands, const Policy& policy) const {
    const T *const boxes = reinterpret_cast<const T*>(operands[0]), *const others = reinterpret_cast<const T*>(operands[1]);
    T* const out = reinterpret_cast<T*>(operands[2]);
    policy.ranges(lefts_, 1, lefts_ * rights_, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t l = begin; l < end; ++l) {
        const SizedBox<F> left = sized(box_from(boxes + 4 * l), format_);
        for (std::int64_t r = 0; r < rights_; ++r) {
          const SizedBox<F> right = sized(box_from(others + 4 * r), format_);
          const F both = intersection_of(left, right);
          out[l * rights_ + r] = to_element<T>(both <= 0 ? F{0} : both / (left.area + right.area - both));
        }
      }
    });
  }

 private:
  BoxFormat format_;
  std::int64_t lefts_, rights_;
};

template <typename T>
class BoxDecode : public NoScratch {
 public:
  using F = Compute<T>;

  BoxDecode(const Node& node, std::span<const Shape> src, std::span<const Shape>)
      : decode_(node.attributes.get<BoxDecodeAttributes>()), batch_(src[0][0]), count_(src[0][1]) {}
  template <typename Policy>
  void run(std::span<std::byte* const> operands, const Policy& policy) const {
    const T *const data = reinterpret_cast<const T*>(operands[0]), *const anchors = reinterpret_cast<const T*>(operands[1]);
    T* const out = reinterpret_cast<T*>(operands[2]);
    constexpr std::int64_t kWork = 64;  // of two exponential functions and what goes with them
    policy.ranges(batch_ * count_, 1, batch_ * count_ * kWork, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        std::ranges::transform(decoded(box_from(data + 4 * i), box_from(anchors + i % count_ * 4)), out + 4 * i,
                               to_element<T, F>);
    });
  }

 private:
  Box<F> decoded(const Box<F>& offset, const Box<F>& given) const {
    const auto limited = [&](F x) {
      const auto most = static_cast<F>(decode_.clip);
      return most > 0 && !(x < most) ? most : x;
    };
    const Box<F> anchor = decode_.format == BoxFormat::kCorner ? to_center(given) : given;
    const F x = offset[0] * decode_.factor_x * anchor[2] + anchor[0];
    const F y = offset[1] * decode_.factor_y * anchor[3] + anchor[1];
    const F width = std::exp(limited(offset[2] * decode_.factor_width)) * anchor[2];
    const F height = std::exp(limited(offset[3] * decode_.factor_height)) * anchor[3];
    return to_corner(Box<F>{x, y, width, height});
  }

  BoxDecodeAttributes decode_;
  std::int64_t batch_, count_;
};

template <typename T>
class BoxEncode : public NoScratch {
 public:
  using F = Compute<T>;

  BoxEncode(const Node&, std::span<const Shape> src, std::span<const Shape> dst)
      : count_(dst[0][1]), boxes_(dst[0][0] * dst[0][1]), refs_(src[3][1]) {}
  template <typename Policy>
  void run(std::span<std::byte* const> operands, const Policy& policy) const {
    constexpr std::int64_t kWork = 64;  // of two logarithms and what goes with them
    policy.ranges(boxes_, 1, boxes_ * kWork, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) encode(operands, i);
    });
  }

 private:
  void encode(std::span<std::byte* const> operands, std::int64_t i) const {
    const auto input = [&](std::size_t k) { return reinterpret_cast<const T*>(operands[k]); };
    Box<F> targets{};
    const bool is_sample = static_cast<F>(input(0)[i]) > F{0.5};
    if (is_sample && refs_ > 0) {
      const Box<F> means = box_from(input(4)), deviations = box_from(input(5));
      const std::int64_t match = std::clamp<std::int64_t>(convert<std::int64_t>(load_element_once(input(1) + i)), 0, refs_ - 1);
      const Box<F> anchor = to_center(box_from(input(2) + 4 * i));
      const Box<F> ref = to_center(box_from(input(3) + 4 * (i / count_ * refs_ + match)));
      targets = {(ref[0] - anchor[0]) / anchor[2], (ref[1] - anchor[1]) / anchor[3], std::log(ref[2] / anchor[2]),
                 std::log(ref[3] / anchor[3])};
      for (std::size_t k = 0; k < targets.size(); ++k) targets[k] = (targets[k] - means[k]) / deviations[k];
    }
    T *const out = reinterpret_cast<T*>(operands[6]), *const masks = reinterpret_cast<T*>(operands[7]);
    if (out != nullptr) std::ranges::transform(targets, out + 4 * i, to_element<T, F>);
    if (masks != nullptr) std::fill_n(masks + 4 * i, 4, to_element<T>(is_sample ? F{1} : F{0}));
  }

  std::int64_t count_, boxes_, refs_;
};

template <typename T>
class BipartiteMatching {
 public:
  using F = Compute<T>;

  BipartiteMatching(const Node& node, std::span<const Shape> src, std::span<const Shape>)
      : matching_(node.attributes.get<BipartiteMatchingAttributes>()),
        batch_(AxisView(src[0], src[0].rank() - 2).outer),
        rows_(src[0][src[0].rank() - 2]),
        columns_(src[0][src[0].rank() - 1]) {}
  std::size_t scratch_bytes() const { return bytes_of_room<Room>(rows_, columns_); }
  template <typename Policy>
  void run(std::span<std::byte* const> operands, const Policy& policy) const {
    Scratch scratch(operands[3]);
    const Room room(scratch, rows_, columns_);
    const auto write = [](const std::int64_t* found, std::int64_t count, std::byte* to, std::int64_t n) {
      if (to == nullptr) return;
      std::transform(found, found + count, reinterpret_cast<T*>(to) + n * count,
                     [](std::int64_t place) { return to_element<T>(static_cast<F>(place)); });
    };
    for (std::int64_t n = 0; n < batch_; ++n) {
      match(reinterpret_cast<const T*>(operands[0]) + n * rows_ * columns_, room, policy);
      write(room.of_row, rows_, operands[1], n);
      write(room.of_column, columns_, operands[2], n);
    }
  }

 private:
  struct Room {
    Ranked<F>* ranks;
    std::int64_t *of_row, *of_column;  ///< -1: none
    Room(Scratch& scratch, std::int64_t rows, std::int64_t columns)
        : ranks(scratch.take<Ranked<F>>(rows * columns)),
          of_row(scratch.take<std::int64_t>(rows)),
          of_column(scratch.take<std::int64_t>(columns)) {}
  };

  /// Matches rows and columns of one matrix of scores, the best first.
  template <typename Policy>
  void match(const T* scores, const Room& room, const Policy& policy) const {
    std::fill_n(room.of_row, rows_, -1);
    std::fill_n(room.of_column, columns_, -1);
    const std::int64_t all = rows_ * columns_;
    const std::int64_t found = rank_best(all, all, room.ranks, policy, [&](std::int64_t i, F& best) {
      const F score = static_cast<F>(load_element_once(scores + i));
      best = matching_.ascending ? -score : score;  // the highest is the best
      return matching_.ascending ? score < matching_.threshold : score > matching_.threshold;
    });
    std::int64_t count = 0;
    for (std::int64_t rank = 0; rank < found; ++rank) {
      const std::int64_t at = room.ranks[rank].index, row = at / columns_, column = at % columns_;
      if (room.of_row[row] >= 0 || room.of_column[column] >= 0) continue;
      room.of_row[row] = column;
      room.of_column[column] = row;
      if (matching_.topk > 0 && ++count > matching_.topk) break;  // MXNet finds one match more
    }
  }

  BipartiteMatchingAttributes matching_;
  std::int64_t batch_, rows_, columns_;
};

}  // namespace shoal::worker

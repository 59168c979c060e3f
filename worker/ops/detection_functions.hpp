// MultiBoxDetection as a function that devices divide among their threads.
#pragma once

#include <array>
#include <cmath>

#include "worker/ops/detection.hpp"
#include "worker/ops/suppression.hpp"

namespace shoal::worker {

template <typename T>
class MultiBoxDetection {
 public:
  using F = Compute<T>;
  static constexpr std::int64_t kFields = 6;  // of a detection: class, score, left, top, right, bottom

  MultiBoxDetection(const Node& node, std::span<const Shape> src, std::span<const Shape>)
      : attributes_(node.attributes.get<MultiBoxDetectionAttributes>()),
        batch_(src[0][0]),
        classes_(src[0][1]),
        count_(src[0][2]),
        most_(attributes_.topk > 0 ? std::min(attributes_.topk, count_) : count_),
        suppresses_(!(attributes_.overlap <= 0 || attributes_.overlap > 1)) {}
  std::size_t scratch_bytes() const { return bytes_of_room<Room>(count_, most_); }
  template <typename Policy>
  void run(std::span<std::byte* const> operands, const Policy& policy) const {
    Scratch scratch(operands[4]);
    const Room room(scratch, count_, most_);
    for (std::int64_t n = 0; n < batch_; ++n) {
      T* const rows = reinterpret_cast<T*>(operands[3]) + n * count_ * kFields;
      find_classes(reinterpret_cast<const T*>(operands[0]) + n * classes_ * count_, room, policy);
      std::int64_t found = 0;
      for (std::int64_t i = 0; i < count_; ++i) {
        if (room.classes[i] > 0 && !(room.scores[i] < attributes_.threshold)) room.places[found++] = i;
      }
      std::int64_t sorted = 0;
      if (suppresses_) {
        sorted = rank_best(found, most_, room.ranks, policy, [&](std::int64_t i, F& score) {
          score = static_cast<F>(to_element<T>(room.scores[room.places[i]]));
          return true;
        });
      }
      write(reinterpret_cast<const T*>(operands[1]) + n * count_ * 4, reinterpret_cast<const T*>(operands[2]), found, sorted,
            room, rows, policy);
      if (suppresses_) suppress(found, sorted, room, rows, policy);
      std::fill(rows + found * kFields, rows + count_ * kFields, to_element<T>(F{-1}));
    }
  }

 private:
  struct Room {
    F* scores;              ///< of each anchor's best class
    std::int32_t* classes;  ///< that class; 0 is the background
    std::int64_t* places;   ///< the anchors at which something was detected
    Ranked<F>* ranks;
    BoxRanking<F> boxes;
    Room(Scratch& scratch, std::int64_t count, std::int64_t most)
        : scores(scratch.take<F>(count)),
          classes(scratch.take<std::int32_t>(count)),
          places(scratch.take<std::int64_t>(count)),
          ranks(scratch.take<Ranked<F>>(count)),
          boxes(scratch, most) {}
  };

  template <typename Policy>
  void find_classes(const T* scores, const Room& room, const Policy& policy) const {
    policy.ranges(count_, 1, classes_ * count_, [&](std::int64_t begin, std::int64_t end) {
      F* const best = room.scores;
      std::int32_t* const found = room.classes;
      std::fill(best + begin, best + end, F{-1});
      std::fill(found + begin, found + end, 0);
      for (std::int64_t c = 1; c < classes_; ++c) {
        const T* const row = scores + c * count_;
        const auto number = static_cast<std::int32_t>(c);
        policy.vectorized([=] {
          for (std::int64_t i = begin; i < end; ++i) {
            const F score = static_cast<F>(row[i]), so_far = best[i];
            const std::int32_t last = found[i];
            const bool wins = score > so_far;
            best[i] = wins ? score : so_far;
            found[i] = wins ? number : last;
          }
        });
      }
    });
  }

  /// Rows of the `sorted` best, then those behind them as they were found.
  template <typename Policy>
  void write(const T* offsets, const T* anchors, std::int64_t found, std::int64_t sorted, const Room& room, T* rows,
             const Policy& policy) const {
    constexpr std::int64_t kWork = 64;  // of two exponential functions and what goes with them
    policy.ranges(found, 1, found * kWork, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t place = room.places[i < sorted ? room.ranks[i].index : i];
        T* const row = rows + i * kFields;
        row[0] = to_element<T>(static_cast<F>(room.classes[place] - 1));
        row[1] = to_element<T>(room.scores[place]);
        std::ranges::transform(box_at(anchors + 4 * place, offsets + 4 * place), row + 2, to_element<T, F>);
      }
    });
  }

  /// The corners of the box that a network sees at an anchor.
  std::array<F, 4> box_at(const T* anchor, const T* offset) const {
    const auto at = [](const T* box, int i) { return static_cast<F>(box[i]); };
    const auto& variances = attributes_.variances;
    const F width = at(anchor, 2) - at(anchor, 0), height = at(anchor, 3) - at(anchor, 1);
    const F center_x = (at(anchor, 0) + at(anchor, 2)) / 2, center_y = (at(anchor, 1) + at(anchor, 3)) / 2;
    const F x = at(offset, 0) * variances[0] * width + center_x;
    const F y = at(offset, 1) * variances[1] * height + center_y;
    const F half_x = std::exp(at(offset, 2) * variances[2]) * width / 2;
    const F half_y = std::exp(at(offset, 3) * variances[3]) * height / 2;
    std::array<F, 4> corners{x - half_x, y - half_y, x + half_x, y + half_y};
    // NaN becomes 1, as in MXNet.
    for (F& corner : corners) corner = attributes_.clip ? std::max(F{0}, std::min(F{1}, corner)) : corner;
    return corners;
  }

  /// Gives the rows that are suppressed or beyond topk the class -1.
  template <typename Policy>
  void suppress(std::int64_t found, std::int64_t sorted, const Room& room, T* rows, const Policy& policy) const {
    for (std::int64_t i = 0; i < sorted; ++i) {
      const auto at = [row = rows + i * kFields](int k) { return static_cast<F>(row[k]); };
      const std::int32_t found_class = room.classes[room.places[room.ranks[i].index]];
      room.boxes.set(i, {at(2), at(3), at(4), at(5), (at(4) - at(2)) * (at(5) - at(3))},
                     attributes_.across_classes ? 0 : found_class);
    }
    const auto overlap = attributes_.overlap;
    room.boxes.keep(
        sorted, sorted,
        [overlap](const SizedBox<F>& kept, const SizedBox<F>& other) {
          const F width = std::max(F{0}, std::min(kept.right, other.right) - std::max(kept.left, other.left));
          const F height = std::max(F{0}, std::min(kept.bottom, other.bottom) - std::max(kept.top, other.top));
          const F both = width * height, all = kept.area + other.area - both;
          return (all <= 0 ? F{0} : both / all) >= overlap;
        },
        policy);
    for (std::int64_t i = 0; i < found; ++i) {
      if (i >= sorted || !room.boxes.is_kept(i)) rows[i * kFields] = to_element<T>(F{-1});
    }
  }

  MultiBoxDetectionAttributes attributes_;
  std::int64_t batch_, classes_, count_, most_;
  bool suppresses_;
};

}  // namespace shoal::worker

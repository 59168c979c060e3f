// Ranking boxes by score, and dropping those that overlap better ones.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "worker/ops/divided.hpp"
#include "worker/ops/ordering_functions.hpp"

namespace shoal::worker {

/// Of 0 .. count those that take part, the highest score first, of equal ones the first; NaN come last. At most `most`. Returns
/// how many.
///   room   of `count`
///   offer  offer(i, score): does i take part? Sets its score
template <typename Score, typename Policy, typename Offer>
std::int64_t rank_best(std::int64_t count, std::int64_t most, Ranked<Score>* room, const Policy& policy, const Offer& offer) {
  constexpr std::int64_t kParts = 16;
  constexpr ComesBefore<Score, false> kBefore{};
  const auto cut = [&](Ranked<Score>* first, std::int64_t found) {
    if (found <= most) return found;
    std::nth_element(first, first + most, first + found, kBefore);
    return most;
  };
  const auto first_of = [&](std::int64_t part) { return count / kParts * part + std::min(part, count % kParts); };
  std::array<std::int64_t, kParts> found{};
  policy.ranges(kParts, 1, count, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      Ranked<Score>* const first = room + first_of(part);
      Ranked<Score>* next = first;
      for (std::int64_t i = first_of(part); i < first_of(part + 1); ++i) {
        Score score;
        if (offer(i, score)) *next++ = {score, i};
      }
      found[static_cast<std::size_t>(part)] = cut(first, next - first);
    }
  });
  std::int64_t all = 0;
  for (std::int64_t part = 0; part < kParts; ++part) {
    const Ranked<Score>* const first = room + first_of(part);
    std::copy(first, first + found[static_cast<std::size_t>(part)], room + all);
    all += found[static_cast<std::size_t>(part)];
  }
  all = cut(room, all);
  std::sort(room, room + all, kBefore);
  return all;
}

/// A box, and what its rule needs of its size.
template <typename F>
struct SizedBox {
  F left, top, right, bottom, area;
};

/// Boxes, the best first, and memory to find those that no better one suppresses. Only boxes of the same group concern each
/// other.
template <typename F>
class BoxRanking {
 public:
  BoxRanking(Scratch& scratch, std::int64_t most)
      : boxes_(scratch, most),
        kept_(scratch, most),
        members_(scratch.take<Member>(most)),
        is_kept_(scratch.take<std::uint8_t>(most)),
        groups_(scratch.take<std::int64_t>(most + 1)) {}

  void set(std::int64_t rank, const SizedBox<F>& box, std::int32_t group) const {
    boxes_.set(rank, box);
    members_[rank] = {group, rank};
  }

  /// Finds which of `count` boxes are kept. In a group that is alone it stops at `most`.
  ///   suppresses  suppresses(kept, other): does it?
  template <typename Rule, typename Policy>
  void keep(std::int64_t count, std::int64_t most, const Rule& suppresses, const Policy& policy) const {
    const auto before = [](const Member& a, const Member& b) { return a.group != b.group ? a.group < b.group : a.rank < b.rank; };
    const auto other_group = [](const Member& a, const Member& b) { return a.group != b.group; };
    if (std::adjacent_find(members_, members_ + count, other_group) != members_ + count) {
      std::sort(members_, members_ + count, before);
      most = count;
    }
    std::int64_t groups = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      if (i == 0 || members_[i].group != members_[i - 1].group) groups_[groups++] = i;
    }
    groups_[groups] = count;
    constexpr std::int64_t kWork = 32;  // of a box: it is compared with some
    policy.ranges(groups, 1, count * kWork, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t group = begin; group < end; ++group) {
        const std::int64_t first = groups_[group], size = groups_[group + 1] - first;
        policy.vectorized([=, self = *this] { self.keep_group(first, size, most, suppresses); });
      }
    });
  }
  bool is_kept(std::int64_t rank) const { return is_kept_[rank] != 0; }

 private:
  struct Member {
    std::int32_t group;
    std::int64_t rank;
  };
  /// One array for each number of a box, so that a box is compared with several at once.
  struct Columns {
    F *left, *top, *right, *bottom, *area;

    Columns(Scratch& scratch, std::int64_t count)
        : left(scratch.take<F>(count)),
          top(scratch.take<F>(count)),
          right(scratch.take<F>(count)),
          bottom(scratch.take<F>(count)),
          area(scratch.take<F>(count)) {}
    SizedBox<F> at(std::int64_t i) const { return {left[i], top[i], right[i], bottom[i], area[i]}; }
    void set(std::int64_t i, const SizedBox<F>& box) const {
      left[i] = box.left;
      top[i] = box.top;
      right[i] = box.right;
      bottom[i] = box.bottom;
      area[i] = box.area;
    }
  };

  // The boxes that were kept stand one behind the other, from `first` on.
  template <typename Rule>
  void keep_group(std::int64_t first, std::int64_t size, std::int64_t most, Rule suppresses) const {
    constexpr std::int64_t kBlock = 64;
    std::int64_t kept = 0;
    for (std::int64_t i = first; i < first + size; ++i) {
      const std::int64_t rank = members_[i].rank;
      const SizedBox<F> box = boxes_.at(rank);
      int is_suppressed = kept >= most ? 1 : 0;
      for (std::int64_t begin = 0; begin < kept && is_suppressed == 0; begin += kBlock) {
        const std::int64_t from = first + begin, end = first + std::min(begin + kBlock, kept);
        for (std::int64_t k = from; k < end; ++k) is_suppressed |= suppresses(kept_.at(k), box) ? 1 : 0;
      }
      is_kept_[rank] = is_suppressed == 0 ? 1 : 0;
      if (is_suppressed == 0) kept_.set(first + kept++, box);
    }
  }

  Columns boxes_, kept_;
  Member* members_;
  std::uint8_t* is_kept_;
  std::int64_t* groups_;
};

}  // namespace shoal::worker

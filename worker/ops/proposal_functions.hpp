// Proposal as a function that devices divide among their threads.
#pragma once

#include <array>
#include <cmath>
#include <vector>

#include "worker/ops/proposal.hpp"
#include "worker/ops/suppression.hpp"

namespace shoal::worker {

/// What im_info says of one picture, in pixels of the map's picture.
template <typename F>
struct ProposalPicture {
  F height, width, least_size;
  std::int64_t rows, columns;  ///< cells of the map that lie in it

  template <typename T>
  ProposalPicture(const ProposalAttributes& proposal, const T* info)
      : height(static_cast<F>(load_element_once(info))),
        width(static_cast<F>(load_element_once(info + 1))),
        least_size(static_cast<F>(proposal.least_size) * static_cast<F>(info[2])),
        rows(cells(height, proposal.stride)),
        columns(cells(width, proposal.stride)) {}

 private:
  static std::int64_t cells(F size, std::int64_t stride) {
    return cut<std::int32_t>(static_cast<double>(size / static_cast<F>(stride)));
  }
};

template <typename T>
class Proposal {
 public:
  using F = Compute<T>;
  using Picture = ProposalPicture<F>;
  struct Region {
    F left = 0, top = 0, right = 0, bottom = 0, score = 0;
  };

  Proposal(const Node& node, std::span<const Shape> src, std::span<const Shape>)
      : proposal_(node.attributes.get<ProposalAttributes>()),
        anchors_(anchors_of(proposal_)),
        batch_(src[0][0]),
        rows_(src[0][2]),
        columns_(src[0][3]),
        all_(static_cast<std::int64_t>(anchors_.size()) * rows_ * columns_),
        most_(proposal_.most_sorted > 0 ? std::min(proposal_.most_sorted, all_) : all_) {}
  std::size_t scratch_bytes() const { return bytes_of_room<Room>(all_, most_); }
  template <typename Policy>
  void run(std::span<std::byte* const> operands, const Policy& policy) const {
    Scratch scratch(operands[5]);
    const Room room(scratch, all_, most_);
    for (std::int64_t n = 0; n < batch_; ++n) {
      const Picture picture(proposal_, reinterpret_cast<const T*>(operands[2]) + 3 * n);
      find_regions(picture, reinterpret_cast<const T*>(operands[0]) + n * 2 * all_,
                   reinterpret_cast<const T*>(operands[1]) + n * 4 * all_, room.regions, policy);
      write(find_best(room, policy), room, n, reinterpret_cast<T*>(operands[3]), reinterpret_cast<T*>(operands[4]));
    }
  }

 private:
  struct Room {
    Region* regions;
    Ranked<F>* ranks;
    BoxRanking<F> boxes;
    Room(Scratch& scratch, std::int64_t all, std::int64_t most)
        : regions(scratch.take<Region>(all)), ranks(scratch.take<Ranked<F>>(all)), boxes(scratch, most) {}
  };

  /// The anchors of the first cell, ratio by ratio. Both corners are pixels of an anchor, so it is right - left + 1 wide.
  static std::vector<Region> anchors_of(const ProposalAttributes& proposal) {
    std::vector<Region> anchors;
    const auto side = static_cast<float>(proposal.stride);
    const float center = 0.5F * (side - 1);
    for (const float ratio : proposal.ratios) {
      for (const float scale : proposal.scales) {
        const float width = std::floor(std::sqrt(std::floor(side * side / ratio)) + 0.5F) * scale;
        const float height = std::floor(width / scale * ratio + 0.5F) * scale;
        const float half_width = 0.5F * (width - 1), half_height = 0.5F * (height - 1);
        anchors.push_back({.left = center - half_width,
                           .top = center - half_height,
                           .right = center + half_width,
                           .bottom = center + half_height});
      }
    }
    return anchors;
  }

  /// An anchor moved and stretched by the four numbers that a network found for it.
  Region moved(const Region& anchor, const std::array<F, 4>& offsets) const {
    if (proposal_.adds_offsets) {
      return {anchor.left + offsets[0], anchor.top + offsets[1], anchor.right + offsets[2], anchor.bottom + offsets[3]};
    }
    const F width = anchor.right - anchor.left + 1, height = anchor.bottom - anchor.top + 1;
    // In double where MXNet computes in double: regions near a threshold are decided alike.
    const auto moved_center = [](F low, F size, F offset) { return offset * size + static_cast<F>(low + 0.5 * (size - 1.0)); };
    const auto stretched = [](F size, F offset) { return static_cast<F>(std::exp(static_cast<double>(offset)) * size); };
    const F x = moved_center(anchor.left, width, offsets[0]), y = moved_center(anchor.top, height, offsets[1]);
    const double half_width = 0.5 * (stretched(width, offsets[2]) - 1.0),
                 half_height = 0.5 * (stretched(height, offsets[3]) - 1.0);
    return {static_cast<F>(x - half_width), static_cast<F>(y - half_height), static_cast<F>(x + half_width),
            static_cast<F>(y + half_height)};
  }

  /// The regions of all anchors of a picture, cell by cell.
  template <typename Policy>
  void find_regions(const Picture& picture, const T* scores, const T* offsets, Region* regions, const Policy& policy) const {
    constexpr std::int64_t kWork = 64;  // of two exponential functions and what goes with them
    const std::int64_t cells = rows_ * columns_, anchors = static_cast<std::int64_t>(anchors_.size());
    policy.ranges(cells, 1, all_ * kWork, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t cell = begin; cell < end; ++cell) {
        for (std::int64_t a = 0; a < anchors; ++a) {
          const auto channel = [&](std::int64_t of, const T* data) { return static_cast<F>(data[of * cells + cell]); };
          const std::array<F, 4> given{channel(4 * a, offsets), channel(4 * a + 1, offsets), channel(4 * a + 2, offsets),
                                       channel(4 * a + 3, offsets)};
          regions[cell * anchors + a] =
              region_at(picture, cell, static_cast<std::size_t>(a), given, channel(anchors + a, scores));
        }
      }
    });
  }

  Region region_at(const Picture& picture, std::int64_t cell, std::size_t anchor, const std::array<F, 4>& offsets,
                   F score) const {
    const auto within = [](F place, F size) { return std::max(std::min(place, size - 1), F{0}); };
    const std::int64_t row = cell / columns_, column = cell % columns_;
    const F x = static_cast<F>(column * proposal_.stride), y = static_cast<F>(row * proposal_.stride);
    const Region& base = anchors_[anchor];
    Region region = moved({base.left + x, base.top + y, base.right + x, base.bottom + y}, offsets);
    region = {within(region.left, picture.width), within(region.top, picture.height), within(region.right, picture.width),
              within(region.bottom, picture.height), score};
    if (row >= picture.rows || column >= picture.columns) region.score = -1;
    if (region.right - region.left + 1 < picture.least_size || region.bottom - region.top + 1 < picture.least_size) {
      const F border = picture.least_size / 2;
      region = {region.left - border, region.top - border, region.right + border, region.bottom + border, -1};
    }
    return region;
  }

  /// Puts the best regions that no better one suppresses in front of the ranks. Returns how many there are.
  template <typename Policy>
  std::int64_t find_best(const Room& room, const Policy& policy) const {
    const std::int64_t sorted = rank_best(all_, most_, room.ranks, policy, [&](std::int64_t i, F& score) {
      score = room.regions[i].score;
      return true;
    });
    for (std::int64_t i = 0; i < sorted; ++i) {
      const Region& r = room.regions[room.ranks[i].index];
      room.boxes.set(i, {r.left, r.top, r.right, r.bottom, (r.right - r.left + 1) * (r.bottom - r.top + 1)}, 0);
    }
    const auto overlap = proposal_.overlap;
    room.boxes.keep(
        sorted, proposal_.count,
        [overlap](const SizedBox<F>& kept, const SizedBox<F>& other) {
          const F width = std::max(F{0}, std::min(kept.right, other.right) - std::max(kept.left, other.left) + 1);
          const F height = std::max(F{0}, std::min(kept.bottom, other.bottom) - std::max(kept.top, other.top) + 1);
          const F both = width * height;
          return both / (kept.area + other.area - both) > overlap;
        },
        policy);
    std::int64_t kept = 0;
    for (std::int64_t i = 0; i < sorted; ++i) {
      if (room.boxes.is_kept(i)) room.ranks[kept++] = room.ranks[i];
    }
    return kept;
  }

  /// If there are too few regions, they come again from the first on.
  void write(std::int64_t best, const Room& room, std::int64_t n, T* regions, T* scores) const {
    for (std::int64_t i = 0; i < proposal_.count; ++i) {
      const Region region = best == 0 ? Region() : room.regions[room.ranks[i % best].index];  // 0: a map without cells
      const std::int64_t at = n * proposal_.count + i;
      if (regions != nullptr) {
        const std::array row{static_cast<F>(n), region.left, region.top, region.right, region.bottom};
        std::ranges::transform(row, regions + 5 * at, to_element<T, F>);
      }
      if (scores != nullptr) scores[at] = to_element<T>(region.score);
    }
  }

  ProposalAttributes proposal_;
  std::vector<Region> anchors_;
  std::int64_t batch_, rows_, columns_;
  std::int64_t all_;   ///< regions of a picture
  std::int64_t most_;  ///< of them, those that are ranked
};

/// Errors: kInvalidArgument if a picture has more cells than its map.
Status check_pictures(const Node& node, Sources src);

}  // namespace shoal::worker

#include "worker/exec/memory_plan.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "shm/base/ranges.hpp"

namespace shoal::worker {
namespace {

/// A piece that has its place.
struct Placed {
  int first, last;
  std::size_t offset, end;
};

bool alive_together(const Interval& a, const Placed& b) { return a.first <= b.last && b.first <= a.last; }

std::size_t lowest_gap(const std::vector<Placed>& by_offset, const Interval& piece) {
  std::size_t offset = 0;
  for (const Placed& other : by_offset) {
    if (!alive_together(piece, other)) continue;
    if (other.offset >= offset + piece.bytes) break;  // fits into the gap before it
    offset = std::max(offset, other.end);
  }
  return offset;
}

/// Finds placed pieces by the steps in which they are alive. A model may have tens of thousands of values, most of which live for
/// a few steps: if each piece looked at all others, the plan would take seconds.
class PlacedPieces {
 public:
  explicit PlacedPieces(int last_step) : alive_in_(block_of(last_step) + 1) {}

  /// The lowest offset at which `piece` overlaps nothing that is alive together with it.
  std::size_t find_room(const Interval& piece) {
    const std::size_t first = block_of(piece.first), last = block_of(piece.last);
    std::size_t candidates = 0;
    for (std::size_t block = first; block <= last; ++block) candidates += alive_in_[block].size();
    if (candidates > pieces_.size() / kFew) return lowest_gap(all_by_offset(), piece);  // sorting them would take longer
    found_.clear();
    for (std::size_t block = first; block <= last; ++block) {
      for (const Placed& other : alive_in_[block]) {
        // It may be in several blocks, and counts in the first of these.
        if (block == std::max(first, block_of(other.first)) && alive_together(piece, other)) found_.push_back(other);
      }
    }
    std::ranges::sort(found_, {}, &Placed::offset);
    return lowest_gap(found_, piece);
  }

  void add(const Placed& piece) {
    pieces_.push_back(piece);
    for (std::size_t block = block_of(piece.first); block <= block_of(piece.last); ++block) alive_in_[block].push_back(piece);
  }

 private:
  static constexpr std::size_t kBlock = 64;  // steps
  static constexpr std::size_t kFew = 32;    // up to this part of all pieces is few
  static std::size_t block_of(int step) { return static_cast<std::size_t>(step) / kBlock; }

  const std::vector<Placed>& all_by_offset() {
    const auto added = pieces_.begin() + static_cast<std::ptrdiff_t>(sorted_);
    std::ranges::sort(added, pieces_.end(), {}, &Placed::offset);
    std::ranges::inplace_merge(pieces_, added, {}, &Placed::offset);
    sorted_ = pieces_.size();
    return pieces_;
  }

  std::vector<Placed> pieces_;  ///< the first `sorted_` of them by offset
  std::size_t sorted_ = 0;
  std::vector<std::vector<Placed>> alive_in_;  ///< per block of steps
  std::vector<Placed> found_;
};

}  // namespace

MemoryPlan plan_memory(std::span<const Interval> intervals) {
  std::vector<std::size_t> by_size(intervals.size());
  std::iota(by_size.begin(), by_size.end(), std::size_t{0});
  std::stable_sort(by_size.begin(), by_size.end(), [&](auto a, auto b) { return intervals[a].bytes > intervals[b].bytes; });
  int last_step = 0;
  for (const Interval& interval : intervals) last_step = std::max(last_step, interval.last);

  MemoryPlan plan;
  plan.offsets.resize(intervals.size());
  PlacedPieces placed(last_step);
  for (const std::size_t index : by_size) {
    const Interval& piece = intervals[index];
    const std::size_t offset = placed.find_room(piece);
    const auto end = static_cast<std::size_t>(align_up(offset + piece.bytes, kTensorAlignment));
    plan.offsets[index] = offset;
    plan.total_bytes = std::max(plan.total_bytes, end);
    placed.add({piece.first, piece.last, offset, end});
  }
  return plan;
}

}  // namespace shoal::worker

// How the processes of clients divide a number of bytes that they all need.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace shoal::supervisor {

/// Divides `total` bytes among at most `clients` clients, which are processes here: connections of one process are one client. A
/// quarter is divided equally: each client always gets that part. The rest is for everyone: a client may use at most as much of
/// it as remains free for the others. So a few large clients cannot lock a small one out, and the bytes in use never exceed the
/// total.
///   Threads  immutable
struct FairShare {
  std::uint64_t total = 0;  ///< 0 = no limit
  std::size_t clients = 1;

  /// What a client may have in any case.
  std::uint64_t guaranteed() const { return total / 4 / std::max<std::size_t>(clients, 1); }
  /// What one client may have while the others have nothing.
  std::uint64_t most_of_one() const { return std::max(guaranteed(), common() / 2); }
  /// Whether a client that has `own` of the `used` bytes may have `more`.
  bool fits(std::uint64_t used, std::uint64_t own, std::uint64_t more) const {
    if (total == 0) return true;
    if (more > total || used > total - more) return false;
    const std::uint64_t after = used + more;
    if (own + more <= guaranteed()) return true;
    return after <= common() && own + more <= common() - after;
  }
  /// The most that a client may have more, if it has `own` of the `used` bytes.
  std::uint64_t room(std::uint64_t used, std::uint64_t own) const {
    const auto minus = [](std::uint64_t from, std::uint64_t bytes) { return from - std::min(from, bytes); };
    if (total == 0) return ~std::uint64_t{0};
    return std::min(minus(total, used), std::max(minus(guaranteed(), own), minus(common(), used + own) / 2));
  }
  /// Whether a client that has `own` must give up: the part for everyone is used up, and it has more than its guaranteed part.
  bool must_yield(std::uint64_t used, std::uint64_t own) const { return total != 0 && used > common() && own > guaranteed(); }

 private:
  std::uint64_t common() const { return total - total / 4; }
};

}  // namespace shoal::supervisor

#include "fetch/limits.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/fetch_timeout.hpp"

namespace shoal::fetch {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;
constexpr int kDefaultStallS = 30, kDefaultLimitMb = 65'536, kMostMb = 1 << 30;

}  // namespace

Result<Limits> limits_from_environment() {
  SHOAL_ASSIGN_OR_RETURN(const int total_s, fetch_timeout_s());
  SHOAL_ASSIGN_OR_RETURN(const int stall_s, number_variable("SHOAL_FETCH_STALL_S", kDefaultStallS, 1, kLongestFetchS));
  SHOAL_ASSIGN_OR_RETURN(const int limit_mb, number_variable("SHOAL_FETCH_LIMIT_MB", kDefaultLimitMb, 1, kMostMb));
  return Limits{.total_ns = static_cast<std::uint64_t>(total_s) * kSecondNs,
                .stall_ns = static_cast<std::uint64_t>(stall_s) * kSecondNs,
                .largest_bytes = static_cast<std::uint64_t>(limit_mb) << 20};
}

Course::Course(Limits limits, std::function<bool()> wants_more, std::function<void(const Progress&)> listener)
    : limits_(limits),
      wants_more_(std::move(wants_more)),
      listener_(std::move(listener)),
      deadline_ns_(monotonic_now_ns() + limits.total_ns) {}

Status Course::check() const {
  if (!wants_more_()) return cancelled("nobody waits for the files any more");
  if (monotonic_now_ns() < deadline_ns_) return {};
  return deadline_exceeded(
      "not complete within {} s (SHOAL_FETCH_TIMEOUT_S); what has come is kept, and the next try goes on there",
      limits_.total_ns / kSecondNs);
}

Status Course::sleep(std::uint64_t for_ns) const {
  constexpr std::uint64_t kStepNs = 50'000'000;
  const std::uint64_t until_ns = monotonic_now_ns() + for_ns;
  while (monotonic_now_ns() < until_ns) {
    SHOAL_RETURN_IF_ERROR(check());
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(kStepNs, for_ns)));
  }
  return {};
}

Status Course::take_bytes(std::uint64_t bytes) {
  if (bytes > bytes_left()) return too_large(bytes);
  taken_bytes_ += bytes;
  return {};
}

Status Course::too_large(std::uint64_t bytes) const {
  return failed_precondition("with {} bytes, the files of the model exceed {} MiB: raise SHOAL_FETCH_LIMIT_MB if that is right",
                             bytes, limits_.largest_bytes >> 20);
}

}  // namespace shoal::fetch

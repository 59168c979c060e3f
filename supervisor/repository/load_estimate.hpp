// How much memory it takes to load a version.
#pragma once

#include <cstdint>
#include <string>

#include "shm/model/version_entry.hpp"
#include "shoal/result.hpp"

namespace shoal::supervisor {

/// The most memory that loading takes, in bytes.
struct LoadEstimate {
  std::uint64_t parameters = 0;  // as they are read
  std::uint64_t packed = 0;
  std::uint64_t arenas = 0;   // one per lane
  std::uint64_t sum() const;  // the largest number if it would be larger
};
/// Estimates a version before it is loaded. `packed_bytes` and `arena_bytes` (of one lane) are those of the version that serves;
/// 0 = none serves.
LoadEstimate estimate_load(const VersionEntry& entry, std::uint64_t packed_bytes, std::uint64_t arena_bytes);
/// Errors: kFailedPrecondition: more than `available_bytes`. Names both numbers.
Status check_estimate(const std::string& model, const LoadEstimate& estimate, std::uint64_t available_bytes);

}  // namespace shoal::supervisor

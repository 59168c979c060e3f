// The versions that a model is asked to have, as they are found on disk; and what it would take to load one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shm/model/model_config.hpp"
#include "shoal/result.hpp"

namespace shoal::supervisor {

/// A PATH that begins so names a model that is built in and has no files: "builtin:identity" takes one input `data` of any
/// float32 shape and returns it.
inline constexpr std::string_view kBuiltinPrefix = "builtin:";

/// One version to serve, or why it cannot be. Name, path and version stand in `model` in any case.
struct VersionEntry {
  ServedModel model;
  Status failure;
  std::string stamp;                  // another one when a file of it was written again
  std::uint64_t parameter_bytes = 0;  // of its parameter file
};

/// The versions that are asked for, the lowest first; at least one, be it one that only says why there is none.
std::vector<VersionEntry> find_entries(const ModelRequest& request);

/// True when both would load the same files with the same keys; `workers` alone may differ.
bool same_version(const VersionEntry& a, const VersionEntry& b);

/// What loading takes at its peak, in bytes.
struct LoadEstimate {
  std::uint64_t parameters = 0;  // as they are read
  std::uint64_t packed = 0;
  std::uint64_t arenas = 0;  // one per lane
  std::uint64_t sum() const { return parameters + packed + arenas; }
};
/// Of a version before it is loaded. What is not known is taken from the version that is served (`packed_bytes`, `arena_bytes` of
/// one lane; 0 = none is).
LoadEstimate estimate_load(const VersionEntry& entry, std::uint64_t packed_bytes, std::uint64_t arena_bytes);
/// Errors: kFailedPrecondition: more than `available_bytes`, both named.
Status check_estimate(const std::string& model, const LoadEstimate& estimate, std::uint64_t available_bytes);

}  // namespace shoal::supervisor

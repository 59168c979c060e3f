// The JSON of kLoad and kLoaded (shm/wire/PROTOCOL.md has the keys).
#pragma once

#include <string>
#include <string_view>

#include "shoal/result.hpp"
#include "worker/engine/model_loader.hpp"

namespace shoal::worker {

/// Errors: kInvalidArgument (JSON of another kind), kFailedPrecondition (another build of the supervisor: both ids named).
Result<ModelSource> parse_load(std::string_view text);
std::string loaded_text(const LoadedModel& loaded, const std::string& hash);

}  // namespace shoal::worker

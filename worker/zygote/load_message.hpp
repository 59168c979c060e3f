// The JSON of kLoad and kLoaded (shm/wire/PROTOCOL.md has the keys).
#pragma once

#include <string>
#include <string_view>

#include "shoal/result.hpp"
#include "worker/engine/model_loader.hpp"

namespace shoal::worker {

/// Errors: kInvalidArgument (not the JSON of kLoad), kFailedPrecondition (the supervisor is another build; names both ids).
Result<ModelSource> parse_load(std::string_view text);
std::string loaded_text(const LoadedModel& loaded, const std::string& hash);
/// Adds to the warnings of what loaded_text() made; nothing if there is no room for it.
void add_warning(std::string& loaded, const std::string& warning);

}  // namespace shoal::worker

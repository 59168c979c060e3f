// The JSON that asks a zygote to load a model (PROTOCOL.md has the keys). worker/zygote/load_message.hpp parses it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "shm/model/model_config.hpp"
#include "shoal/result.hpp"

namespace shoal::wire {

/// [{"input", "dim", "sizes", "crop"}, ...]
nlohmann::json to_json(const std::vector<Buckets>& buckets);

/// The text of kLoad. Errors: kInvalidArgument: it does not fit into a control message (names the model and the keys).
Result<std::string> load_text(const ServedModel& model);

}  // namespace shoal::wire

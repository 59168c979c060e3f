// TensorSpecs in the JSON that clients, supervisor and zygotes exchange.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <vector>

#include "shoal/tensor.hpp"

namespace shoal::wire {

/// [{"name", "dtype", "shape"}, ...], and "ranges": [[lowest, highest], ...], one per dimension, where a spec has them.
nlohmann::json to_json(std::span<const TensorSpec> specs);
/// The reverse. Throws nlohmann::json::exception, std::runtime_error or shoal::Error on anything unexpected: each parser of a
/// whole message is the door that makes a Status of it.
std::vector<TensorSpec> to_specs(const nlohmann::json& list);

}  // namespace shoal::wire

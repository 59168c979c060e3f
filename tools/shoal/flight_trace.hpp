// Turns the workers' flight recorders into a trace for chrome://tracing and ui.perfetto.dev.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>

#include "shoal/result.hpp"

namespace shoal::tool {

/// The trace has a process per worker, a track per lane, and one track each for the control thread and the compiler. Each request
/// (or batch, with its requests) is a slice from its begin to its end; other events are instants. A request that ran when its
/// worker died ends with the worker. Times are microseconds since the first event.
///   description, events   from Pool::trace(). A daemon and its workers wrote them, so they are checked
///   Errors   kDataLoss (they do not fit together)
Result<nlohmann::json> chrome_trace(const nlohmann::json& description, std::span<const std::byte> events);

}  // namespace shoal::tool

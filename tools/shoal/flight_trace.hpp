// Flight recorders of workers as a trace for chrome://tracing and ui.perfetto.dev.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>

#include "shoal/result.hpp"

namespace shoal::tool {

/// A process per worker, a track per lane and one each for the control thread and the compiler; a slice from begun to ended for
/// each request (for a batch: one, with its requests), instants for the rest. What ran when the worker died ends with it. Times
/// are microseconds since the first event.
///   description, events   what Pool::trace() gave: written by a daemon and its workers, and not believed
///   Errors   kDataLoss: they do not fit together
Result<nlohmann::json> chrome_trace(const nlohmann::json& description, std::span<const std::byte> events);

}  // namespace shoal::tool

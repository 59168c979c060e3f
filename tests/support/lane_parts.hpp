// What a lane of a worker stands on, without its socket and thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "worker/serve/request_runner.hpp"

namespace shoal::test {

///   Threads  thread-bound
struct LaneParts {
  LaneParts(std::string name, worker::Model& model, std::vector<TensorSpec> inputs)
      : served{.name = std::move(name), .model = model, .inputs = std::move(inputs)} {}

  worker::ServedModelView served;
  worker::ArenaRegistry arenas;
  worker::CancelledRequests cancelled;
  worker::Quarantine quarantine;
  worker::MemoryLimit memory;
  wire::FlightRing ring{};
  worker::FlightRecorder flight{ring};
  wire::LaneLine line{};
  wire::ProgramLine program_line{};
  worker::ProgramCompiler compiler{served.model, cancelled, memory, flight, program_line};
  worker::LaneEnvironment environment{served, arenas, cancelled, quarantine, memory, compiler, flight};
};

}  // namespace shoal::test

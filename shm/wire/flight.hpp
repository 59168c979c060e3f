// Reads the flight recorder of a worker, living or dead. The worker may have written anything into it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "shm/wire/status_page.hpp"

namespace shoal::wire {

/// An event as it was read.
struct FlightRecord {
  std::uint64_t sequence = 0;  ///< the worker's count
  std::uint64_t time_ns = 0;   ///< CLOCK_MONOTONIC
  std::uint64_t request = 0;   ///< request_id; 0 = none
  FlightKind kind{};           ///< not checked: may be no value of FlightKind
  std::uint16_t lane = 0;      ///< kNoLane: the control thread or the compiling thread
  std::uint32_t value = 0;     ///< by kind
  friend bool operator==(const FlightRecord&, const FlightRecord&) = default;
};

/// The complete events, oldest first. Events that are being written, or were overwritten meanwhile, are left out.
///   Threads  any number of writers may run at the same time
std::vector<FlightRecord> read_flight(const FlightRing& ring);

/// "received", "begun", ...; "unknown" for other numbers.
std::string_view flight_kind_name(FlightKind kind);

}  // namespace shoal::wire

// Reading a flight recorder: of a worker that lives, that died, or that wrote garbage over it.
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
  FlightKind kind{};           ///< may be none of FlightKind's: nobody checks what a worker writes
  std::uint16_t lane = 0;      ///< kNoLane: the control thread, or the one that compiles
  std::uint32_t value = 0;     ///< by kind
  friend bool operator==(const FlightRecord&, const FlightRecord&) = default;
};

/// The events that are whole, oldest first; those being written, or overwritten meanwhile, are left out.
///   Threads  beside any number of writers
std::vector<FlightRecord> read_flight(const FlightRing& ring);

/// "received", "begun", ...; "unknown" for other numbers.
std::string_view flight_kind_name(FlightKind kind);

}  // namespace shoal::wire

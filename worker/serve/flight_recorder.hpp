// FlightRecorder: writes what this worker did last into its status page, which can be read after the worker's death.
#pragma once

#include <cstdint>

#include "shm/base/clock.hpp"
#include "shm/wire/status_page.hpp"

namespace shoal::worker {

/// Wait-free: no thread waits for one that was stopped while it wrote an event. If the ring has gone round once when that thread
/// continues, its event is left out.
///   Threads  thread-safe, and between processes
class FlightRecorder {
 public:
  /// The ring outlives this.
  explicit FlightRecorder(wire::FlightRing& ring) : ring_(ring) {}

  ///   lane   wire::kNoLane for a thread that is no lane
  ///   value  its meaning depends on `kind`
  void record(wire::FlightKind kind, std::uint16_t lane, std::uint64_t request, std::uint64_t value = 0) {
    constexpr auto relaxed = std::memory_order_relaxed, release = std::memory_order_release;
    const std::uint64_t sequence = ring_.last_sequence.fetch_add(1, relaxed) + 1;
    wire::FlightEvent& event = ring_.events[(sequence - 1) % wire::kFlightEvents];
    std::uint64_t before = event.sequence.load(relaxed);
    // The number of a place that is being written is higher than any other.
    if (before >= sequence ||
        !event.sequence.compare_exchange_strong(before, wire::kFlightBeingWritten, std::memory_order_acquire, relaxed))
      return;
    // Each release pairs with the acquire in read_flight(): a reader that sees one of these values sees that the place is being
    // written.
    event.time_ns.store(monotonic_now_ns(), release);
    event.request.store(request, release);
    event.what.store(static_cast<std::uint32_t>(kind) | static_cast<std::uint32_t>(lane) << 16, release);
    event.value.store(static_cast<std::uint32_t>(value), release);
    event.sequence.store(sequence, release);
  }

 private:
  wire::FlightRing& ring_;
};

}  // namespace shoal::worker

// FlightRecorder: what this worker did last, in its status page, where it stays readable after the worker's death.
#pragma once

#include <cstdint>

#include "shm/base/clock.hpp"
#include "shm/wire/status_page.hpp"

namespace shoal::worker {

/// Wait-free: nobody waits for a thread that was stopped while it wrote. What such a thread writes a whole turn of the ring later
/// is left out.
///   Threads  thread-safe, and between processes
class FlightRecorder {
 public:
  /// The ring outlives this.
  explicit FlightRecorder(wire::FlightRing& ring) : ring_(ring) {}

  ///   lane   wire::kNoLane: a thread that is none
  ///   value  by kind
  void record(wire::FlightKind kind, std::uint16_t lane, std::uint64_t request, std::uint64_t value = 0) {
    constexpr auto relaxed = std::memory_order_relaxed, release = std::memory_order_release;
    const std::uint64_t sequence = ring_.last_sequence.fetch_add(1, relaxed) + 1;
    wire::FlightEvent& event = ring_.events[(sequence - 1) % wire::kFlightEvents];
    std::uint64_t before = event.sequence.load(relaxed);
    // A taken place has the highest number of all.
    if (before >= sequence ||
        !event.sequence.compare_exchange_strong(before, wire::kFlightBeingWritten, std::memory_order_acquire, relaxed))
      return;
    // Release, each: pairs with the acquire in read_flight(). Who sees one of them sees that the place was taken.
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

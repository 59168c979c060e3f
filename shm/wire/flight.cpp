#include "shm/wire/flight.hpp"

#include <algorithm>

namespace shoal::wire {

std::vector<FlightRecord> read_flight(const FlightRing& ring) {
  std::vector<FlightRecord> records;
  records.reserve(kFlightEvents);
  for (std::size_t place = 0; place < kFlightEvents; ++place) {
    const FlightEvent& event = ring.events[place];
    // All loads are acquire: a reader that sees a field of a later event then also sees the changed sequence.
    const std::uint64_t sequence = event.sequence.load(std::memory_order_acquire);
    if (sequence == 0 || sequence == kFlightBeingWritten || (sequence - 1) % kFlightEvents != place) continue;
    FlightRecord record{.sequence = sequence};
    record.time_ns = event.time_ns.load(std::memory_order_acquire);
    record.request = event.request.load(std::memory_order_acquire);
    const std::uint32_t what = event.what.load(std::memory_order_acquire);
    record.kind = static_cast<FlightKind>(what & 0xffff);
    record.lane = static_cast<std::uint16_t>(what >> 16);
    record.value = event.value.load(std::memory_order_acquire);
    if (event.sequence.load(std::memory_order_relaxed) == sequence) records.push_back(record);
  }
  std::ranges::sort(records, {}, &FlightRecord::sequence);
  return records;
}

std::string_view flight_kind_name(FlightKind kind) {
  switch (kind) {
    case FlightKind::kNone:
      break;
    case FlightKind::kReceived:
      return "received";
    case FlightKind::kBegun:
      return "begun";
    case FlightKind::kEnded:
      return "ended";
    case FlightKind::kParked:
      return "parked";
    case FlightKind::kCompileBegun:
      return "compile_begun";
    case FlightKind::kCompileEnded:
      return "compile_ended";
    case FlightKind::kAttached:
      return "attached";
    case FlightKind::kDetached:
      return "detached";
    case FlightKind::kCancelled:
      return "cancelled";
    case FlightKind::kProbed:
      return "probed";
  }
  return "unknown";
}

}  // namespace shoal::wire

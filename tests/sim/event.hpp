// What may happen in the simulated world.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace shoal::test {

enum class EventKind : std::uint8_t {
  // Clients.
  kClientComes,
  kHandshakeGoesOn,
  kRequest,
  kCancel,
  kClientDies,
  kClientLies,
  // Lanes.
  kLaneTakes,
  kLaneBegins,
  kLaneAnswers,
  kLaneParks,
  kLaneFails,
  kLaneLies,
  kLaneFull,
  // Workers.
  kWorkerReady,
  kWorkerFails,
  kWorkerEnds,
  kWorkerKilled,
  kWorkerCrashes,
  kAccident,
  kWorkerVanishes,
  kWorkerStuck,
  kPaceChanges,
  kControlFull,
  kProbeAnswered,
  kProbeFails,
  // Zygotes and searches.
  kLoads,
  kLoadFails,
  kLoadLies,
  kZygoteExits,
  kSearchAnswers,
  kSearchDies,
  kSearchLies,
  // Operators.
  kLoad,
  kReload,
  kScale,
  kDrain,
  kUnload,
  kHangup,
  // Time.
  kTime,
  kLongTime,
  kStandstill,
  kCount
};
std::string_view event_name(EventKind kind);

/// Something that happens. `draw` chooses to whom, and how.
struct Event {
  EventKind kind{};
  std::uint64_t draw = 0;
  bool is_last = true;  // of those that come in one turn of the supervisor
};

/// Takes a number below `most` out of the draw.
inline std::uint64_t pick(std::uint64_t& draw, std::uint64_t most) {
  const std::uint64_t picked = draw % most;
  draw /= most;
  return picked;
}

/// More numbers out of a draw that is used up.
inline std::uint64_t stirred(std::uint64_t draw) {
  draw = (draw ^ draw >> 30) * 0xbf58476d1ce4e5b9;
  draw = (draw ^ draw >> 27) * 0x94d049bb133111eb;
  return draw ^ draw >> 31;
}

}  // namespace shoal::test

// What the explorer prints of events and of what they have covered.
#include "tests/unit/supervisor/route/explorer_world.hpp"

namespace shoal::supervisor {

namespace {

constexpr const char* kEventNames[] = {"submit",     "begin",         "answer",      "park",        "cancel",   "client dies",
                                       "time",       "worker starts", "worker dies", "undelivered", "routable", "probed",
                                       "fail model", "drain model",   "give up",     "dismiss"};
constexpr const char* kEvidenceNames[] = {"nothing said",     "running named",          "crash",
                                          "crash, not named", "killed from outside",    "crash of another thread",
                                          "out of memory",    "crash of a compilation", "a lie"};
constexpr const char* kDecisionNames[] = {"send", "forward", "reply", "release", "cancel run", "forget", "quarantine", "probe"};

}  // namespace

std::string Event::text() const {
  const std::string name = kEventNames[static_cast<std::size_t>(kind)];
  switch (kind) {
    case EventKind::kWorkerDies:
      return format("{} {} ({})", name, int{a}, kEvidenceNames[b]);
    case EventKind::kAnswer:
      return format("{} {}{}", name, int{a}, b ? " with an error" : "");
    case EventKind::kProbed:
      return name + (b ? " well" : " badly");
    case EventKind::kTime:
    case EventKind::kWorkerStarts:
    case EventKind::kFail:
    case EventKind::kDrain:
    case EventKind::kGiveUp:
      return name;
    default:
      return format("{} {}", name, int{a});
  }
}

std::vector<std::string> Coverage::texts() const {
  std::vector<std::string> lines;
  for (std::size_t event = 0; event < kEventKinds; ++event) {
    for (std::size_t from = 0; from < kPlaces; ++from) {
      for (std::size_t to = 0; to < kPlaces; ++to) {
        if (!transitions[(event * kPlaces + from) * kPlaces + to]) continue;
        lines.push_back(
            format("{}: {} -> {}", kEventNames[event], place_name(static_cast<Place>(from)), place_name(static_cast<Place>(to))));
      }
    }
    for (std::size_t kind = 0; kind < std::size(kDecisionNames); ++kind) {
      if (decisions[event * 16 + kind]) lines.push_back(format("{}: {}", kEventNames[event], kDecisionNames[kind]));
    }
    for (std::size_t code = 0; code < 16; ++code) {
      if (answers[event * 16 + code])
        lines.push_back(format("{}: answers {}", kEventNames[event], status_code_name(static_cast<StatusCode>(code))));
    }
  }
  for (std::size_t kind = 0; kind < kEvidences; ++kind) {
    for (std::size_t to = 0; to < kPlaces; ++to) {
      if (evidence[kind * kPlaces + to])
        lines.push_back(format("{}: -> {}", kEvidenceNames[kind], place_name(static_cast<Place>(to))));
    }
  }
  return lines;
}

}  // namespace shoal::supervisor

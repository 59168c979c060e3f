// Collects the events of the flight recorders of living and dead workers, for `shoal trace`.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "shm/base/clock.hpp"
#include "shm/base/json_text.hpp"
#include "shm/wire/flight.hpp"
#include "supervisor/admin/admin.hpp"

namespace shoal::supervisor {
namespace {

using nlohmann::json;
using wire::FlightRecord;

static_assert(sizeof(FlightRecord) == 32 && std::is_trivially_copyable_v<FlightRecord>);

constexpr std::size_t kMostBytes = 32 << 20;  // of events in one answer

/// One answer as it grows. Workers beyond kMostBytes are named in "left_out".
struct Trace {
  json workers = json::array(), left_out = json::array();
  std::vector<FlightRecord> events;

  void add(json worker, const wire::FlightRing* ring) {
    if (!ring) return;
    if ((events.size() + wire::kFlightEvents) * sizeof(FlightRecord) > kMostBytes) return left_out.push_back(worker.at("pid"));
    const std::vector<FlightRecord> records = wire::read_flight(*ring);
    worker["events"] = records.size();
    events.insert(events.end(), records.begin(), records.end());
    workers.push_back(std::move(worker));
  }
};

}  // namespace

void Admin::send_trace(Question question, const std::string& model, std::uint64_t pid) {
  Trace trace;
  const auto is_wanted = [&](const std::string& name, pid_t worker) {
    return (model.empty() || name == model) && (pid == 0 || pid == static_cast<std::uint64_t>(worker));
  };
  for (const DeadPage& dead : plane_.flights().pages()) {
    if (!is_wanted(dead.model, dead.pid)) continue;
    trace.add({{"model", dead.model},
               {"version", dead.version},
               {"pid", dead.pid},
               {"incarnation", dead.incarnation},
               {"lanes", dead.lanes},
               {"died_ns", dead.died_ns},
               {"what", plane_.deaths().what(dead.incarnation)}},
              wire::StatusPage(dead.page.bytes(), dead.lanes).flight);
  }
  fleet_.for_each([&](const ModelVersion& version) {
    const auto lanes = static_cast<std::size_t>(version.processes().options().lanes);
    version.processes().for_each_worker([&](const WorkerProcess& worker) {
      if (!worker.status_page || !is_wanted(version.served().name, worker.pid)) return;
      trace.add({{"model", version.served().name},
                 {"version", version.number()},
                 {"pid", worker.pid},
                 {"incarnation", worker.incarnation},
                 {"lanes", lanes},
                 {"died_ns", nullptr},
                 {"what", ""}},
                worker.page(lanes).flight);
    });
  });
  const wire::ControlHeader header = wire::make_control(wire::Kind::kControlReply, question.seq);
  const std::string text =
      json_text(json{{"now_ns", monotonic_now_ns()}, {"workers", trace.workers}, {"left_out", trace.left_out}});
  const std::uint64_t bytes = text.size() + trace.events.size() * sizeof(FlightRecord);
  charge(question.client, bytes);
  if (const Status room = plane_.check_answer(question.client, bytes); !room.ok()) return refuse(question, room);
  const std::span<const std::byte> frames[] = {std::as_bytes(std::span(&header, 1)), std::as_bytes(std::span(text)),
                                               std::as_bytes(std::span(trace.events))};
  plane_.send_to_client(question.client, frames);
}

}  // namespace shoal::supervisor

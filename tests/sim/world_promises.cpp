// What must hold, and how everything ends.
#include <algorithm>

#include "shm/base/format.hpp"
#include "tests/sim/world.hpp"

namespace shoal::test {

using namespace supervisor;

namespace {

constexpr std::uint64_t kLateNs = 10 * kMs;  // how late the supervisor may notice a deadline

}  // namespace

// Whatever a request waits for, its client hears by its deadline.
void World::check_deadlines() {
  for (const SimClient& client : clients_) {
    for (const auto& [seq, asked] : client.asked) {
      if (!asked.is_answered && asked.deadline_ns && clock_.now_ns() > *asked.deadline_ns + kLateNs)
        breaks(format("request {} of client {} was not answered by its deadline", seq, client.id));
    }
  }
}

const ModelVersion* World::find_version(VersionId id) const {
  const ModelVersion* found = nullptr;
  fleet_.for_each([&](const ModelVersion& version) {
    if (version.routed().id == id) found = &version;
  });
  return found;
}

World::Serving* World::serving_of(const SimProcesses& model, const ModelVersion** version) {
  Serving* serving = nullptr;
  fleet_.for_each([&](const ModelVersion& each) {
    if (&each.processes() != &model) return;
    serving = &serving_[each.routed().id];
    if (version) *version = &each;
  });
  return serving;
}

// A version serves when its workers are ready, and not before; and a model that serves goes on while it is changed. A breaker
// opens after five crashes within ten seconds that nobody is to blame for, and not before.
void World::check_versions() {
  std::set<VersionId> serve;
  for (const auto& service : fleet_.catalog().services()) {
    const bool served_before = std::ranges::any_of(service->versions, [&](const auto& one) { return served_.contains(one->id); });
    if (served_before && !service->current) breaks(format("nothing of model {} serves any more", service->name));
    for (const auto& version : service->versions) {
      if (!version->serves()) continue;
      serve.insert(version->id);
      const Processes& processes = fleet_.version(version->id).processes();
      const bool is_new = !served_.contains(version->id) && processes.state() != ModelState::kFailed;
      if (is_new && processes.ready_workers() < processes.options().workers)
        breaks(format("version {} of model {} serves without its workers", version->id, service->name));
    }
  }
  served_ = std::move(serve);

  std::size_t versions = 0;
  fleet_.for_each([&](const ModelVersion& version) {
    ++versions;
    Serving& serving = serving_[version.routed().id];
    const bool is_closed = plane_.ledger().model(version.routed().index).breaker.closed();
    while (!serving.crashes_ns.empty() && clock_.now_ns() - serving.crashes_ns.front() > Breaker::kWithinNs)
      serving.crashes_ns.pop_front();
    const bool has_crashed = serving.crashes_ns.size() >= Breaker::kCrashes;
    if (is_closed && serving.was_closed && has_crashed) breaks(format("{} goes on after five crashes", version.served().name));
    if (!is_closed && serving.was_closed && !has_crashed)
      breaks(format("{} rests after {} crashes", version.served().name, serving.crashes_ns.size()));
    if (is_closed && !serving.was_closed) serving.crashes_ns.clear();
    serving.was_closed = is_closed;
    if (is_closed && version.processes().ready_workers() > 0)
      serving.stuck_lived_ns.reset();
    else if (!serving.stuck_lived_ns)
      serving.stuck_lived_ns = processes_.lived_ns;
  });
  if (serving_.size() == versions) return;
  std::set<VersionId> known;
  fleet_.for_each([&](const ModelVersion& version) { known.insert(version.routed().id); });
  std::erase_if(serving_, [&](const auto& each) { return !known.contains(each.first); });
}

// A worker that is being ended gets nothing: what it gets would have to run again.
void World::check_sent(const wire::RequestHeader& header) {
  const SimWorker* worker = processes_.find(header.incarnation);
  const WorkerProcess* known = worker ? processes_.all.at(worker->unit)->find_watched(header.incarnation) : nullptr;
  if (known && known->ended != EndReason::kNone)
    breaks(format("request {} was sent to worker {}, which is being ended", header.request_id, header.incarnation));
  if (rules_.is_even) check_share(header);
  for (SimClient& client : clients_) {
    const auto asked = client.asked.find(header.seq);
    if (client.id == header.client_id && asked != client.asked.end()) asked->second.is_sent = true;
  }
}

// While one client asks without end, another one has its turns: a share of what is sent to lanes, and not all that came before.
void World::check_share(const wire::RequestHeader& header) {
  constexpr std::uint64_t kTurns = 2, kAtFirst = 2;
  for (SimClient& client : clients_) {
    for (auto& [seq, asked] : client.asked) {
      if (client.id != header.client_id) {
        asked.others_sent += !asked.is_sent;
      } else if (seq == header.seq) {
        if (asked.others_sent > kTurns * (asked.own_before + 1) * (clients_.size() - 1) + kAtFirst)
          breaks(format("request {} of client {} waited for {} of others, and for {} of its own", seq, client.id,
                        asked.others_sent, asked.own_before));
      }
    }
  }
}

// What the supervisor itself answers has a reason. A change of what is served is none.
void World::check_refusal(const std::string& name, const Asked& asked, StatusCode status) {
  switch (status) {
    case StatusCode::kOk:
      return breaks(name + " was answered by nobody");
    case StatusCode::kPoison:
      if (asked.due != status)
        breaks(format("{} is said to be poison, and is {} after {} deaths with evidence", name,
                      asked.is_guilty ? "guilty" : "innocent", asked.accused));
      return;
    case StatusCode::kAborted:
      if (asked.due != status) breaks(format("{} was given up after {} deaths", name, asked.begun));
      return;
    case StatusCode::kDeadlineExceeded:
      if (!asked.deadline_ns) breaks(name + " is said to be too late, and has no deadline");
      return;
    case StatusCode::kUnavailable:
    case StatusCode::kFailedPrecondition:
    case StatusCode::kNotFound: {
      if (asked.version == 0) return;  // it was refused for what was so when it came
      const ModelVersion* version = find_version(asked.version);
      if (version && static_cast<const SimProcesses&>(version->processes()).has_failed()) return;
      const bool is_served = std::ranges::any_of(fleet_.catalog().services(), [&](const auto& service) {
        return std::ranges::count(service->versions, asked.version, &CatalogVersion::id) > 0;
      });
      if (!is_served) return;  // its model was unloaded
      const auto stuck_ns = version ? serving_[asked.version].stuck_lived_ns : std::nullopt;
      if (stuck_ns && processes_.lived_ns >= *stuck_ns + Catalog::kLeaveLimitNs) return;
      break;
    }
    case StatusCode::kInvalidArgument:
      return breaks(name + " is said to be wrong, and it is not");
    case StatusCode::kCancelled:
      if (!asked.is_cancelled) breaks(name + " is said to be cancelled, and nobody did");
      return;
    case StatusCode::kOverloaded:
      if (asked.is_sent) breaks(name + " was sent to a lane, and is refused");
      return;
    default:
      break;
  }
  breaks(format("{} was answered {}, and nothing of its model has failed", name, status_code_name(status)));
}

// ---- the end ----

std::string World::unquiet() const {
  for (const SimClient& client : clients_) {
    if (!client.is_hostile && !client.asked.empty())
      return format("request {} of client {} is not over", client.asked.begin()->first, client.id);
  }
  if (!wishes_.empty()) return format("wish {} has no answer", *wishes_.begin());
  if (fleet_.is_reading_configuration()) return "the configuration is not read";
  if (!plane_.ledger().idle()) return "the ledger has requests that nobody asked for";
  if (fleet_.catalog().is_busy()) return "a change of what is served does not end";
  std::size_t versions = 0;
  for (const auto& service : fleet_.catalog().services()) versions += service->versions.size();
  if (processes_.all.size() != versions) return "the processes of a version that is gone are kept";
  if (plane_.message_bytes() != 0) return format("{} bytes of messages are kept for nothing", plane_.message_bytes());
  if (!handshakes_.empty()) return "a client that is silent is not disconnected";
  for (const auto& [incarnation, worker] : processes_.workers) {
    for (const std::uint64_t client : worker.attached) {
      if (!worker.was_deaf() && !worker.is_stopped && std::ranges::count(clients_, client, &SimClient::id) == 0)
        return format("worker {} has the arenas of client {}, which is gone", incarnation, client);
    }
  }
  return "";
}

// Everything that is due happens well. Who is stuck stays so: the supervisor must find that out.
bool World::go_on() {
  for (auto& [incarnation, worker] : processes_.workers) {
    for (SimLane& lane : worker.lanes()) {
      if (lane.pace == Pace::kStarved) lane.pace = Pace::kFine;
    }
    for (std::uint32_t lane = 0; lane < worker.lanes().size(); ++lane)
      lane_transport_.set_full(peer_of({incarnation, lane}), false);
    const WorkerProcess* known = processes_.all.at(worker.unit)->find_worker(incarnation);
    if (worker.is_deaf() && known && known->control) worker.hear_again(known->control.get());
    read_control(worker);
  }
  for (int i = 0; i < 512 && broken().empty(); ++i) {
    bool has_happened = false;
    const auto may = [&](EventKind kind, const std::function<bool()>& happens) {
      words_.clear();
      if (!happens()) return;
      has_happened = true;
      turn();
      if (narrate) narrate(kind, words_);
    };
    const auto some_worker = [&](EventKind kind, const std::function<bool(SimProcesses&, std::uint64_t)>& can) {
      may(kind, [&] { return for_some_worker(0, can); });
    };
    may(EventKind::kLoads,
        [&] { return for_some_model(0, [](SimProcesses& model) { return model.loads(std::string(kLoaded)); }); });
    may(EventKind::kSearchAnswers, [&] { return search_ends(0, SearchEnd::kAnswers); });
    may(EventKind::kZygoteExits, [&] { return for_some_model(0, [](SimProcesses& model) { return model.zygote_exits(); }); });
    some_worker(EventKind::kWorkerEnds, [this](SimProcesses& model, std::uint64_t id) { return worker_ends(model, id); });
    some_worker(EventKind::kWorkerReady, [](SimProcesses& model, std::uint64_t id) { return model.becomes_ready(id); });
    some_worker(EventKind::kProbeAnswered, [](SimProcesses& model, std::uint64_t id) { return model.answers_probe(id, {}); });
    may(EventKind::kLaneTakes, [&] { return lane_takes(0); });
    may(EventKind::kLaneAnswers, [&] { return lane_answers(0, StatusCode::kOk); });
    may(EventKind::kLaneBegins, [&] { return slow_lane_begins(); });
    may(EventKind::kWorkerCrashes, [&] { return worker_crashes(9); });
    turn();
    if (!has_happened) break;
  }
  return unquiet().empty();
}

// Lanes that make no step answer nothing, but they begin.
bool World::slow_lane_begins() {
  const LaneAt slow = some_lane(0, [](LaneAt at) {
    return at.worker->can_act(at.lane) && at->pace == Pace::kSlow && !at->held.empty() && !at->has(Held::State::kRuns);
  });
  return slow && begin(slow, 0);
}

void World::settle() {
  if (std::exchange(has_news_, false)) turn();  // what happened last may have been in a turn with what would have followed
  for (int i = 0; i < 3'000 && broken().empty(); ++i) {
    if (go_on()) return;
    wait(i < 100 ? kMs : 100 * kMs);
  }
  breaks(format("it does not come to an end: {}", unquiet()));
}

}  // namespace shoal::test

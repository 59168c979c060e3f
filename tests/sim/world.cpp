// How things happen, and how time passes.
#include "tests/sim/world.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "shm/base/format.hpp"

namespace shoal::test {

using namespace supervisor;

namespace {

constexpr std::array<std::string_view, static_cast<std::size_t>(EventKind::kCount)> kNames = {"client comes",
                                                                                              "handshake goes on",
                                                                                              "request",
                                                                                              "cancel",
                                                                                              "client dies",
                                                                                              "client lies",
                                                                                              "lane takes",
                                                                                              "lane begins",
                                                                                              "lane answers",
                                                                                              "lane parks",
                                                                                              "lane fails",
                                                                                              "lane lies",
                                                                                              "lane is full",
                                                                                              "worker ready",
                                                                                              "worker fails to start",
                                                                                              "worker ends",
                                                                                              "worker killed",
                                                                                              "worker crashes",
                                                                                              "accident",
                                                                                              "worker vanishes",
                                                                                              "worker stuck",
                                                                                              "pace changes",
                                                                                              "control is full",
                                                                                              "probe answered",
                                                                                              "probe fails",
                                                                                              "model loads",
                                                                                              "load fails",
                                                                                              "load lies",
                                                                                              "zygote exits",
                                                                                              "search answers",
                                                                                              "search dies",
                                                                                              "search lies",
                                                                                              "load",
                                                                                              "reload",
                                                                                              "scale",
                                                                                              "drain",
                                                                                              "unload",
                                                                                              "hangup",
                                                                                              "time",
                                                                                              "long time",
                                                                                              "standstill"};

}  // namespace

std::string_view event_name(EventKind kind) { return kNames[static_cast<std::size_t>(kind)]; }

Logger& World::log() {
  static Logger log("sim");
  return log;
}

World::World(const std::string& directory, std::string model, WorldRules rules)
    : rules_(std::move(rules)),
      directory_(SocketDirectory::open(directory).value()),
      model_(std::move(model)),
      configuration_(directory + "/shoald.toml"),
      plane_({.clock = clock_,
              .clients = client_transport_,
              .lanes = lane_transport_,
              .directory = directory_,
              .loop = loop_,
              .timers = timers_,
              .log = log(),
              .read_threads = [this](pid_t process, std::size_t) { return read_threads(process); }},
             *this),
      fleet_({.models = {},
              .configuration_file = configuration_,
              .worker_file = "shoal-worker",
              .make_processes = [this](ProcessOptions options, ProcessObserver& observer) -> std::unique_ptr<Processes> {
                return std::make_unique<SimProcesses>(std::move(options), observer, processes_);
              },
              .spawn_finder = [this](const SpawnOptions& options) { return begin_search(options); }},
             clock_, directory_, loop_, timers_, plane_, *this, log()) {
  processes_.clock = &clock_;
  lane_transport_.on_pushed = [this](const SimMessage& sent) { check_sent(wire::decode_request(sent.at(0)).value().header); };
  lane_transport_.on_lost = [this](wire::PeerId peer) {
    if (SimWorker* worker = processes_.find(lane_of(peer).incarnation)) worker->is_cut_off = true;
  };
  clock_.advance_ns(1'000 * kMs);
  turned_ns_ = waits_from_ns_ = clock_.now_ns();
  if (const Status opened = plane_.open(); !opened.ok()) breaks(opened.to_string());
  if (const Status listens = plane_.clients().listen(); !listens.ok()) breaks(listens.to_string());
  limits_changed({});
  plane_.begin_turn(clock_.now_ns());
  fleet_.start({});
}

World::~World() {
  processes_.is_over = true;
  fleet_.close(Status(StatusCode::kUnavailable, "the world ends"));
  fleet_.end();
}

void World::limits_changed(const ClientLimits& limits) {
  ClientLimits these = limits;
  these.total_message_mb = 0;  // nothing is measured of this process
  these.connection_rate = 0;
  plane_.apply_limits(these);
}

bool World::happen(const Event& event) {
  // What a death, the passing of time or a wish means for a request depends on whether the supervisor has received it before. So
  // these have turns of their own.
  constexpr EventKind kAlone[] = {EventKind::kWorkerEnds, EventKind::kWorkerKilled,   EventKind::kWorkerCrashes,
                                  EventKind::kAccident,   EventKind::kWorkerVanishes, EventKind::kTime,
                                  EventKind::kLongTime,   EventKind::kStandstill,     EventKind::kLoad,
                                  EventKind::kReload,     EventKind::kScale,          EventKind::kDrain,
                                  EventKind::kUnload,     EventKind::kHangup};
  const bool is_alone = std::ranges::count(kAlone, event.kind) > 0;
  if (is_alone && std::exchange(has_news_, false)) turn();
  words_.clear();
  const bool has_happened = happens(event);
  has_news_ |= has_happened;
  const bool may_say_refusals = event.kind == EventKind::kRequest || event.kind == EventKind::kLongTime;
  if (!may_say_refusals) trace(words_);
  if ((event.is_last || is_alone) && std::exchange(has_news_, false)) turn();
  if (!has_happened) return false;
  if (++happened_ % 16 == 0) {
    for (auto& [incarnation, worker] : processes_.workers) read_control(worker);
  }
  return true;
}

void World::trace(const std::string& text) {
  for (const char letter : text) trace_ = (trace_ ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
}

bool World::happens(const Event& event) {
  std::uint64_t draw = event.draw;
  const auto some_worker = [&](auto can) { return for_some_worker(draw, can); };
  switch (event.kind) {
    case EventKind::kClientComes:
      return client_comes(draw);
    case EventKind::kHandshakeGoesOn:
      return handshake_goes_on(draw);
    case EventKind::kRequest:
      return request(draw);
    case EventKind::kCancel:
      return cancel(draw);
    case EventKind::kClientDies:
      return client_dies(draw);
    case EventKind::kClientLies:
      return pick(draw, 8) == 0 ? lies_at_the_door(draw) : client_lies(draw);
    case EventKind::kLaneTakes:
      return lane_takes(draw);
    case EventKind::kLaneBegins:
      return lane_begins(draw);
    case EventKind::kLaneAnswers:
      return lane_answers(draw, StatusCode::kOk);
    case EventKind::kLaneFails:
      return lane_answers(draw, StatusCode::kInternal);
    case EventKind::kLaneParks:
      return lane_parks(draw);
    case EventKind::kLaneLies:
      return lane_lies(draw);
    case EventKind::kLaneFull:
      return lane_is_full(draw);
    case EventKind::kWorkerReady:
      return some_worker([](SimProcesses& model, std::uint64_t id) { return model.becomes_ready(id); });
    case EventKind::kWorkerFails:
      return some_worker([](SimProcesses& model, std::uint64_t id) { return model.fails_to_start(id); });
    case EventKind::kWorkerEnds:
      return some_worker([this](SimProcesses& model, std::uint64_t id) { return worker_ends(model, id); });
    case EventKind::kWorkerKilled:
      return worker_killed(draw);
    case EventKind::kWorkerCrashes:
      return worker_crashes(draw);
    case EventKind::kAccident:
      return accident(draw);
    case EventKind::kWorkerVanishes:
      return worker_vanishes(draw);
    case EventKind::kWorkerStuck:
      return some_worker([](SimProcesses& model, std::uint64_t id) { return model.gets_stuck(id); });
    case EventKind::kPaceChanges:
      return pace_changes(draw);
    case EventKind::kControlFull:
      return control_is_full(draw);
    case EventKind::kProbeAnswered:
      return some_worker([](SimProcesses& model, std::uint64_t id) { return model.answers_probe(id, {}); });
    case EventKind::kProbeFails:
      return some_worker([](SimProcesses& model, std::uint64_t id) {
        return model.answers_probe(id, Status(StatusCode::kInternal, "not the stored output"));
      });
    case EventKind::kLoads:
      return for_some_model(draw, [](SimProcesses& model) { return model.loads(std::string(kLoaded)); });
    case EventKind::kLoadFails:
      return for_some_model(draw, [](SimProcesses& model) { return model.fails_to_load(); });
    case EventKind::kLoadLies:
      return for_some_model(draw, [&](SimProcesses& model) { return load_lies(model, draw); });
    case EventKind::kZygoteExits:
      return for_some_model(draw, [](SimProcesses& model) { return model.zygote_exits(); });
    case EventKind::kSearchAnswers:
      return search_ends(draw, SearchEnd::kAnswers);
    case EventKind::kSearchDies:
      return search_ends(draw, SearchEnd::kDies);
    case EventKind::kSearchLies:
      return search_ends(draw, SearchEnd::kLies);
    case EventKind::kLoad:
      return wish(WishKind::kLoad, draw);
    case EventKind::kReload:
      return wish(WishKind::kReload, draw);
    case EventKind::kScale:
      return wish(WishKind::kScale, draw);
    case EventKind::kDrain:
      return wish(WishKind::kDrain, draw);
    case EventKind::kUnload:
      return wish(WishKind::kUnload, draw);
    case EventKind::kHangup:
      return hangup(draw);
    case EventKind::kTime:
      clock_.advance_ns(1'000 + draw % (5 * kMs));
      return true;
    case EventKind::kLongTime: {
      const std::uint64_t most_ns = 100 * kMs << pick(draw, 10);
      wait(most_ns / 2 + draw % (most_ns / 2));
      return true;
    }
    case EventKind::kStandstill: {
      const std::uint64_t most_ns = 600 * kMs << pick(draw, 8);
      clock_.advance_ns(most_ns / 2 + draw % (most_ns / 2));
      return true;
    }
    case EventKind::kCount:
      break;
  }
  return false;
}

// As Daemon::run() does it.
void World::turn() {
  const std::uint64_t now_ns = clock_.now_ns();
  plane_.begin_turn(now_ns);
  const std::uint64_t lost_ns = lateness_.turn(now_ns, waits_from_ns_, waited_ns_);
  if (lost_ns > 0) {
    timers_.postpone(lost_ns);
    plane_.stood_still();
    fleet_.postpone(lost_ns);
  }
  processes_.lived_ns += lost_ns > 0 ? 0 : now_ns - turned_ns_;
  turned_ns_ = now_ns;
  plane_.receive_from_clients();
  plane_.receive_from_lanes();
  loop_.run_ready();
  fleet_.events_came();
  timers_.run_due(now_ns);
  plane_.flush();
  read_answers();
  for (SimClient& client : clients_) std::erase_if(client.asked, [](const auto& one) { return one.second.is_muted; });
  check_deadlines();
  check_versions();
  check_blame();
  if (!handshakes_.empty()) check_handshakes();
  waits_from_ns_ = now_ns;
  const std::uint64_t timeout_ns = next_timeout_ns();
  waited_ns_ = timeout_ns == ~std::uint64_t{0} ? std::nullopt : std::optional(timeout_ns);
}

// Daemon::next_timeout(); the largest number: only when something happens.
std::uint64_t World::next_timeout_ns() const {
  const std::uint64_t now_ns = clock_.now_ns();
  const auto next = Lateness::next_turn_ns(timers_.next_ns(), now_ns);
  if (!next) return ~std::uint64_t{0};
  return *next <= now_ns ? 0 : ((*next - now_ns) / kMs + 1) * kMs;
}

// Time passes, and the supervisor turns when it has said that it must, and not before.
void World::wait(std::uint64_t ns) {
  for (int turns = 0; ns > 0 && turns < 2'000 && broken().empty(); ++turns) {
    const std::uint64_t step_ns = std::min(ns, std::max(next_timeout_ns(), kMs));
    clock_.advance_ns(step_ns);
    ns -= step_ns;
    if (ns > 0) turn();
  }
}

void World::send(wire::PeerId from, SimMessage message, bool is_lane) {
  (is_lane ? lane_transport_ : client_transport_).arrive(from, std::move(message));
}

}  // namespace shoal::test

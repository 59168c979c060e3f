// What is routed, and a turn of the loop. Messages of clients are in plane_clients.cpp, those of lanes and the ledger's actions
// in plane_lanes.cpp.
#include "supervisor/plane/data_plane.hpp"

#include <algorithm>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"

namespace shoal::supervisor {

DataPlane::DataPlane(const Means& means, PlaneObserver& observer)
    : clock_(means.clock),
      client_transport_(means.clients),
      lane_transport_(means.lanes),
      directory_(means.directory),
      loop_(means.loop),
      timers_(means.timers),
      observer_(observer),
      log_(means.log),
      read_threads_(means.read_threads),
      deaths_(means.timers, means.log),
      ledger_tick_(means.timers, Timer::Kind::kClock,
                   [this](std::uint64_t now_ns) {
                     ledger_.tick(now_ns);
                     perform();
                   }),
      retry_unroutable_(means.timers, Timer::Kind::kClock, [this](std::uint64_t now_ns) { retry_unroutable(now_ns); }),
      lane_look_(means.timers, Timer::Kind::kClock, [this](std::uint64_t now_ns) { watch_lanes(now_ns); }),
      memory_look_(means.timers, Timer::Kind::kClock, [this](std::uint64_t now_ns) { watch_memory(now_ns); }) {}

DataPlane::~DataPlane() = default;

Status DataPlane::open() {
  SHOAL_RETURN_IF_ERROR(HoleFinder::check());
  note_heap_at_start();
  clients_ = std::make_unique<Clients>(clock_, directory_, loop_, timers_, *this, log_);
  clients_->count_unsent(memory_.unsent());
  return {};
}

void DataPlane::apply_limits(const ClientLimits& limits) {
  limits_ = limits;
  const int percent = limits.client_queue_percent == 0 ? 100 : limits.client_queue_percent;
  ledger_.set_client_shares({.in_flight = static_cast<std::size_t>(limits.client_requests), .of_queue = percent / 100.0});
  clients_->limit_connections(static_cast<std::size_t>(limits.connections), limits.connection_rate);
  clients_->limit_arenas(static_cast<std::uint64_t>(limits.total_arena_gb) << 30);
  memory_.set_limit(limits.total_message_mb, clients_->most());
  std::uint64_t longest_frame_bytes = static_cast<std::uint64_t>(limits.client_message_mb) << 20;
  if (memory_.is_limited()) {
    const std::uint64_t longest = memory_.longest_request_bytes();
    longest_frame_bytes = longest_frame_bytes == 0 ? longest : std::min(longest_frame_bytes, longest);
  }
  clients_->limit_frames(longest_frame_bytes);
  client_transport_.limit_frames(longest_frame_bytes);
  lane_transport_.limit_frames(longest_reply_bytes());
}

// ---- what is served ----

RoutedVersion& DataPlane::add_version(VersionId id, const std::string& model, const ServedModel& served, Processes& processes) {
  const ModelConfig& config = served.config;
  const ModelIndex index =
      ledger_.add_model(model, {.queue_limit = static_cast<std::size_t>(config.queue_limit),
                                .timeout_ns = config.timeout_ms * 1'000'000,
                                .max_batch = static_cast<std::uint32_t>(config.max_batch),
                                .max_delay_ns = static_cast<std::uint64_t>(config.max_delay_ms * 1e6),
                                .quarantine_ns = static_cast<std::uint64_t>(config.quarantine_ms) * 1'000'000,
                                .lane_message_bytes = lane_message_bytes(config)});
  auto version =
      std::make_unique<RoutedVersion>(RoutedVersion{.id = id, .index = index, .served = served, .processes = processes});
  if (index >= models_.size()) models_.resize(index + 1);
  models_[index] = version.get();
  return *versions_.emplace(id, std::move(version)).first->second;
}

void DataPlane::remove_version(VersionId id) {
  const ModelIndex index = version(id).index;
  ledger_.remove_model(index);
  models_[index] = nullptr;
  versions_.erase(id);
  versions_changed_ = true;
}

void DataPlane::set_route(std::uint32_t wire_id, ModelRoute route) {
  last_wire_id_ = std::max(last_wire_id_, wire_id);
  routes_[wire_id] = std::move(route);
  versions_changed_ = true;
}

bool DataPlane::serves_anything() const {
  return std::ranges::any_of(routes_, [](const auto& route) { return route.second.current != 0; });
}

void DataPlane::version_loaded(RoutedVersion& version, std::uint32_t signature) {
  version.is_loaded = true;
  version.signature = signature;
  versions_changed_ = true;
}

void DataPlane::end_requests(VersionId id, const std::string& reason) {
  ledger_.fail_model(version(id).index, reason);
  perform();
}

// ---- a turn of the loop ----

// A client that does not get its answers is disconnected, and the worker of a lane that does not get its requests is killed: they
// run elsewhere after its death. That may send more.
void DataPlane::flush() {
  ledger_.end_turn(now_ns_);
  perform();
  let_go_who_are_done();
  const auto lost_some = [](wire::Outbox& outbox, const auto& handle) {
    const auto lost = outbox.flush();
    for (const wire::Outbox::Lost& each : std::vector(lost.begin(), lost.end())) handle(each);
    return !lost.empty();
  };
  bool again = true;
  while (again) {
    again = lost_some(lane_transport_, [&](const wire::Outbox::Lost& lost) {
      const Incarnation incarnation = lane_of(lost.peer).incarnation;
      const auto routed = workers_.find(incarnation);
      // A lane that cannot be reached is dead or dying. When its pidfd reports that, the ledger gets the requests back.
      if (routed == workers_.end() || lost.why.code() == StatusCode::kUnavailable) return;
      routed->second.has_lost = true;
      routed->second.version->processes.kill_worker(incarnation, format("requests were not sent: {}", lost.why.message()));
    });
    again |= lost_some(client_transport_, [&](const wire::Outbox::Lost& lost) {
      if (Client* client = clients_->find(lost.peer)) lost_answer(*client, lost.why);
    });
  }
  for (const auto& [model, died_ns] : sent_again_) {
    if (models_[model]) models_[model]->sent_again_ns.add(clock_.now_ns() - died_ns);
  }
  sent_again_.clear();
  set_timers();
}

// The ledger and the watchdog are asked once per turn and not once per request. A timer that comes too early finds nothing to do.
void DataPlane::set_timers() {
  if (const auto tick_ns = ledger_.next_tick_ns(now_ns_)) ledger_tick_.set_earlier(*tick_ns);
  if (!lane_look_.is_set() && ledger_.has_busy_lanes()) lane_look_.set(now_ns_ + kFirstLookNs);
  if (!memory_look_.is_set() && may_be_filled()) memory_look_.set(now_ns_);
}

// Other processes may have been frozen together with this one.
void DataPlane::stood_still() {
  watches_.clear();
  lane_look_.clear();
}

std::int64_t DataPlane::process_of(ClientId id) const {
  const Client* client = clients_->find(id);
  return client ? process_key(client->pid, client->uid) : 0;
}

void DataPlane::drain(const std::string& why) {
  ledger_.drain();
  if (clients_) clients_->refuse_new(why);
}

void DataPlane::fail_everything(const std::string& why) {
  ledger_.fail_everything(StatusCode::kUnavailable, why, now_ns_);
  perform();
}

}  // namespace shoal::supervisor

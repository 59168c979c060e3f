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
      observer_(observer),
      log_(means.log),
      deaths_(means.log) {}

DataPlane::~DataPlane() = default;

Status DataPlane::open() {
  clients_ = std::make_unique<Clients>(clock_, directory_, loop_, *this, log_);
  clients_->count_unsent(memory_.unsent());
  return clients_->listen();
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
                                .quarantine_ns = static_cast<std::uint64_t>(config.quarantine_ms) * 1'000'000});
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

void DataPlane::tick(std::uint64_t now_ns) {
  ledger_.tick(now_ns);
  clients_->tick(now_ns);
  watch_memory(now_ns);
  if (!unroutable_.empty() && now_ns >= retry_unroutable_ns_) {
    const std::vector<Incarnation> again = std::exchange(unroutable_, {});
    for (const Incarnation incarnation : again) ledger_.retry(incarnation, now_ns);
  }
  watch_lanes(now_ns);
  deaths_.tick(now_ns);
  perform();
  advance_leaving_workers(now_ns);
}

std::optional<std::uint64_t> DataPlane::next_tick_ns(std::uint64_t now_ns) const {
  std::optional<std::uint64_t> next = ledger_.next_tick_ns(now_ns);
  const auto earlier = [&](std::optional<std::uint64_t> at_ns) {
    if (at_ns) next = next ? std::min(*next, *at_ns) : *at_ns;
  };
  earlier(clients_->next_tick_ns());
  earlier(next_memory_look_ns());
  for (const LeavingWorker& leaving : leaving_workers_) earlier(leaving.limit_ns);
  if (!unroutable_.empty()) earlier(retry_unroutable_ns_);
  earlier(look_ns_);
  earlier(deaths_.next_tick_ns());
  return next;
}

// Other processes may have been frozen together with this one. The watchdog forgets what it saw of lanes before.
void DataPlane::postpone(std::uint64_t by_ns) {
  clients_->postpone(by_ns);
  for (LeavingWorker& leaving : leaving_workers_) leaving.limit_ns += by_ns;
  watches_.clear();
  look_ns_.reset();
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

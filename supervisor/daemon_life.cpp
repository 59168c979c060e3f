// How services and their versions come and go. Handlers only note what happened. advance_life() acts on it once per turn of the
// loop: there a version can be freed, because no function of it is on the stack.
#include <algorithm>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "supervisor/daemon_service.hpp"

namespace shoal::supervisor {
namespace {

constexpr int kLoadNice = 10;  // nice value of a load while other models serve

}  // namespace

// ---- one service ----

Daemon::ModelVersion* Daemon::Service::serving(std::uint64_t version) const {
  if (version == 0) return current;
  const auto found = std::ranges::find_if(versions, [&](const ModelVersion* model) {
    return model->version() == version && model->stage() == ModelVersion::Stage::kServing;
  });
  return found == versions.end() ? nullptr : *found;
}

std::vector<std::uint64_t> Daemon::Service::served_versions() const {
  std::vector<std::uint64_t> numbers;
  for (const ModelVersion* model : versions) {
    if (model->stage() == ModelVersion::Stage::kServing && !model->has_failed()) numbers.push_back(model->version());
  }
  return numbers;
}

std::string Daemon::Service::served_text() const {
  std::string text;
  for (const std::uint64_t number : served_versions()) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return text.empty() ? "none" : text;
}

bool Daemon::Service::waits_for(std::uint64_t version) const {
  return change && (change->finding || std::ranges::any_of(change->coming, [&](const ModelVersion* model) {
                      return version == 0 || model->version() == version;
                    }));
}

std::string Daemon::Service::reason() const {
  if (current && current->has_failed()) return current->processes().reason();
  if (!last_failure.empty()) return last_failure;
  if (change && change->kind == Change::Kind::kUnload) return "it is being unloaded";
  return change ? "it is being loaded" : current ? current->processes().reason() : "no version of it is served";
}

Status Daemon::no_such_version(const Service& service, std::uint64_t version) {
  return not_found("model '{}' has no version {} (served: {})", service.name, version, service.served_text());
}

void Daemon::apply_limits(const ClientLimits& limits) {
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
  client_router_.limit_frames(longest_frame_bytes);
  births_.longest_reply_bytes = longest_reply_bytes();
  lane_router_.limit_frames(births_.longest_reply_bytes);
}

Daemon::Service& Daemon::add_service(ModelRequest request, Origin origin) {
  auto service = std::make_unique<Service>();
  service->name = request.name;
  service->wire_id = ++last_wire_id_;
  service->origin = origin;
  service->request = std::move(request);
  services_.push_back(std::move(service));
  return *services_.back();
}

Daemon::Service* Daemon::find_service(const std::string& name) const {
  const auto found = std::ranges::find_if(services_, [&](const auto& service) { return service && service->name == name; });
  return found == services_.end() ? nullptr : found->get();
}

Daemon::Service* Daemon::find_service(std::uint32_t wire_id) const {
  // Null entries are at their places only while advance_life() runs, and no request is handled then.
  const auto found = std::ranges::lower_bound(services_, wire_id, {}, [](const auto& service) { return service->wire_id; });
  return found == services_.end() || (*found)->wire_id != wire_id ? nullptr : found->get();
}

Status Daemon::no_such_model(const std::string& name) const {
  std::string names;
  for (const auto& service : services_) {
    if (service) names += (names.empty() ? "" : ", ") + service->name;
  }
  return not_found("no model '{}' (served: {})", name, names.empty() ? "none" : names);
}

// Adds the version to the ledger and starts its zygote. A version that cannot be loaded is added, too, and has failed.
Daemon::ModelVersion& Daemon::add_version(Service& service, VersionEntry entry, std::uint64_t patience_ns) {
  const ModelConfig& config = entry.model.config;
  const bool others_serve = std::ranges::any_of(services_, [](const auto& other) { return other && other->current; });
  auto load = load_text(entry.model);
  if (entry.failure.ok()) entry.failure = load.status();
  ProcessOptions processes{.name = entry.model.name,
                           .worker_file = worker_file_,
                           .directory = directory_.path(),
                           .load_text = load.ok() ? *std::move(load) : std::string(),
                           .workers = config.workers,
                           .lanes = config.contexts,
                           .load_nice = others_serve ? kLoadNice : 0,
                           .load_limit_ns = static_cast<std::uint64_t>(config.load_timeout_s) * 1'000'000'000};
  const ModelIndex index =
      ledger_.add_model(service.name, {.queue_limit = static_cast<std::size_t>(config.queue_limit),
                                       .timeout_ns = config.timeout_ms * 1'000'000,
                                       .max_batch = static_cast<std::uint32_t>(config.max_batch),
                                       .max_delay_ns = static_cast<std::uint64_t>(config.max_delay_ms * 1e6),
                                       .quarantine_ns = static_cast<std::uint64_t>(config.quarantine_ms) * 1'000'000});
  if (index >= models_.size()) models_.resize(index + 1);
  models_[index] = std::make_unique<ModelVersion>(*this, service, index, std::move(entry), std::move(processes));
  ModelVersion& model = *models_[index];
  service.versions.push_back(&model);
  std::ranges::stable_sort(service.versions, {}, [](const ModelVersion* each) { return each->version(); });
  model.start(monotonic_now_ns() + patience_ns);
  is_life_due_ = true;
  return model;
}

std::uint64_t Daemon::promised_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& model : models_) bytes += model ? model->promised_bytes() : 0;
  return bytes;
}

void Daemon::choose_current(Service& service) {
  ModelVersion* chosen = nullptr;  // a failed version is chosen only if there is no other: its reason is shown
  for (ModelVersion* model : service.versions) {
    if (model->stage() == ModelVersion::Stage::kServing && (!chosen || chosen->has_failed() || !model->has_failed()))
      chosen = model;
  }
  service.current = chosen;
}

// ---- a turn ----

// Runs once per turn. Continues each change as far as possible.
void Daemon::advance_life(std::uint64_t now_ns) {
  if (!is_life_due_ && !is_life_under_way_) return;
  const bool may_have_changed = is_life_due_;
  advance_configuration();
  do {
    is_life_due_ = false;
    for (auto& service : services_) {
      if (service) advance_service(service, now_ns);
    }
    std::erase(services_, nullptr);
    for (ModelRequest& request : std::exchange(wanted_back_, {}))
      begin_load(add_service(std::move(request), Origin::kConfiguration), true, {});
  } while (is_life_due_);
  is_life_under_way_ = std::ranges::any_of(services_, [](const auto& service) {
    return service &&
           (service->change || std::ranges::count(service->versions, ModelVersion::Stage::kLeaving, &ModelVersion::stage) > 0);
  });
  if (may_have_changed) describes_due_ = waiting_describes_.size();
  if (may_have_changed || !is_life_under_way_) report_state();
}

void Daemon::advance_service(std::unique_ptr<Service>& owner, std::uint64_t now_ns) {
  Service& service = *owner;
  for (ModelVersion* model : std::vector<ModelVersion*>(service.versions)) {
    if (model->stage() == ModelVersion::Stage::kLeaving && model->advance_leaving(now_ns)) free_version(service, *model);
  }
  if (service.change) advance_change(service, now_ns);
  choose_current(service);
  if (is_unloading(service) && service.versions.empty()) {
    finish_change(service);
    flights_.forget(service.name);
    if (service.next && phase_ == Phase::kServing) wanted_back_.push_back(*std::move(service.next));
    owner.reset();
  } else if (!service.change && service.next) {
    begin_reload(service, *std::exchange(service.next, std::nullopt), false, {});
  }
}

void Daemon::free_version(Service& service, ModelVersion& model) {
  log_.info("version_gone model={} version={}", service.name, model.version());
  std::erase(service.versions, &model);
  ledger_.remove_model(model.index());
  models_[model.index()].reset();
  versions_changed_ = true;
  is_life_due_ = true;
}

// ---- surplus workers ----

void Daemon::worker_leaving(ModelVersion& model, const WorkerProcess& worker) {
  ledger_.dismiss(worker.incarnation);
  leaving_workers_.push_back({worker.incarnation, &model, monotonic_now_ns() + ModelVersion::kLeaveLimitNs, false});
}

// A surplus worker is asked to exit when it holds no request. At the limit it is killed, and its requests run on other workers.
void Daemon::advance_leaving_workers(std::uint64_t now_ns) {
  for (LeavingWorker& leaving : leaving_workers_) {
    ModelProcesses& processes = leaving.model->processes();
    if (!leaving.is_told && ledger_.held_by(leaving.incarnation) == 0) {
      processes.let_go(leaving.incarnation);
      leaving.is_told = true;
      leaving.limit_ns = now_ns + kExitLimitNs;
    } else if (now_ns >= leaving.limit_ns) {
      processes.kill_worker(leaving.incarnation, "it did not leave in time");
      leaving.limit_ns = now_ns + kExitLimitNs;
    }
  }
}

// ---- reports to the service manager ----

void Daemon::report_state() {
  std::size_t serving = 0;
  std::string trouble;
  bool is_settled = !reading_configuration_;
  for (const auto& service : services_) {
    if (!service) continue;
    const ModelVersion* const current = service->current;
    const bool serves = current && lets_in(*service, *current);
    serving += serves;
    const bool comes_back = is_unloading(*service) && service->next;
    const bool is_coming =
        comes_back ||
        (service->change && (service->change->kind == Change::Kind::kLoad || service->change->kind == Change::Kind::kReload));
    if (is_coming)
      is_settled = false;
    else if (!serves)
      trouble +=
          format("; {}: {}", service->name,
                 service->drained                    ? "drained"
                 : current && !current->has_failed() ? format("resting: {}", ledger_.model(current->index()).breaker.reason())
                                                     : service->reason());
  }
  const std::string status = format("{} models are served{}", serving, trouble);
  if (status != reported_ && manager_.notify_status(status)) reported_ = status;
  if (awaits_ready_ && is_settled && manager_.notify("READY=1")) awaits_ready_ = false;
  report_again_ns_.reset();
  if (status != reported_ || (awaits_ready_ && is_settled)) report_again_ns_ = now_ns_ + kReportAgainNs;
}

}  // namespace shoal::supervisor

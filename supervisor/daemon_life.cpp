// How models come, are replaced and go. Handlers only note what happened; what follows of it is done once a turn, in
// advance_life(), where a version may be freed because nothing of it is on the stack.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "supervisor/daemon_service.hpp"

namespace shoal::supervisor {
namespace {

constexpr int kLoadNice = 10;  // while others serve
constexpr std::uint64_t kMaxWorkers = 1024;
constexpr std::uint64_t kMemoryPatienceNs = 5'000'000'000;  // at the daemon's start
constexpr std::uint64_t kLookAgainNs = 100'000'000;

std::string join(const std::vector<std::uint64_t>& numbers) {
  std::string text;
  for (const std::uint64_t number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return text.empty() ? "none" : text;
}

}  // namespace

// ---- one version ----

void Daemon::Model::start(std::uint64_t limit_ns) {
  if (!entry_.failure.ok()) return processes_.fail(entry_.failure.to_string());
  start_limit_ns_ = limit_ns;
  advance_start(monotonic_now_ns());
}

// What is free is asked again until the limit: a daemon that was killed may still be giving its memory back.
void Daemon::Model::advance_start(std::uint64_t now_ns) {
  if (!start_limit_ns_ || now_ns < look_ns_) return;
  const Model* served = service_.current;
  const std::uint64_t packed = served ? served->processes().packed_bytes() : 0;
  const std::uint64_t arena = served && served->loaded() ? served->loaded()->arena_bytes : 0;
  const Status fits = check_estimate(service_.name, estimate_load(entry_, packed, arena), available_memory_bytes());
  look_ns_ = now_ns + kLookAgainNs;
  if (!fits.ok() && now_ns < *start_limit_ns_) return;
  start_limit_ns_.reset();
  fits.ok() ? processes_.start() : processes_.fail(fits.to_string());
}

void Daemon::Model::advance_probe(std::uint64_t now_ns, bool replaces) {
  if (is_probed_ || has_failed()) return;
  if (probe_) {
    if (now_ns < probe_->limit_ns) return;
    return processes_.fail(
        format("version {}: its probe was not answered within {} s", version(), kProbeLimitNs / 1'000'000'000));
  }
  if (processes_.ready_workers() < processes_.options().workers) {
    if (processes_.makes_no_progress()) processes_.fail(processes_.reason());
    return;
  }
  if (!replaces && !has_golden()) {
    is_probed_ = true;
    return;
  }
  const auto& workers = processes_.workers();
  const auto ready = std::ranges::find(workers, WorkerProcess::State::kReady, [](const auto& worker) { return worker->state; });
  probe_ = Probe{(*ready)->incarnation, now_ns + kProbeLimitNs};
  if (const Status sent = processes_.probe(probe_->incarnation); !sent.ok())
    processes_.fail(format("version {}: its probe cannot be sent: {}", version(), sent.message()));
}

// Without a stored input the probe is zeros of the smallest shape, which need not fit the model: a refusal is an answer, too.
void Daemon::Model::worker_probed(const WorkerProcess& worker, const Status& status) {
  const bool is_good = status.ok() || (status.code() == StatusCode::kInvalidArgument && !has_golden());
  daemon_.ledger_.probed(worker.incarnation, is_good, monotonic_now_ns());  // the breaker's, if it asked
  daemon_.perform();
  daemon_.is_life_due_ = true;
  if (!probe_ || worker.incarnation != probe_->incarnation) return;
  probe_.reset();
  if (!is_good) return processes_.fail(format("version {} failed its probe: {}", version(), status.to_string()));
  is_probed_ = true;
}

void Daemon::Model::probe_died(Incarnation incarnation, const std::string& what) {
  if (!probe_ || incarnation != probe_->incarnation) return;
  probe_.reset();
  processes_.fail(format("version {}: the worker died that answered its probe: {}", version(), what));
}

void Daemon::Model::leave(std::uint64_t now_ns) {
  if (stage_ == Stage::kLeaving) return;
  stage_ = Stage::kLeaving;
  leave_limit_ns_ = now_ns + kLeaveLimitNs;
  daemon_.ledger_.drain_model(index_, format("version {} of model '{}' is being taken away", version(), served().name));
  daemon_.is_life_due_ = true;
}

bool Daemon::Model::advance_leaving(std::uint64_t now_ns) {
  const bool is_idle = daemon_.ledger_.model_idle(index_);
  if (!is_stopped_) {
    if (!is_idle && now_ns < leave_limit_ns_) return false;
    if (!is_idle) {
      daemon_.ledger_.fail_model(
          index_, format("version {} was taken away and had not finished after {} s", version(), kLeaveLimitNs / 1'000'000'000));
      daemon_.perform();
    }
    processes_.stop();
    is_stopped_ = true;
    leave_limit_ns_ = now_ns + kExitLimitNs;
  }
  if (processes_.all_gone()) return daemon_.ledger_.model_idle(index_);
  if (now_ns >= leave_limit_ns_) {
    processes_.kill_all();
    leave_limit_ns_ = now_ns + kExitLimitNs;
  }
  return false;
}

std::optional<std::uint64_t> Daemon::Model::next_tick_ns() const {
  std::optional<std::uint64_t> next = processes_.next_tick_ns();
  const auto earlier = [&](std::uint64_t at_ns) { next = next ? std::min(*next, at_ns) : at_ns; };
  if (start_limit_ns_) earlier(look_ns_);
  if (probe_) earlier(probe_->limit_ns);
  if (stage_ == Stage::kLeaving) earlier(leave_limit_ns_);
  return next;
}

// ---- one service ----

Daemon::Model* Daemon::Service::serving(std::uint64_t version) const {
  if (version == 0) return current;
  const auto found = std::ranges::find_if(
      versions, [&](const Model* model) { return model->version() == version && model->stage() == Model::Stage::kServing; });
  return found == versions.end() ? nullptr : *found;
}

std::vector<std::uint64_t> Daemon::Service::served_versions() const {
  std::vector<std::uint64_t> numbers;
  for (const Model* model : versions) {
    if (model->stage() == Model::Stage::kServing && !model->has_failed()) numbers.push_back(model->version());
  }
  return numbers;
}

bool Daemon::Service::waits_for(std::uint64_t version) const {
  return change &&
         std::ranges::any_of(change->coming, [&](const Model* model) { return version == 0 || model->version() == version; });
}

std::string Daemon::Service::reason() const {
  if (current && current->has_failed()) return current->processes().reason();
  if (!last_failure.empty()) return last_failure;
  return change ? "it is being loaded" : current ? current->processes().reason() : "no version of it is served";
}

Status Daemon::no_such_version(const Service& service, std::uint64_t version) {
  return not_found("model '{}' has no version {} (served: {})", service.name, version, join(service.served_versions()));
}

void Daemon::apply_limits(const ClientLimits& limits) {
  limits_ = limits;
  ledger_.set_client_shares({.in_flight = static_cast<std::size_t>(limits.client_requests), .of_queue = kShareOfQueue});
  const std::uint64_t longest_frame_bytes = static_cast<std::uint64_t>(limits.client_message_mb) << 20;
  clients_->limit_frames(longest_frame_bytes);
  client_router_.limit_frames(longest_frame_bytes);
  clients_->limit_connections(static_cast<std::size_t>(limits.connections));
}

Daemon::Service& Daemon::add_service(ModelRequest request, Origin origin) {
  auto service = std::make_unique<Service>();
  service->name = request.name;
  service->wire_id = static_cast<std::uint32_t>(services_.size() + 1);
  service->origin = origin;
  service->request = std::move(request);
  services_.push_back(std::move(service));
  return *services_.back();
}

Daemon::Service* Daemon::find_service(const std::string& name) const {
  const auto found = std::ranges::find_if(services_, [&](const auto& service) { return service && service->name == name; });
  return found == services_.end() ? nullptr : found->get();
}

std::string Daemon::service_names() const {
  std::string names;
  for (const auto& service : services_) {
    if (service) names += (names.empty() ? "" : ", ") + service->name;
  }
  return names.empty() ? "none" : names;
}

// Makes room in the ledger and starts the zygote; a version that cannot be loaded is one that has failed.
Daemon::Model& Daemon::add_version(Service& service, VersionEntry entry, std::uint64_t patience_ns) {
  const ModelConfig& config = entry.model.config;
  const bool others_serve = std::ranges::any_of(services_, [](const auto& other) { return other && other->current; });
  ProcessOptions processes{.name = entry.model.name,
                           .worker_file = worker_file_,
                           .directory = directory_.path(),
                           .load_text = load_text(entry.model),
                           .workers = config.workers,
                           .lanes = config.contexts,
                           .load_nice = others_serve ? kLoadNice : 0};
  const ModelIndex index =
      ledger_.add_model(service.name, {.queue_limit = static_cast<std::size_t>(config.queue_limit),
                                       .timeout_ns = config.timeout_ms * 1'000'000,
                                       .max_batch = static_cast<std::uint32_t>(config.max_batch),
                                       .max_delay_ns = static_cast<std::uint64_t>(config.max_delay_ms * 1e6),
                                       .quarantine_ns = static_cast<std::uint64_t>(config.quarantine_ms) * 1'000'000});
  if (index >= models_.size()) models_.resize(index + 1);
  models_[index] = std::make_unique<Model>(*this, service, index, std::move(entry), std::move(processes));
  Model& model = *models_[index];
  service.versions.push_back(&model);
  std::ranges::stable_sort(service.versions, {}, [](const Model* each) { return each->version(); });
  model.start(monotonic_now_ns() + patience_ns);
  is_life_due_ = true;
  return model;
}

void Daemon::choose_current(Service& service) {
  Model* chosen = nullptr;  // one that has failed only where there is no other: it tells why
  for (Model* model : service.versions) {
    if (model->stage() == Model::Stage::kServing && (!chosen || chosen->has_failed() || !model->has_failed())) chosen = model;
  }
  service.current = chosen;
}

// ---- what is asked ----

// {"what": "load" | "unload" | "reload" | "scale" | "drain", "model", ...}: answered when it is done.
void Daemon::handle_life(Caller caller, const std::string& what, const nlohmann::json& asked) {
  const auto text_of = [&](const char* key) {
    return asked.contains(key) && asked[key].is_string() ? asked[key].get<std::string>() : std::string();
  };
  const auto refuse = [&](const Status& why) { send_control_reply(caller.client, caller.seq, why, ""); };
  if (phase_ != Phase::kServing) return refuse(unavailable("the daemon is shutting down"));
  const std::string name = text_of("model"), text = text_of("text");
  std::optional<ModelRequest> request;
  if (!text.empty() || what == "load") {
    auto parsed = parse_model_argument(name + "=" + text);
    if (!parsed.ok()) return refuse(parsed.status());
    if (parsed->name != name) return refuse(invalid_argument("'{}' is no name of a model: it may not hold '=' or ','", name));
    request = *std::move(parsed);
  }
  Service* service = find_service(name);
  if (what == "load") {
    if (service)
      return refuse(failed_precondition("model '{}' is served already, from {}: reload it, or unload it first", name,
                                        service->request.path));
    return begin_load(add_service(*std::move(request), Origin::kCommand), false, {caller});
  }
  if (!service) return refuse(not_found("no model '{}' (served: {})", name, service_names()));
  if (what == "unload") return begin_unload(*service, {caller});
  if (service->change) {
    const bool may_wait_for_ever = service->change->kind == Change::Kind::kDrain;
    if (!may_wait_for_ever)
      return refuse(failed_precondition("model '{}': another change of it is under way; ask again when that is over", name));
    answer_callers(*service, cancelled("model '{}': `{}` was asked for meanwhile", name, what));
    service->change.reset();
  }
  if (what == "reload") {
    const bool force = asked.contains("force") && asked["force"].is_boolean() && asked["force"].get<bool>();
    return begin_reload(*service, request.value_or(service->request), force, {caller});
  }
  if (what == "drain") return begin_drain_of(*service, {caller});
  const bool is_number = asked.contains("workers") && asked["workers"].is_number_unsigned();
  const std::uint64_t workers = is_number ? asked["workers"].get<std::uint64_t>() : 0;
  if (workers < 1 || workers > kMaxWorkers)
    return refuse(invalid_argument("scale model '{}': \"workers\" wants a number from 1 to {}", name, kMaxWorkers));
  begin_scale(*service, static_cast<int>(workers), {caller});
}

// SIGHUP: the command line's models stay, the configuration's become what it says; all files are looked at again.
void Daemon::reload_configuration() {
  if (phase_ != Phase::kServing) return;
  log_.info("reload_configuration");
  awaits_ready_ = true;
  manager_.notify(format("RELOADING=1\nMONOTONIC_USEC={}", monotonic_now_ns() / 1000));
  is_life_due_ = true;
  DaemonConfig config;
  if (read_configuration_) {
    auto read = read_configuration_();
    if (!read.ok()) {
      log_.error("configuration_refused reason=\"{}\"", read.status().message());
      return;
    }
    config = *std::move(read);
  }
  for (const auto& service : services_) {
    if (!service || is_unloading(*service)) continue;
    const auto wanted = std::ranges::find(config.models, service->name, &ModelRequest::name);
    if (wanted != config.models.end()) {
      service->origin = Origin::kConfiguration;
      plan_reload(*service, *wanted);
      config.models.erase(wanted);
    } else if (service->origin == Origin::kConfiguration) {
      begin_unload(*service, {});
    } else {
      plan_reload(*service, service->request);
    }
  }
  for (ModelRequest& request : config.models) {
    if (find_service(request.name)) {  // it is still going
      log_.warn("load_refused model={} reason=\"it is being unloaded\"", request.name);
    } else {
      begin_load(add_service(std::move(request), Origin::kConfiguration), true, {});
    }
  }
  apply_limits(config.limits);
}

void Daemon::plan_reload(Service& service, const ModelRequest& request) {
  if (service.change) {
    service.next = request;
  } else {
    begin_reload(service, request, false, {});
  }
}

// ---- changes ----

void Daemon::begin_load(Service& service, bool each_alone, std::vector<Caller> callers) {
  service.change = Change{.kind = Change::Kind::kLoad,
                          .outcome = "loaded",
                          .each_alone = each_alone,
                          .callers = std::move(callers),
                          .begun_ns = monotonic_now_ns()};
  for (VersionEntry& entry : find_entries(service.request))
    service.change->coming.push_back(&add_version(service, std::move(entry), each_alone ? kMemoryPatienceNs : 0));
}

// Make before break: what is wanted and not there comes, and what is there and not wanted leaves when all of that is ready.
void Daemon::begin_reload(Service& service, const ModelRequest& request, bool force, std::vector<Caller> callers) {
  service.change = Change{.kind = Change::Kind::kReload,
                          .outcome = service.drained && !callers.empty() ? "reloaded" : "unchanged",
                          .ends_drain = !callers.empty(),
                          .request = request,
                          .callers = std::move(callers),
                          .begun_ns = monotonic_now_ns()};
  Change& change = *service.change;
  std::vector<VersionEntry> wanted = find_entries(request);
  std::erase_if(wanted, [&](const VersionEntry& entry) {
    Model* same = service.serving(entry.model.files.version);
    if (!same || force || same->has_failed() || !same_version(same->entry(), entry)) return false;
    change.kept.push_back({same, entry.model.config.workers});
    if (same->processes().options().workers != entry.model.config.workers) change.outcome = "reloaded";
    return true;
  });
  for (Model* model : service.versions) {
    if (model->stage() == Model::Stage::kServing && std::ranges::count(change.kept, model, &Change::Kept::model) == 0)
      change.leaving.push_back(model);
  }
  for (VersionEntry& entry : wanted) change.coming.push_back(&add_version(service, std::move(entry), 0));
  if (!change.coming.empty() || !change.leaving.empty()) change.outcome = "reloaded";
  log_.info("reload model={} coming={} leaving={} kept={}", service.name, change.coming.size(), change.leaving.size(),
            change.kept.size());
  is_life_due_ = true;
}

void Daemon::begin_scale(Service& service, int workers, std::vector<Caller> callers) {
  service.change = Change{.kind = Change::Kind::kScale,
                          .outcome = "scaled",
                          .request = service.request,
                          .callers = std::move(callers),
                          .begun_ns = monotonic_now_ns()};
  service.change->request->overrides.workers = workers;  // a reload keeps to it
  log_.info("scale model={} workers={}", service.name, workers);
  for (Model* model : service.versions) {
    if (!model->is_serving() || model->has_failed()) continue;
    service.change->kept.push_back({model, model->processes().options().workers});
    model->processes().set_workers(workers);
  }
  is_life_due_ = true;
}

void Daemon::begin_drain_of(Service& service, std::vector<Caller> callers) {
  service.change =
      Change{.kind = Change::Kind::kDrain, .outcome = "drained", .callers = std::move(callers), .begun_ns = monotonic_now_ns()};
  service.drained = true;
  log_.info("drain model={}", service.name);
  is_life_due_ = true;
}

void Daemon::begin_unload(Service& service, std::vector<Caller> callers) {
  if (is_unloading(service)) {
    std::ranges::copy(callers, std::back_inserter(service.change->callers));
    return;
  }
  if (service.change) answer_callers(service, cancelled("model '{}' is being unloaded", service.name));
  service.change =
      Change{.kind = Change::Kind::kUnload, .outcome = "unloaded", .callers = std::move(callers), .begun_ns = monotonic_now_ns()};
  service.next.reset();
  log_.info("unload model={}", service.name);
  for (Model* model : service.versions) model->leave(monotonic_now_ns());
  is_life_due_ = true;
}

// Once a turn: what has become possible of what is asked.
void Daemon::advance_life(std::uint64_t now_ns) {
  if (!is_life_due_ && !is_life_under_way_) return;
  const bool may_have_changed = is_life_due_;
  do {
    is_life_due_ = false;
    for (auto& service : services_) {
      if (service) advance_service(service, now_ns);
    }
  } while (is_life_due_);
  is_life_under_way_ = std::ranges::any_of(services_, [](const auto& service) {
    return service && (service->change || std::ranges::count(service->versions, Model::Stage::kLeaving, &Model::stage) > 0);
  });
  if (may_have_changed && !waiting_describes_.empty()) answer_waiting_describes();
  if (may_have_changed || !is_life_under_way_) report_state();
}

void Daemon::advance_service(std::unique_ptr<Service>& owner, std::uint64_t now_ns) {
  Service& service = *owner;
  for (Model* model : std::vector<Model*>(service.versions)) {
    if (model->stage() == Model::Stage::kLeaving && model->advance_leaving(now_ns)) free_version(service, *model);
  }
  if (service.change) advance_change(service, now_ns);
  choose_current(service);
  if (is_unloading(service) && service.versions.empty()) {
    finish_change(service);
    flights_.forget(service.name);
    owner.reset();
  } else if (!service.change && service.next) {
    begin_reload(service, *std::exchange(service.next, std::nullopt), false, {});
  }
}

void Daemon::free_version(Service& service, Model& model) {
  log_.info("version_gone model={} version={}", service.name, model.version());
  std::erase(service.versions, &model);
  ledger_.remove_model(model.index());
  models_[model.index()].reset();
  is_life_due_ = true;
}

void Daemon::advance_change(Service& service, std::uint64_t now_ns) {
  const auto cannot = [](const Change::Kept& kept) {
    return kept.model->has_failed() || kept.model->processes().makes_no_progress();
  };
  switch (service.change->kind) {
    case Change::Kind::kLoad:
    case Change::Kind::kReload:
      return advance_load(service, now_ns);
    case Change::Kind::kScale:
      if (is_staffed(service)) return finish_change(service);
      if (const auto one = std::ranges::find_if(service.change->kept, cannot); one != service.change->kept.end()) {
        const std::string reason = one->model->processes().reason();
        for (const Change::Kept& kept : service.change->kept) kept.model->processes().set_workers(kept.workers);
        fail_change(service, reason);
      }
      return;
    case Change::Kind::kDrain:
      if (std::ranges::all_of(service.versions, [&](const Model* each) { return ledger_.model_idle(each->index()); }))
        finish_change(service);
      return;
    case Change::Kind::kUnload:
      return;  // over when the last version is gone
  }
}

void Daemon::advance_load(Service& service, std::uint64_t now_ns) {
  Change& change = *service.change;
  for (Model* model : change.coming) model->advance_start(now_ns);
  for (Model* model : change.coming) model->advance_probe(now_ns, change.kind == Change::Kind::kReload);
  if (change.each_alone) {
    std::erase_if(change.coming, [&](Model* model) {
      if (!model->is_ready() && !model->has_failed()) return false;
      begin_serving(service, *model);
      return true;
    });
  } else if (const auto failed = std::ranges::find_if(change.coming, &Model::has_failed); failed != change.coming.end()) {
    return fail_change(service, (*failed)->processes().reason());
  } else if (std::ranges::all_of(change.coming, &Model::is_ready)) {
    // The flip: from here on new requests go to what has come. What they replace answers what it has admitted.
    for (Model* model : std::exchange(change.coming, {})) begin_serving(service, *model);
    for (Model* model : std::exchange(change.leaving, {})) model->leave(now_ns);
    for (const Change::Kept& kept : std::exchange(change.kept, {})) kept.model->processes().set_workers(kept.workers);
    choose_current(service);
  }
  const bool is_leaving = std::ranges::count(service.versions, Model::Stage::kLeaving, &Model::stage) > 0;
  if (change.coming.empty() && !is_leaving && (change.each_alone || is_staffed(service))) finish_change(service);
}

void Daemon::begin_serving(Service& service, Model& model) {
  model.serve();
  if (!model.has_failed())
    log_.info("version_serves model={} version={} workers={}", service.name, model.version(),
              model.processes().options().workers);
}

bool Daemon::is_staffed(const Service& service) {
  return std::ranges::all_of(service.versions, [](const Model* model) {
    const ModelProcesses& processes = model->processes();
    return !model->is_serving() || model->has_failed() ||
           (processes.ready_workers() == processes.options().workers &&
            processes.workers().size() == static_cast<std::size_t>(processes.options().workers));
  });
}

bool Daemon::is_unloading(const Service& service) { return service.change && service.change->kind == Change::Kind::kUnload; }

void Daemon::finish_change(Service& service) {
  Change& change = *service.change;
  if (change.request) service.request = *std::move(change.request);
  if (change.ends_drain) service.drained = false;
  service.last_failure.clear();
  log_.info("{} model={} versions={} ms={}", change.outcome, service.name, join(service.served_versions()),
            (monotonic_now_ns() - change.begun_ns) / 1'000'000);
  answer_callers(service, {});
  service.change.reset();
  is_life_due_ = true;
}

// What was served goes on; a model that was to be loaded anew is forgotten.
void Daemon::fail_change(Service& service, const std::string& reason) {
  Change& change = *service.change;
  const bool goes_on = change.kind != Change::Kind::kLoad;
  service.last_failure = reason;
  log_.error("change_failed model={} goes_on={} reason=\"{}\"", service.name, goes_on, reason);
  answer_callers(service, goes_on ? failed_precondition("model '{}' goes on as it was: {}", service.name, reason)
                                  : failed_precondition("model '{}' cannot be served: {}", service.name, reason));
  const std::vector<Model*> coming = std::move(change.coming);
  service.change.reset();
  for (Model* model : coming) model->leave(now_ns_);
  if (!goes_on) begin_unload(service, {});
  is_life_due_ = true;
}

void Daemon::answer_callers(Service& service, const Status& status) {
  Change& change = *service.change;
  const Model* model = service.current;
  const nlohmann::json answer{{"model", service.name},
                              {"outcome", change.outcome},
                              {"version", model && !is_unloading(service) ? nlohmann::json(model->version()) : nlohmann::json()},
                              {"versions", service.served_versions()},
                              {"workers", model ? model->processes().options().workers : 0},
                              {"ms", (monotonic_now_ns() - change.begun_ns) / 1'000'000}};
  for (const Caller& caller : std::exchange(change.callers, {}))
    send_control_reply(caller.client, caller.seq, status, answer.dump());
}

// ---- workers that are one too many ----

void Daemon::worker_leaving(Model& model, const WorkerProcess& worker) {
  ledger_.dismiss(worker.incarnation);
  leaving_workers_.push_back({worker.incarnation, &model, monotonic_now_ns() + Model::kLeaveLimitNs, false});
}

// It goes when it holds nothing; what it still holds at the limit runs elsewhere.
void Daemon::advance_leaving_workers(std::uint64_t now_ns) {
  for (LeavingWorker& leaving : leaving_workers_) {
    ModelProcesses& processes = leaving.model->processes();
    if (!leaving.is_told && ledger_.held_by(leaving.incarnation) == 0) {
      processes.let_go(leaving.incarnation);
      leaving.is_told = true;
      leaving.limit_ns = now_ns + kExitLimitNs;
    } else if (now_ns >= leaving.limit_ns) {
      processes.kill_worker(leaving.incarnation, "it was to leave and did not in time");
      leaving.limit_ns = now_ns + kExitLimitNs;
    }
  }
}

// ---- what the service manager hears ----

void Daemon::report_state() {
  std::size_t serving = 0;
  std::string trouble;
  bool is_settled = true;
  for (const auto& service : services_) {
    if (!service) continue;
    const Model* const current = service->current;
    const bool serves = current && lets_in(*service, *current);
    serving += serves;
    const bool is_coming =
        service->change && (service->change->kind == Change::Kind::kLoad || service->change->kind == Change::Kind::kReload);
    if (is_coming)
      is_settled = false;
    else if (!serves)
      trouble +=
          format("; {}: {}", service->name,
                 service->drained                    ? "drained"
                 : current && !current->has_failed() ? format("resting: {}", ledger_.model(current->index()).breaker.reason())
                                                     : service->reason());
  }
  std::string status = format("{} models are served{}", serving, trouble);
  if (status != reported_ && manager_.notify_status(status)) reported_ = std::move(status);
  if (awaits_ready_ && is_settled && manager_.notify("READY=1")) awaits_ready_ = false;
  is_life_due_ |= awaits_ready_ && is_settled;  // once more in the next turn
}

}  // namespace shoal::supervisor

// Changes of what is served: load, reload, scale, drain, unload, and a new configuration. Each change is made as a whole, or not
// at all.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/json_text.hpp"
#include "supervisor/daemon_service.hpp"

namespace shoal::supervisor {
namespace {

constexpr std::uint64_t kMaxWorkers = 1024;
constexpr std::size_t kMostCallers = 1024;                  // that may wait for one change
constexpr std::uint64_t kPatienceNs = 30'000'000'000;       // how long a change waits for the replaced version to end
constexpr std::uint64_t kMemoryPatienceNs = 5'000'000'000;  // how long a load at the daemon's start waits for memory

// Names the files of a model in errors.
std::string what_files(const ModelRequest& request) { return format("model '{}': files at {}", request.name, request.path); }

}  // namespace

// ---- requests for a change ----

// {"what": "load" | "unload" | "reload" | "scale" | "drain", "model", ...}. The answer is sent when the change is over.
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
    if (parsed->name != name)
      return refuse(invalid_argument("'{}' is not a valid name of a model: it must not contain '=' or ','", name));
    request = *std::move(parsed);
  }
  Service* service = find_service(name);
  if (what == "load") {
    if (service && is_unloading(*service))
      return refuse(failed_precondition("model '{}' is being unloaded: try again when that is over", name));
    if (service)
      return refuse(failed_precondition("model '{}' is served already, from {}: reload it, or unload it first", name,
                                        service->request.path));
    if (const auto most = static_cast<std::size_t>(limits_.models); most != 0 && services_.size() >= most)
      return refuse(overloaded("load model '{}': the daemon has {} models, and may have {} ([limits] models): unload one first",
                               name, services_.size(), most));
    if (Status room = check_room(*request, caller); !room.ok()) return refuse(room);
    return begin_load(add_service(*std::move(request), Origin::kCommand), false, {caller});
  }
  if (!service) return refuse(no_such_model(name));
  if (what == "unload") {
    if (service->change && service->change->callers.size() >= kMostCallers)
      return refuse(
          overloaded("model '{}' is being unloaded, and {} other calls wait for that, which is the limit", name, kMostCallers));
    return begin_unload(*service, {caller});
  }
  if (what == "reload") {
    if (Status room = check_room(request.value_or(service->request), caller); !room.ok()) return refuse(room);
  }
  const bool is_number = asked.contains("workers") && asked["workers"].is_number_unsigned();
  const std::uint64_t workers = is_number ? asked["workers"].get<std::uint64_t>() : 0;
  if (what == "scale" && (workers < 1 || workers > kMaxWorkers))
    return refuse(invalid_argument("scale model '{}': \"workers\" must be a number from 1 to {}", name, kMaxWorkers));
  if (what == "scale" && service->served_versions().empty())
    return refuse(failed_precondition("model '{}' has no version that serves: {}", name, service->reason()));
  // A drain ends when something else is asked for that is not refused.
  if (service->change) {
    const bool may_wait_for_ever = service->change->kind == Change::Kind::kDrain;
    if (!may_wait_for_ever)
      return refuse(failed_precondition("model '{}': another change of it is under way: try again when that is over", name));
    answer_callers(*service, cancelled("model '{}': `{}` was asked for meanwhile", name, what));
    service->change.reset();
  }
  if (what == "reload") {
    const bool force = asked.contains("force") && asked["force"].is_boolean() && asked["force"].get<bool>();
    return begin_reload(*service, request.value_or(service->request), force, {caller});
  }
  if (what == "drain") return begin_drain_of(*service, {caller});
  begin_scale(*service, static_cast<int>(workers), {caller});
}

// Whether a client's load or reload may look for the files of a model.
Status Daemon::check_room(const ModelRequest& request, const Caller& caller) const {
  if (request.path.starts_with(kBuiltinPrefix)) return {};
  return files_.check_room(what_files(request), process_of(caller));
}

std::int64_t Daemon::process_of(const Caller& caller) const {
  const Client* client = clients_->find(caller.client);
  return client ? process_key(client->pid, client->uid) : 0;
}

// Handles SIGHUP. Models of the command line stay. Models of the configuration change to its new content. All files are looked
// for again.
void Daemon::reload_configuration() {
  if (phase_ != Phase::kServing) return;
  log_.info("reload_configuration");
  awaits_ready_ = true;
  manager_.notify(format("RELOADING=1\nMONOTONIC_USEC={}", monotonic_now_ns() / 1000));
  is_life_due_ = true;
  if (configuration_file_.empty()) return take_configuration({});
  reading_configuration_ = find_configuration();  // ends the search of an earlier SIGHUP, which may have read an older file
}

std::unique_ptr<FileSearch> Daemon::find_configuration() {
  return files_.ask(Asker::kConfiguration, format("configuration {}", configuration_file_.string()),
                    question_text(configuration_file_));
}

Result<DaemonConfig> Daemon::check_configuration(FileSearch& search) const {
  SHOAL_ASSIGN_OR_RETURN(const std::string text, search.take());
  SHOAL_ASSIGN_OR_RETURN(DaemonConfig config, parse_configuration(text));
  for (const std::string& name : given_) {
    if (std::ranges::count(config.models, name, &ModelRequest::name) > 0)
      return invalid_argument("{}: model '{}' is also given by --model", configuration_file_.string(), name);
  }
  return config;
}

void Daemon::advance_configuration() {
  if (!reading_configuration_ || !reading_configuration_->is_over() || phase_ != Phase::kServing) return;
  auto config = check_configuration(*reading_configuration_);
  reading_configuration_.reset();
  is_life_due_ = true;
  if (config.ok()) return take_configuration(*std::move(config));
  log_.error("configuration_refused reason=\"{}\"", config.status().message());
}

void Daemon::take_configuration(DaemonConfig config) {
  log_.info("configuration_taken models={}", config.models.size());
  for (const auto& service : services_) {
    if (!service) continue;
    const auto wanted = std::ranges::find(config.models, service->name, &ModelRequest::name);
    if (wanted != config.models.end()) {
      service->origin = Origin::kConfiguration;
      plan_reload(*service, *wanted);
      config.models.erase(wanted);
    } else if (service->origin == Origin::kConfiguration) {
      begin_unload(*service, {});
    } else if (!is_unloading(*service)) {
      plan_reload(*service, service->request);
    }
  }
  for (ModelRequest& request : config.models) begin_load(add_service(std::move(request), Origin::kConfiguration), true, {});
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
  std::unique_ptr<FileSearch> finding = find_files(service.request, callers);
  service.change = Change{.kind = Change::Kind::kLoad,
                          .outcome = "loaded",
                          .each_alone = each_alone,
                          .callers = std::move(callers),
                          .finding = std::move(finding),
                          .begun_ns = monotonic_now_ns()};
  is_life_due_ = true;
  if (!service.change->finding) load_found(service, find_entries(service.request));
}

void Daemon::load_found(Service& service, std::vector<VersionEntry> found) {
  const std::uint64_t patience_ns = service.change->each_alone ? kMemoryPatienceNs : 0;
  for (VersionEntry& entry : found) service.change->coming.push_back(&add_version(service, std::move(entry), patience_ns));
}

// Null for a built-in model, which has no files. Without callers the daemon itself asks.
std::unique_ptr<FileSearch> Daemon::find_files(const ModelRequest& request, std::span<const Caller> callers) {
  if (request.path.starts_with(kBuiltinPrefix)) return nullptr;
  if (callers.empty()) return files_.ask(Asker::kDaemon, what_files(request), question_text(request));
  return files_.ask(Asker::kClient, what_files(request), question_text(request), process_of(callers.front()));
}

// Goes on with the versions that were found. A search that failed gives one version that has failed.
void Daemon::files_found(Service& service) {
  Change& change = *service.change;
  const ModelRequest request = change.request.value_or(service.request);
  auto text = std::exchange(change.finding, nullptr)->take();
  auto found = text.ok() ? parse_entries(*text, request) : text.status();
  if (!found.ok()) found = std::vector{failed_entry(request, found.status())};
  change.kind == Change::Kind::kLoad ? load_found(service, *std::move(found)) : reload_found(service, *std::move(found));
}

// Make before break. Wanted versions that do not serve yet are loaded and get their workers. Versions that are no longer wanted
// leave when all of these are ready.
void Daemon::begin_reload(Service& service, const ModelRequest& request, bool force, std::vector<Caller> callers) {
  std::unique_ptr<FileSearch> finding = find_files(request, callers);
  service.change = Change{.kind = Change::Kind::kReload,
                          .outcome = service.drained && !callers.empty() ? "reloaded" : "unchanged",
                          .ends_drain = !callers.empty(),
                          .is_forced = force,
                          .request = request,
                          .callers = std::move(callers),
                          .finding = std::move(finding),
                          .begun_ns = monotonic_now_ns()};
  is_life_due_ = true;
  if (!service.change->finding) reload_found(service, find_entries(request));
}

void Daemon::reload_found(Service& service, std::vector<VersionEntry> wanted) {
  Change& change = *service.change;
  std::erase_if(wanted, [&](const VersionEntry& entry) {
    ModelVersion* same = service.serving(entry.model.files.version);
    if (!same || change.is_forced || same->has_failed() || !same_version(same->entry(), entry)) return false;
    change.kept.push_back({same, same->processes().options().workers, entry.model.config.workers});
    if (change.kept.back().before != change.kept.back().wanted) change.outcome = "reloaded";
    return true;
  });
  for (ModelVersion* model : service.versions) {
    if (model->stage() == ModelVersion::Stage::kServing && std::ranges::count(change.kept, model, &Change::Kept::model) == 0)
      change.leaving.push_back(model);
  }
  for (const Change::Kept& kept : change.kept) {
    if (kept.wanted > kept.before) kept.model->processes().set_workers(kept.wanted);
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
  service.change->request->overrides.workers = workers;  // a later reload keeps this number
  log_.info("scale model={} workers={}", service.name, workers);
  for (ModelVersion* model : service.versions) {
    if (!model->is_serving() || model->has_failed()) continue;
    service.change->kept.push_back({model, model->processes().options().workers, workers});
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
  service.next.reset();
  if (is_unloading(service)) {
    std::ranges::copy(callers, std::back_inserter(service.change->callers));
    return;
  }
  if (service.change) answer_callers(service, cancelled("model '{}' is being unloaded", service.name));
  service.change =
      Change{.kind = Change::Kind::kUnload, .outcome = "unloaded", .callers = std::move(callers), .begun_ns = monotonic_now_ns()};
  log_.info("unload model={}", service.name);
  for (ModelVersion* model : service.versions) model->leave(monotonic_now_ns() + ModelVersion::kLeaveLimitNs);
  is_life_due_ = true;
}

void Daemon::advance_change(Service& service, std::uint64_t now_ns) {
  switch (service.change->kind) {
    case Change::Kind::kLoad:
    case Change::Kind::kReload:
      return advance_load(service, now_ns);
    case Change::Kind::kScale:
      if (is_staffed(service)) return finish_change(service);
      if (const auto one = std::ranges::find_if(service.change->kept, &Change::Kept::cannot); one != service.change->kept.end())
        fail_change(service, one->model->processes().reason());
      return;
    case Change::Kind::kDrain:
      if (std::ranges::all_of(service.versions, [&](const ModelVersion* each) { return ledger_.model_idle(each->index()); }))
        finish_change(service);
      return;
    case Change::Kind::kUnload:
      return;  // advance_service() ends it when the last version is gone
  }
}

void Daemon::advance_load(Service& service, std::uint64_t now_ns) {
  Change& change = *service.change;
  if (change.finding) {
    if (phase_ != Phase::kServing) return;
    if (is_abandoned(service)) return fail_change(service, "the client that asked for it has gone, and nobody else waits for it");
    if (!change.finding->is_over()) return;
    files_found(service);
  }
  const bool is_asked = !change.callers.empty();
  for (ModelVersion* model : change.coming) model->advance_start(now_ns, is_asked);
  for (ModelVersion* model : change.coming) model->advance_probe(now_ns, change.kind == Change::Kind::kReload, is_asked);
  change.each_alone ? advance_each_alone(service) : advance_whole(service, now_ns);
}

void Daemon::advance_each_alone(Service& service) {
  std::vector<ModelVersion*>& coming = service.change->coming;
  std::erase_if(coming, [&](ModelVersion* model) {
    if (!model->is_ready() && !model->has_failed()) return false;
    begin_serving(service, *model);
    return true;
  });
  if (coming.empty()) finish_change(service);
}

void Daemon::advance_whole(Service& service, std::uint64_t now_ns) {
  Change& change = *service.change;
  if (!change.flipped_until_ns) {
    if (const auto failed = std::ranges::find_if(change.coming, &ModelVersion::has_failed); failed != change.coming.end())
      return fail_change(service, (*failed)->processes().reason(), (*failed)->failure_code());
    if (const auto late = std::ranges::find_if(change.kept, &Change::Kept::is_late); late != change.kept.end()) {
      if (late->cannot()) fail_change(service, late->model->processes().reason());
      return;
    }
    if (!std::ranges::all_of(change.coming, &ModelVersion::is_ready)) return;
    // The flip: from here on new requests go to the new versions. The old ones answer the requests that they have admitted.
    change.flipped_until_ns = now_ns + kPatienceNs;
    for (ModelVersion* model : std::exchange(change.coming, {})) begin_serving(service, *model);
    for (ModelVersion* model : std::exchange(change.leaving, {})) model->leave({});
    for (const Change::Kept& kept : std::exchange(change.kept, {})) kept.model->processes().set_workers(kept.wanted);
    choose_current(service);
  }
  const bool is_leaving = std::ranges::count(service.versions, ModelVersion::Stage::kLeaving, &ModelVersion::stage) > 0;
  if ((!is_leaving && !has_surplus(service)) || now_ns >= *change.flipped_until_ns) finish_change(service);
}

void Daemon::begin_serving(Service& service, ModelVersion& model) {
  model.serve();
  versions_changed_ = true;
  if (!model.has_failed())
    log_.info("version_serves model={} version={} workers={}", service.name, model.version(),
              model.processes().options().workers);
}

bool Daemon::is_staffed(const Service& service) {
  return std::ranges::all_of(service.versions, [](const ModelVersion* model) {
    const ModelProcesses& processes = model->processes();
    return !model->is_serving() || model->has_failed() ||
           (processes.ready_workers() == processes.options().workers &&
            processes.workers().size() == static_cast<std::size_t>(processes.options().workers));
  });
}

bool Daemon::has_surplus(const Service& service) {
  return std::ranges::any_of(service.versions, [](const ModelVersion* model) {
    const ModelProcesses& processes = model->processes();
    return model->is_serving() && processes.workers().size() > static_cast<std::size_t>(processes.options().workers);
  });
}

// A load that a client asked for keeps its caller until it is answered. Without a caller that client has disconnected.
bool Daemon::is_abandoned(const Service& service) {
  return service.origin == Origin::kCommand && service.change && service.change->kind == Change::Kind::kLoad &&
         service.change->callers.empty();
}

bool Daemon::is_unloading(const Service& service) { return service.change && service.change->kind == Change::Kind::kUnload; }

void Daemon::finish_change(Service& service) {
  Change& change = *service.change;
  if (change.request) service.request = *std::move(change.request);
  if (change.ends_drain) service.drained = false;
  service.last_failure.clear();
  if (change.kind != Change::Kind::kLoad || !service.served_versions().empty())  // else model_failed was logged
    log_.info("{} model={} versions={} ms={}", change.outcome, service.name, service.served_text(),
              (monotonic_now_ns() - change.begun_ns) / 1'000'000);
  answer_callers(service, {});
  service.change.reset();
  is_life_due_ = true;
}

// The versions that served go on. A model that was to be loaded for the first time is removed.
void Daemon::fail_change(Service& service, std::string reason, StatusCode code) {
  Change& change = *service.change;
  const bool goes_on = change.kind != Change::Kind::kLoad;
  service.last_failure = reason;
  log_.error("change_failed model={} goes_on={} reason=\"{}\"", service.name, goes_on, reason);
  if (!goes_on) return forget_load(service, reason, code);
  answer_callers(service, Status(code, format("model '{}' goes on as it was: {}", service.name, reason)));
  for (const Change::Kept& kept : change.kept) {
    if (kept.model->processes().options().workers != kept.before) kept.model->processes().set_workers(kept.before);
  }
  const std::vector<ModelVersion*> coming = std::move(change.coming);
  service.change.reset();
  for (ModelVersion* model : coming) model->leave({});
  is_life_due_ = true;
}

// The callers get the answer when the model's name is free again.
void Daemon::forget_load(Service& service, const std::string& reason, StatusCode code) {
  std::vector<Caller> callers = std::move(service.change->callers);
  for (Caller& caller : callers) caller.failure = Status(code, format("model '{}' cannot be served: {}", service.name, reason));
  std::optional<ModelRequest> next = std::move(service.next);
  service.change.reset();
  begin_unload(service, std::move(callers));
  if (service.origin == Origin::kConfiguration) service.next = std::move(next);  // a newer configuration wants it again
}

void Daemon::answer_callers(Service& service, const Status& status) {
  Change& change = *service.change;
  const ModelVersion* model = service.current;
  const nlohmann::json answer{{"model", service.name},
                              {"outcome", change.outcome},
                              {"version", model && !is_unloading(service) ? nlohmann::json(model->version()) : nlohmann::json()},
                              {"versions", service.served_versions()},
                              {"workers", model ? model->processes().options().workers : 0},
                              {"ms", (monotonic_now_ns() - change.begun_ns) / 1'000'000}};
  const std::string text = json_text(answer);
  for (const Caller& caller : std::exchange(change.callers, {}))
    send_control_reply(caller.client, caller.seq, caller.failure.ok() ? status : caller.failure, text);
}

}  // namespace shoal::supervisor

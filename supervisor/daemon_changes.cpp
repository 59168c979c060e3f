// What is asked of the models while they serve: load, reload, scale, drain, unload, another configuration; and how each such
// change is carried out, or given up, as a whole.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "supervisor/daemon_service.hpp"

namespace shoal::supervisor {
namespace {

constexpr std::uint64_t kMaxWorkers = 1024;
constexpr std::uint64_t kPatienceNs = 30'000'000'000;       // for the end of what was replaced
constexpr std::uint64_t kMemoryPatienceNs = 5'000'000'000;  // at the daemon's start

}  // namespace

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
    if (service && is_unloading(*service))
      return refuse(failed_precondition("model '{}' is being unloaded; ask again when that is over", name));
    if (service)
      return refuse(failed_precondition("model '{}' is served already, from {}: reload it, or unload it first", name,
                                        service->request.path));
    return begin_load(add_service(*std::move(request), Origin::kCommand), false, {caller});
  }
  if (!service) return refuse(no_such_model(name));
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
  if (service->served_versions().empty())
    return refuse(failed_precondition("model '{}' has no version that serves: {}", name, service->reason()));
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
  service.change = Change{.kind = Change::Kind::kLoad,
                          .outcome = "loaded",
                          .each_alone = each_alone,
                          .callers = std::move(callers),
                          .begun_ns = monotonic_now_ns()};
  for (VersionEntry& entry : find_entries(service.request))
    service.change->coming.push_back(&add_version(service, std::move(entry), each_alone ? kMemoryPatienceNs : 0));
}

// Make before break: what is wanted and not there comes, workers included, and what is there and not wanted leaves when all of
// that is ready.
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
    change.kept.push_back({same, same->processes().options().workers, entry.model.config.workers});
    if (change.kept.back().before != change.kept.back().wanted) change.outcome = "reloaded";
    return true;
  });
  for (Model* model : service.versions) {
    if (model->stage() == Model::Stage::kServing && std::ranges::count(change.kept, model, &Change::Kept::model) == 0)
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
  service.change->request->overrides.workers = workers;  // a reload keeps to it
  log_.info("scale model={} workers={}", service.name, workers);
  for (Model* model : service.versions) {
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
  for (Model* model : service.versions) model->leave(monotonic_now_ns() + Model::kLeaveLimitNs);
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
  change.each_alone ? advance_each_alone(service) : advance_whole(service, now_ns);
}

void Daemon::advance_each_alone(Service& service) {
  std::vector<Model*>& coming = service.change->coming;
  std::erase_if(coming, [&](Model* model) {
    if (!model->is_ready() && !model->has_failed()) return false;
    begin_serving(service, *model);
    return true;
  });
  if (coming.empty()) finish_change(service);
}

void Daemon::advance_whole(Service& service, std::uint64_t now_ns) {
  Change& change = *service.change;
  if (!change.flipped_until_ns) {
    if (const auto failed = std::ranges::find_if(change.coming, &Model::has_failed); failed != change.coming.end())
      return fail_change(service, (*failed)->processes().reason());
    if (const auto late = std::ranges::find_if(change.kept, &Change::Kept::is_late); late != change.kept.end()) {
      if (late->cannot()) fail_change(service, late->model->processes().reason());
      return;
    }
    if (!std::ranges::all_of(change.coming, &Model::is_ready)) return;
    // The flip: from here on new requests go to what has come. What they replace answers what it has admitted.
    change.flipped_until_ns = now_ns + kPatienceNs;
    for (Model* model : std::exchange(change.coming, {})) begin_serving(service, *model);
    for (Model* model : std::exchange(change.leaving, {})) model->leave({});
    for (const Change::Kept& kept : std::exchange(change.kept, {})) kept.model->processes().set_workers(kept.wanted);
    choose_current(service);
  }
  const bool is_leaving = std::ranges::count(service.versions, Model::Stage::kLeaving, &Model::stage) > 0;
  if ((!is_leaving && !has_surplus(service)) || now_ns >= *change.flipped_until_ns) finish_change(service);
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

bool Daemon::has_surplus(const Service& service) {
  return std::ranges::any_of(service.versions, [](const Model* model) {
    const ModelProcesses& processes = model->processes();
    return model->is_serving() && processes.workers().size() > static_cast<std::size_t>(processes.options().workers);
  });
}

bool Daemon::is_unloading(const Service& service) { return service.change && service.change->kind == Change::Kind::kUnload; }

void Daemon::finish_change(Service& service) {
  Change& change = *service.change;
  if (change.request) service.request = *std::move(change.request);
  if (change.ends_drain) service.drained = false;
  service.last_failure.clear();
  log_.info("{} model={} versions={} ms={}", change.outcome, service.name, service.served_text(),
            (monotonic_now_ns() - change.begun_ns) / 1'000'000);
  answer_callers(service, {});
  service.change.reset();
  is_life_due_ = true;
}

// What was served goes on; a model that was to be loaded anew is forgotten.
void Daemon::fail_change(Service& service, std::string reason) {
  Change& change = *service.change;
  const bool goes_on = change.kind != Change::Kind::kLoad;
  service.last_failure = reason;
  log_.error("change_failed model={} goes_on={} reason=\"{}\"", service.name, goes_on, reason);
  if (!goes_on) return forget_load(service, reason);
  answer_callers(service, failed_precondition("model '{}' goes on as it was: {}", service.name, reason));
  for (const Change::Kept& kept : change.kept) {
    if (kept.model->processes().options().workers != kept.before) kept.model->processes().set_workers(kept.before);
  }
  const std::vector<Model*> coming = std::move(change.coming);
  service.change.reset();
  for (Model* model : coming) model->leave({});
  is_life_due_ = true;
}

// Who asked for it hears of it when its name is free again.
void Daemon::forget_load(Service& service, const std::string& reason) {
  std::vector<Caller> callers = std::move(service.change->callers);
  for (Caller& caller : callers) caller.failure = failed_precondition("model '{}' cannot be served: {}", service.name, reason);
  std::optional<ModelRequest> next = std::move(service.next);
  service.change.reset();
  begin_unload(service, std::move(callers));
  if (service.origin == Origin::kConfiguration) service.next = std::move(next);  // which wants it meanwhile
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
    send_control_reply(caller.client, caller.seq, caller.failure.ok() ? status : caller.failure, answer.dump());
}

}  // namespace shoal::supervisor

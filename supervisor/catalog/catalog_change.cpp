// How wishes come true, one step after the other.
#include <algorithm>
#include <utility>

#include "shm/base/errors.hpp"
#include "supervisor/catalog/catalog.hpp"

namespace shoal::supervisor {

using Stage = CatalogVersion::Stage;

namespace {

bool is_past(const std::optional<std::uint64_t>& limit_ns, std::uint64_t now_ns) { return limit_ns && now_ns >= *limit_ns; }

bool has_leaving(const Service& service) {
  return std::ranges::any_of(service.versions, [](const auto& version) { return version->stage == Stage::kLeaving; });
}

bool has_surplus(const Service& service) {
  return std::ranges::any_of(service.versions,
                             [](const auto& version) { return version->serves() && version->facts.alive > version->workers; });
}

}  // namespace

void Catalog::advance(const Facts& facts, std::uint64_t now_ns) {
  for (const auto& service : unloading_) {
    advance_service(*service, facts, now_ns);
    if (!service->versions.empty()) continue;
    log_.info("unloaded model={} ms={}", service->name, (now_ns - service->unload_begun_ns) / 1'000'000);
    answer(*service, service->unload_callers, {}, "unloaded", service->unload_begun_ns, now_ns);
    actions_.push_back(ForgetModel{service->name});
  }
  std::erase_if(unloading_, [](const auto& service) { return service->versions.empty(); });
  for (const auto& service : services_) advance_service(*service, facts, now_ns);
  move_unloading();
}

void Catalog::advance_service(Service& service, const Facts& facts, std::uint64_t now_ns) {
  for (const auto& version : service.versions) version->facts = facts(*version);
  std::erase_if(service.versions, [&](const auto& version) { return advance_leaving(service, *version, now_ns); });
  if (service.change) advance_change(service, now_ns);
  if (service.is_unloading) return;
  if (!service.change && service.next && !closed_) begin_next(service, now_ns);
  choose_current(service);
  if (service.scaling) advance_scaling(service, now_ns);
  if (service.drain) advance_drain(service, now_ns);
  set_route(service);
}

// If the change before has failed, its keys are not in force.
void Catalog::begin_next(Service& service, std::uint64_t now_ns) {
  CatalogChange next = *std::exchange(service.next, std::nullopt);
  if (!next.names_keys) next.request = service.request;
  begin_change(service, std::move(next), now_ns);
}

// ---- versions ----

CatalogVersion& Catalog::add_version(Service& service, VersionEntry entry) {
  auto version = std::make_unique<CatalogVersion>();
  version->id = ++last_version_;
  version->workers = entry.model.config.workers;
  version->entry = std::move(entry);
  const bool is_patient = service.origin != Origin::kCommand && service.change->is_load;
  actions_.push_back(AddVersion{version->id, service.name, version->entry, is_patient ? kMemoryPatienceNs : 0});
  CatalogVersion& added = *version;
  service.versions.push_back(std::move(version));
  std::ranges::stable_sort(service.versions, {}, [](const auto& each) { return each->number(); });
  return added;
}

void Catalog::serve_version(const Service& service, CatalogVersion& version) {
  version.stage = Stage::kServing;
  if (!version.facts.has_failed)
    log_.info("version_serves model={} version={} workers={}", service.name, version.number(), version.workers);
}

void Catalog::set_workers(CatalogVersion& version, int workers) {
  if (version.workers == workers) return;
  version.workers = workers;
  actions_.push_back(SetWorkers{version.id, workers});
}

// Without a limit, the watchdog ends workers that hang, and requests fail when no worker could have answered them for
// kLeaveLimitNs.
void Catalog::leave(const Service& service, CatalogVersion& version, std::optional<std::uint64_t> limit_ns) {
  if (limit_ns && !version.leave_limit_ns) version.leave_limit_ns = limit_ns;
  if (version.stage == Stage::kLeaving) return;
  version.stage = Stage::kLeaving;
  version.probe_limit_ns.reset();
  actions_.push_back(
      RetireVersion{version.id, format("version {} of model '{}' is being removed", version.number(), service.name)});
}

// Returns true when nothing of it is left.
bool Catalog::advance_leaving(const Service& service, CatalogVersion& version, std::uint64_t now_ns) {
  if (version.stage != Stage::kLeaving) return false;
  const VersionFacts& facts = version.facts;
  if (!version.is_ended) {
    if (facts.can_answer)
      version.stuck_limit_ns.reset();
    else if (!version.stuck_limit_ns)
      version.stuck_limit_ns = now_ns + kLeaveLimitNs;
    if (!facts.is_idle && !is_past(version.leave_limit_ns, now_ns) && !is_past(version.stuck_limit_ns, now_ns)) return false;
    if (!facts.is_idle) {
      actions_.push_back(EndRequests{version.id, format("version {} was removed, and the request was not finished after {} s",
                                                        version.number(), kLeaveLimitNs / 1'000'000'000)});
    }
    actions_.push_back(EndProcesses{version.id});
    version.is_ended = true;
    version.stuck_limit_ns.reset();
    version.leave_limit_ns = now_ns + kExitLimitNs;
    return false;
  }
  if (facts.is_gone) {
    version.leave_limit_ns.reset();
    if (!facts.is_idle) return false;
    log_.info("version_gone model={} version={}", service.name, version.number());
    actions_.push_back(FreeVersion{version.id});
    return true;
  }
  if (is_past(version.leave_limit_ns, now_ns)) {
    actions_.push_back(EndProcesses{version.id, true});
    version.leave_limit_ns = now_ns + kExitLimitNs;
  }
  return false;
}

void Catalog::choose_current(Service& service) {
  const CatalogVersion* chosen = nullptr;  // a failed version is chosen only if there is no other: its reason is shown
  for (const auto& version : service.versions) {
    if (version->serves() && (!chosen || chosen->facts.has_failed || !version->facts.has_failed)) chosen = version.get();
  }
  service.current = chosen;
}

void Catalog::set_route(Service& service) {
  ModelRoute route{.name = service.name, .is_drained = service.is_drained, .served = service.served_text()};
  for (const auto& version : service.versions) {
    if (version->serves()) route.targets.push_back({version->number(), version->id});
  }
  if (service.current)
    route.current = service.current->id;
  else
    route.reason = service.reason();
  if (route == service.route) return;
  service.route = route;
  actions_.push_back(SetRoute{service.wire_id, std::move(route)});
}

// ---- loads and reloads ----

void Catalog::found(SearchId search, Result<std::vector<VersionEntry>> entries) {
  const auto service = std::ranges::find_if(
      services_, [&](const auto& each) { return each->change && each->change->search == search && search != 0; });
  if (closed_ || service == services_.end()) return;
  CatalogChange& change = *(*service)->change;
  change.search = 0;
  if (!entries.ok() && change.goes_on_without && (!change.coming.empty() || !change.kept.empty())) {
    log_.warn("search_failed model={} reason=\"{}\"", (*service)->name, entries.status().message());
    return;
  }
  change.found = entries.ok() ? *std::move(entries) : std::vector{failed_entry(change.request, entries.status())};
}

void Catalog::advance_change(Service& service, std::uint64_t now_ns) {
  CatalogChange& change = *service.change;
  if (change.found && !closed_ && !is_leaving(service.name)) {  // a model that was unloaded before keeps its memory so long
    const std::size_t before = actions_.size();
    place(service);
    if (actions_.size() > before) return;  // what is known of the versions is older than these actions
  }
  for (CatalogVersion* version : change.coming) advance_probe(service, *version, now_ns);
  if (change.search != 0) {
    if (change.is_load && !service.is_awaited() && !service.next && !service.loads_each_alone())
      fail_change(service, "the client that asked for it has gone, and nobody else waits for it", StatusCode::kFailedPrecondition,
                  now_ns);
    return;
  }
  if (change.found) return;
  service.loads_each_alone() ? advance_each_alone(service, now_ns) : advance_whole(service, now_ns);
}

CatalogChange::Kept* CatalogChange::find_kept(const CatalogVersion& version) {
  const auto found = std::ranges::find(kept, &version, &Kept::version);
  return found != kept.end() ? &*found : nullptr;
}

// Compares what was found with what serves and what comes already.
void Catalog::place(Service& service) {
  CatalogChange& change = *service.change;
  std::vector<CatalogVersion*> were_coming = std::exchange(change.coming, {});
  change.leaving.clear();
  CatalogChange old;
  old.kept = std::exchange(change.kept, {});
  const auto workers_before = [&](const CatalogVersion& version) {
    const CatalogChange::Kept* kept = old.find_kept(version);
    return kept ? kept->before : version.workers;
  };
  std::vector<VersionEntry> found = *std::exchange(change.found, std::nullopt);
  for (VersionEntry& entry : found) {
    ModelConfig& config = entry.model.config;
    config.workers = change.request.overrides.workers.value_or(config.workers);  // a `scale` may have come during the search
    const auto is_it = [&](const CatalogVersion& version) {
      return version.number() == entry.model.files.version && !version.facts.has_failed && same_version(version.entry, entry);
    };
    const auto serving = std::ranges::find_if(
        service.versions, [&](const auto& version) { return version->serves() && !change.is_forced && is_it(*version); });
    if (serving != service.versions.end()) {
      change.kept.push_back({serving->get(), workers_before(**serving), config.workers});
      continue;
    }
    const auto coming = std::ranges::find_if(were_coming, [&](const CatalogVersion* version) { return is_it(*version); });
    if (coming != were_coming.end()) {
      change.coming.push_back(*coming);
      were_coming.erase(coming);
      set_workers(*change.coming.back(), config.workers);
    } else {
      change.coming.push_back(&add_version(service, std::move(entry)));
    }
  }
  for (CatalogVersion* version : were_coming) leave(service, *version, {});
  for (const auto& version : service.versions) {
    if (!version->serves() || change.find_kept(*version)) continue;
    change.leaving.push_back(version.get());
    set_workers(*version, workers_before(*version));
  }
  // Some of it serves already while a configured model loads. What serves is replaced as a whole or not at all.
  if (change.is_load && std::ranges::any_of(change.leaving, [](const auto* version) { return !version->facts.has_failed; })) {
    change.is_load = false;
    for (CatalogVersion* version : change.coming) version->is_probed = false;  // what replaces something must answer first
  }
  for (const CatalogChange::Kept& kept : change.kept) set_workers(*kept.version, std::max(kept.before, kept.wanted));
  change.has_changed = !change.coming.empty() || !change.leaving.empty() ||
                       std::ranges::any_of(change.kept, [](const auto& kept) { return kept.before != kept.wanted; });
  log_.info("placed model={} coming={} leaving={} kept={}", service.name, change.coming.size(), change.leaving.size(),
            change.kept.size());
}

// A version that replaces nothing is probed only if it has a stored input. A version that nobody waits for does not fail because
// descriptors, memory or process ids are missing: its start is tried until they are there.
void Catalog::advance_probe(const Service& service, CatalogVersion& version, std::uint64_t now_ns) {
  if (version.facts.has_failed) version.probe_limit_ns.reset();
  if (version.facts.has_failed) return;
  if (version.probe_limit_ns) {
    if (now_ns < *version.probe_limit_ns) return;
    version.probe_limit_ns.reset();
    actions_.push_back(FailVersion{version.id, format("version {}: its probe was not answered within {} s", version.number(),
                                                      kProbeLimitNs / 1'000'000'000)});
    return;
  }
  if (version.facts.ready < version.workers) {
    const bool is_patient = version.facts.lacks_resources && (!service.is_awaited() || service.loads_each_alone());
    if (version.facts.is_stalled && !is_patient) actions_.push_back(FailVersion{version.id, version.facts.reason});
    return;
  }
  if (version.is_probed) return;
  if (service.change->is_load && version.entry.model.config.golden_file.empty()) {
    version.is_probed = true;
    return;
  }
  version.probe_limit_ns = now_ns + kProbeLimitNs;
  actions_.push_back(SendProbe{version.id});
}

// The model may refuse zeros.
bool answers_probe(const Status& status, const ModelConfig& config) {
  return status.ok() || (status.code() == StatusCode::kInvalidArgument && config.golden_file.empty());
}

void Catalog::probed(VersionId id, const Status& status) {
  CatalogVersion* version = find_version(id);
  if (!version || !version->probe_limit_ns) return;
  version->probe_limit_ns.reset();
  version->is_probed = answers_probe(status, version->entry.model.config);
  if (!version->is_probed)
    actions_.push_back(FailVersion{id, format("version {} failed its probe: {}", version->number(), status.to_string())});
}

void Catalog::probe_not_sent(VersionId id) {
  if (CatalogVersion* version = find_version(id)) version->probe_limit_ns.reset();
}

CatalogVersion* Catalog::find_version(VersionId id) {
  for (const auto& service : services_) {
    for (const auto& version : service->versions) {
      if (version->id == id) return version.get();
    }
  }
  return nullptr;
}

void Catalog::advance_each_alone(Service& service, std::uint64_t now_ns) {
  CatalogChange& change = *service.change;
  std::erase_if(change.coming, [&](CatalogVersion* version) {
    if (!version->is_ready() && !version->facts.has_failed) return false;
    serve_version(service, *version);
    put_in_force(service, change.request);  // whatever comes next, this is what serves
    return true;
  });
  choose_current(service);
  if (!change.coming.empty()) return;
  for (CatalogVersion* version : std::exchange(change.leaving, {})) leave(service, *version, {});
  for (const CatalogChange::Kept& kept : std::exchange(change.kept, {})) set_workers(*kept.version, kept.wanted);
  choose_current(service);
  if (service.served_versions().empty()) {
    answer(service, change.callers,
           Status(service.current ? service.current->facts.failure : StatusCode::kFailedPrecondition,
                  format("model '{}' cannot be served: {}", service.name, service.reason())),
           "", 0, 0);
  }
  finish_change(service, now_ns);
}

void Catalog::advance_whole(Service& service, std::uint64_t now_ns) {
  CatalogChange& change = *service.change;
  if (!change.settling_until_ns) {
    const auto failed =
        std::ranges::find_if(change.coming, [](const CatalogVersion* version) { return version->facts.has_failed; });
    if (failed != change.coming.end()) return fail_change(service, (*failed)->facts.reason, (*failed)->facts.failure, now_ns);
    const auto late = std::ranges::find_if(change.kept, [](const CatalogChange::Kept& kept) {
      return kept.wanted > kept.before && kept.version->facts.ready < kept.wanted;
    });
    if (late != change.kept.end()) {
      if (late->version->cannot()) fail_change(service, late->version->facts.reason, StatusCode::kFailedPrecondition, now_ns);
      return;
    }
    if (!std::ranges::all_of(change.coming, &CatalogVersion::is_ready)) return;
    // The flip: from here on new requests go to the new versions. The old ones answer the requests that they have admitted.
    change.settling_until_ns = now_ns + kSettlingLimitNs;
    for (CatalogVersion* version : std::exchange(change.coming, {})) serve_version(service, *version);
    for (CatalogVersion* version : std::exchange(change.leaving, {})) leave(service, *version, {});
    for (const CatalogChange::Kept& kept : std::exchange(change.kept, {})) set_workers(*kept.version, kept.wanted);
    choose_current(service);
  }
  if ((!has_leaving(service) && !has_surplus(service)) || is_past(change.settling_until_ns, now_ns))
    finish_change(service, now_ns);
}

void Catalog::put_in_force(Service& service, const ModelRequest& request) {
  service.request = request;
  if (service.scaling) service.scaling->override_before = service.scaling->change_override_before;
}

void Catalog::finish_change(Service& service, std::uint64_t now_ns) {
  CatalogChange change = *std::exchange(service.change, std::nullopt);
  const bool opens = change.ends_drain && service.is_drained;
  if (opens) service.is_drained = false;
  put_in_force(service, change.request);
  service.last_failure.clear();
  const std::string_view outcome = change.is_load ? "loaded" : change.has_changed || opens ? "reloaded" : "unchanged";
  if (!change.is_load || !service.served_versions().empty())  // else model_failed was logged
    log_.info("{} model={} versions={} ms={}", outcome, service.name, service.served_text(),
              (now_ns - std::min(now_ns, change.begun_ns)) / 1'000'000);
  answer(service, change.callers, {}, outcome, change.begun_ns, now_ns);
}

// The versions that served go on. A model that was to be loaded for the first time is removed.
void Catalog::fail_change(Service& service, const std::string& reason, StatusCode code, std::uint64_t now_ns) {
  CatalogChange change = *std::exchange(service.change, std::nullopt);
  if (change.search != 0) actions_.push_back(StopFinding{change.search});
  service.last_failure = reason;
  const bool serves = !service.served_versions().empty();
  log_.error("change_failed model={} goes_on={} reason=\"{}\"", service.name, serves, reason);
  if (change.is_load) {
    const Status why(code, format("model '{}' cannot be served: {}", service.name, reason));
    answer(service, change.callers, why, "", 0, 0);
    for (Callers* others : all_callers(service)) answer(service, *others, why, "", 0, 0);
    return end_service(service, now_ns);
  }
  const std::string_view rest = serves ? "goes on as it was" : "cannot be served, as before";
  answer(service, change.callers, Status(code, format("model '{}' {}: {}", service.name, rest, reason)), "", 0, 0);
  for (const CatalogChange::Kept& kept : change.kept) set_workers(*kept.version, kept.before);
  for (CatalogVersion* version : change.coming) leave(service, *version, {});
}

// Its name is free from now on.
void Catalog::end_service(Service& service, std::uint64_t now_ns) {
  if (service.change && service.change->search != 0) actions_.push_back(StopFinding{service.change->search});
  service.change.reset();
  service.next.reset();
  service.scaling.reset();
  service.drain.reset();
  service.unload_begun_ns = now_ns;
  service.is_unloading = true;
  service.current = nullptr;
  for (const auto& version : service.versions) leave(service, *version, now_ns + kLeaveLimitNs);
  actions_.push_back(RemoveRoute{service.wire_id});
}

// ---- numbers of workers ----

void Catalog::advance_scaling(Service& service, std::uint64_t now_ns) {
  bool is_staffed = true;
  const CatalogVersion* failed = nullptr;
  for (const auto& version : service.versions) {
    if (!version->serves()) continue;
    const bool is_scaled = std::ranges::count(service.scaling->before, version->id, &CatalogScaling::Before::version) > 0;
    if (is_scaled && version->cannot()) failed = version.get();  // others may have failed before
    is_staffed &=
        version->facts.has_failed || (version->facts.ready == version->workers && version->facts.alive == version->workers);
  }
  const bool serves = !service.served_versions().empty();
  if (!serves && service.change) return;  // it waits for the load
  if (serves && is_staffed) {
    log_.info("scaled model={} versions={} ms={}", service.name, service.served_text(),
              (now_ns - service.scaling->begun_ns) / 1'000'000);
    answer(service, service.scaling->callers, {}, "scaled", service.scaling->begun_ns, now_ns);
    service.scaling.reset();
  } else if (failed || !serves) {
    const std::string reason = failed ? failed->facts.reason : service.reason();
    log_.error("change_failed model={} goes_on=true reason=\"{}\"", service.name, reason);
    service.last_failure = reason;
    answer(service, service.scaling->callers, failed_precondition("model '{}' goes on as it was: {}", service.name, reason), "",
           0, 0);
    undo_scaling(service);
    // What comes gets the number of the files again, which nobody remembers.
    if (service.change && !service.change->settling_until_ns && !closed_)
      begin_change(service, {.request = service.change->request, .goes_on_without = true}, now_ns);
  }
}

// ---- drains ----

// Versions that leave have limits of their own.
void Catalog::advance_drain(Service& service, std::uint64_t now_ns) {
  CatalogDrain& drain = *service.drain;
  bool is_idle = true, is_stuck = false;
  std::size_t requests = 0;
  for (const auto& version : service.versions) {
    is_idle &= version->facts.is_idle;
    is_stuck |= version->serves() && !version->facts.is_idle && !version->facts.can_answer;
    requests += version->facts.requests;
  }
  if (!is_stuck)
    drain.stuck_limit_ns.reset();
  else if (!drain.stuck_limit_ns)
    drain.stuck_limit_ns = now_ns + kLeaveLimitNs;
  if (is_idle) {
    log_.info("drained model={}", service.name);
    answer(service, drain.callers, {}, "drained", drain.begun_ns, now_ns);
    service.drain.reset();
  } else if (is_past(drain.stuck_limit_ns, now_ns)) {
    const Status why = failed_precondition(
        "model '{}' takes no new requests, but {} of those that it has wait still: for {} s no worker could answer them. `shoal "
        "unload {}` ends them, `shoal reload {}` opens the model again",
        service.name, requests, kLeaveLimitNs / 1'000'000'000, service.name, service.name);
    log_.warn("drain_failed model={} requests={}", service.name, requests);
    answer(service, drain.callers, why, "", 0, 0);
    service.drain.reset();
  }
}

}  // namespace shoal::supervisor

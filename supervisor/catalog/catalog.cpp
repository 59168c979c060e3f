// Wishes: what is asked of the catalog, and what each of them makes of those before it. How they come true is in
// catalog_change.cpp.
#include "supervisor/catalog/catalog.hpp"

#include <algorithm>
#include <utility>

#include "shm/base/errors.hpp"
#include "shm/base/shortened.hpp"

namespace shoal::supervisor {
namespace {

constexpr int kMaxWorkers = 1024;
constexpr std::size_t kMostNamed = 2000;  // bytes of names: anybody may ask for a model that does not exist, again and again

void earlier(std::optional<std::uint64_t>& next, std::optional<std::uint64_t> at_ns) {
  if (at_ns) next = std::min(next.value_or(*at_ns), *at_ns);
}

}  // namespace

std::string_view wish_name(WishKind kind) {
  constexpr std::string_view kNames[] = {"load", "reload", "scale", "drain", "unload"};
  return kNames[static_cast<std::size_t>(kind)];
}

// ---- one service ----

const CatalogVersion* Service::serving(std::uint64_t number) const {
  if (number == 0) return current;
  const auto found =
      std::ranges::find_if(versions, [&](const auto& version) { return version->number() == number && version->serves(); });
  return found == versions.end() ? nullptr : found->get();
}

std::vector<std::uint64_t> Service::served_versions() const {
  std::vector<std::uint64_t> numbers;
  for (const auto& version : versions) {
    if (version->serves() && !version->facts.has_failed) numbers.push_back(version->number());
  }
  return numbers;
}

std::string Service::served_text() const {
  std::string text;
  for (const std::uint64_t number : served_versions()) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return text.empty() ? "none" : text;
}

bool Service::waits_for(std::uint64_t number) const {
  if (next) return true;
  return change &&
         (change->search != 0 || change->found || std::ranges::any_of(change->coming, [&](const CatalogVersion* version) {
            return number == 0 || version->number() == number;
          }));
}

std::string Service::reason() const {
  if (current && current->facts.has_failed) return current->facts.reason;
  if (!last_failure.empty()) return last_failure;
  if (is_unloading) return "it is being unloaded";
  return change ? "it is being loaded" : current ? current->facts.reason : "no version of it is served";
}

Status ModelRoute::no_such_version(std::uint64_t number) const {
  return not_found("model '{}' has no version {} (served: {})", name, number, served);
}

// ---- all services ----

const Service* Catalog::find(const std::string& name) const {
  const auto found = std::ranges::find(services_, name, [](const auto& service) -> const std::string& { return service->name; });
  return found == services_.end() ? nullptr : found->get();
}

Service* Catalog::find_mutable(const std::string& name) { return const_cast<Service*>(std::as_const(*this).find(name)); }

bool Catalog::is_leaving(const std::string& name) const {
  return std::ranges::any_of(unloading_, [&](const auto& service) { return service->name == name; });
}

Status Catalog::no_such_model(const std::string& name) const {
  std::string names;
  for (const auto& service : services_) names += (names.empty() ? "" : ", ") + service->name;
  return not_found("no model '{}' (served: {})", name, names.empty() ? "none" : shortened(names, kMostNamed));
}

bool Catalog::is_asked(VersionId version) const {
  return std::ranges::any_of(services_, [&](const auto& service) {
    return service->is_awaited() && !service->loads_each_alone() &&
           std::ranges::count(service->change->coming, version, &CatalogVersion::id) > 0;
  });
}

Service& Catalog::add_service(ModelRequest request, Origin origin) {
  auto service = std::make_unique<Service>();
  service->name = request.name;
  service->wire_id = ++last_wire_id_;
  service->origin = origin;
  service->request = std::move(request);
  services_.push_back(std::move(service));
  return *services_.back();
}

bool Catalog::is_busy() const {
  return !unloading_.empty() || std::ranges::any_of(services_, [](const auto& service) {
    return service->change || service->next || service->scaling || service->drain ||
           std::ranges::any_of(service->versions,
                               [](const auto& version) { return version->stage == CatalogVersion::Stage::kLeaving; });
  });
}

std::optional<std::uint64_t> Catalog::next_tick_ns() const {
  std::optional<std::uint64_t> next;
  for (const auto* all : {&services_, &unloading_}) {
    for (const auto& service : *all) {
      if (service->change) earlier(next, service->change->settling_until_ns);
      if (service->drain) earlier(next, service->drain->stuck_limit_ns);
      for (const auto& version : service->versions) {
        earlier(next, version->probe_limit_ns);
        earlier(next, version->leave_limit_ns);
        earlier(next, version->stuck_limit_ns);
      }
    }
  }
  return next;
}

void Catalog::postpone(std::uint64_t by_ns) {
  for (const auto* all : {&services_, &unloading_}) {
    for (const auto& service : *all) {
      if (service->change && service->change->settling_until_ns) *service->change->settling_until_ns += by_ns;
      if (service->drain && service->drain->stuck_limit_ns) *service->drain->stuck_limit_ns += by_ns;
      for (const auto& version : service->versions) {
        for (auto* limit_ns : {&version->probe_limit_ns, &version->leave_limit_ns, &version->stuck_limit_ns}) {
          if (*limit_ns) **limit_ns += by_ns;
        }
      }
    }
  }
}

// ---- wishes ----

namespace {

Status too_many_callers(const std::string& model) {
  return overloaded("model '{}': {} calls wait for changes of it, which is the limit: try again later", model,
                    Catalog::kMostCallers);
}

const ModelRequest& latest_request(const Service& service) {
  return service.next ? service.next->request : service.change ? service.change->request : service.request;
}

bool is_same(const ModelRequest& a, const ModelRequest& b) { return question_text(a) == question_text(b); }

}  // namespace

Status Catalog::ask(Wish wish, std::uint64_t now_ns) {
  if (closed_) return *closed_;
  if (Service* service = find_mutable(wish.model)) return take_up(*service, std::move(wish), now_ns);
  if (wish.kind == WishKind::kLoad) {
    const std::size_t count = services_.size() + unloading_.size();
    if (most_services_ != 0 && count >= most_services_)
      return overloaded("load model '{}': the daemon has {} models, and may have {} ([limits] models): unload one first",
                        wish.model, count, most_services_);
    Service& added = add_service(*std::move(wish.request), Origin::kCommand);
    begin_change(added, {.request = added.request, .callers = {wish.caller}}, now_ns);
    return {};
  }
  const auto leaving =
      std::ranges::find(unloading_, wish.model, [](const auto& other) -> const std::string& { return other->name; });
  if (leaving == unloading_.end()) return no_such_model(wish.model);
  if (wish.kind != WishKind::kUnload) return failed_precondition("model '{}' is being unloaded: load it again", wish.model);
  if ((*leaving)->unload_callers.size() >= kMostCallers) return too_many_callers(wish.model);
  (*leaving)->unload_callers.push_back(wish.caller);
  return {};
}

Status Catalog::take_up(Service& service, Wish wish, std::uint64_t now_ns) {
  std::size_t waiting = 0;
  for (const Callers* callers : all_callers(service)) waiting += callers->size();
  if (wish.kind == WishKind::kReload && service.drain) waiting -= service.drain->callers.size();  // it answers them
  if (wish.kind != WishKind::kUnload && waiting >= kMostCallers) return too_many_callers(service.name);
  switch (wish.kind) {
    case WishKind::kLoad:
      return failed_precondition("model '{}' is served already, from {}: reload it, or unload it first", service.name,
                                 latest_request(service).path);
    case WishKind::kReload:
      if (service.drain) cancel(service, service.drain->callers, "`reload` was asked for meanwhile");
      service.drain.reset();
      request_change(service,
                     {.ends_drain = true,
                      .is_forced = wish.force,
                      .names_keys = wish.request.has_value(),
                      .request = wish.request.value_or(latest_request(service)),
                      .callers = {wish.caller}},
                     now_ns);
      return {};
    case WishKind::kScale:
      return begin_scaling(service, wish, now_ns);
    case WishKind::kDrain:
      begin_drain(service, wish.caller, now_ns);
      return {};
    case WishKind::kUnload:
      begin_unload(service, {wish.caller}, now_ns);
      return {};
  }
  return {};
}

void Catalog::serve(const ModelRequest& request, Origin origin, std::uint64_t now_ns) {
  begin_change(add_service(request, origin), {.request = request}, now_ns);
}

void Catalog::configure(std::vector<ModelRequest> models, std::uint64_t now_ns) {
  if (closed_) return;
  std::vector<std::string> names;
  for (const auto& service : services_) names.push_back(service->name);
  for (const std::string& name : names) {
    Service& service = *find_mutable(name);
    const auto wanted = std::ranges::find(models, name, &ModelRequest::name);
    if (wanted == models.end() && service.origin == Origin::kConfiguration) {
      begin_unload(service, {}, now_ns);
      continue;
    }
    ModelRequest request = latest_request(service);
    const bool names_keys = wanted != models.end();
    if (names_keys) {
      service.origin = Origin::kConfiguration;
      request = *std::move(wanted);
      models.erase(wanted);
    }
    request_change(service, {.names_keys = names_keys, .request = std::move(request)}, now_ns);
  }
  for (const ModelRequest& request : models) serve(request, Origin::kConfiguration, now_ns);
}

// Whoever asked for other keys, or for another number of workers than these keys say, does not get them.
void Catalog::drop_contradicted(Service& service, const ModelRequest& request) {
  if (is_same(request, latest_request(service))) return;
  constexpr std::string_view kWhy = "a reload with other keys was asked for meanwhile";
  if (service.change && !service.change->settling_until_ns) cancel(service, service.change->callers, kWhy);
  if (service.next) cancel(service, service.next->callers, kWhy);
  service.next.reset();
  if (!service.scaling) return;
  cancel(service, service.scaling->callers, kWhy);
  undo_scaling(service);
}

// While files are looked for, a change with the same keys waits: reloads in a loop would start the search anew for ever.
void Catalog::request_change(Service& service, CatalogChange asked, std::uint64_t now_ns) {
  const bool is_searching = service.next || (service.change && service.change->search != 0);
  const bool has_same_keys = is_same(asked.request, latest_request(service));
  if (!is_searching || !has_same_keys) {
    asked.goes_on_without = has_same_keys;
    asked.ends_drain |= service.next && service.next->ends_drain;
    drop_contradicted(service, asked.request);
    return begin_change(service, std::move(asked), now_ns);
  }
  if (!service.next) {
    asked.begun_ns = now_ns;
    service.next = std::move(asked);
    return;
  }
  service.next->ends_drain |= asked.ends_drain;
  service.next->is_forced |= asked.is_forced;
  service.next->names_keys |= asked.names_keys;
  std::ranges::copy(asked.callers, std::back_inserter(service.next->callers));
}

void Catalog::begin_change(Service& service, CatalogChange asked, std::uint64_t now_ns) {
  if (service.change && service.change->settling_until_ns) finish_change(service, now_ns);
  if (asked.begun_ns == 0) asked.begun_ns = now_ns;
  asked.search = ++last_search_;
  ClientId asks = asked.callers.empty() ? 0 : asked.callers.front().client;
  if (service.change) take_over(service, asked);
  asked.is_load =
      service.loads_each_alone() || std::ranges::none_of(service.versions, [](const auto& version) { return version->serves(); });
  if (asked.is_load && service.origin != Origin::kCommand) asks = 0;
  actions_.push_back(FindFiles{asked.search, asked.request, asks});
  service.change = std::move(asked);
  set_route(service);
}

// Takes over what the change before has prepared. place() ends those of its versions that are no longer wanted.
void Catalog::take_over(Service& service, CatalogChange& asked) {
  CatalogChange& old = *service.change;
  if (old.search != 0) actions_.push_back(StopFinding{old.search});
  asked.ends_drain |= old.ends_drain;
  asked.goes_on_without &= !asked.is_forced && (old.search == 0 || old.goes_on_without);
  if (asked.is_forced) {
    for (CatalogVersion* version : old.coming) leave(service, *version, {});
  } else {
    asked.coming = std::move(old.coming);
  }
  asked.leaving = std::move(old.leaving);
  asked.kept = std::move(old.kept);
  asked.has_changed = old.has_changed;
  asked.is_forced |= old.is_forced;
  asked.callers.insert(asked.callers.begin(), old.callers.begin(), old.callers.end());
  if (!asked.callers.empty()) asked.begun_ns = old.begun_ns;
}

Status Catalog::begin_scaling(Service& service, const Wish& wish, std::uint64_t now_ns) {
  if (wish.workers < 1 || wish.workers > kMaxWorkers)
    return invalid_argument("scale model '{}': \"workers\" must be a number from 1 to {}", service.name, kMaxWorkers);
  if (service.served_versions().empty() && !service.change)
    return failed_precondition("model '{}' has no version that serves: {}", service.name, service.reason());
  log_.info("scale model={} workers={}", service.name, wish.workers);
  const std::optional<int> asked_before = latest_request(service).overrides.workers;
  if (!service.scaling) {
    const std::optional<int> override_before = service.request.overrides.workers;
    service.scaling = CatalogScaling{.override_before = override_before,
                                     .change_override_before = service.change ? asked_before : override_before,
                                     .begun_ns = now_ns};
    for (const auto& version : service.versions) {
      if (version->stage == CatalogVersion::Stage::kLeaving || version->facts.has_failed) continue;
      const CatalogChange::Kept* kept = service.change ? service.change->find_kept(*version) : nullptr;
      service.scaling->before.push_back(
          {version->id, version->workers, kept ? kept->before : version->workers, kept ? kept->wanted : version->workers});
    }
  } else if (asked_before != wish.workers) {
    cancel(service, service.scaling->callers, "another `scale` was asked for meanwhile");
  }
  service.scaling->callers.push_back(wish.caller);
  service.request.overrides.workers = wish.workers;  // a later reload keeps this number
  if (service.change) {
    service.change->request.overrides.workers = wish.workers;
    for (CatalogChange::Kept& kept : service.change->kept) kept.before = kept.wanted = wish.workers;
  }
  if (service.next) service.next->request.overrides.workers = wish.workers;
  for (const auto& version : service.versions) {
    if (version->stage == CatalogVersion::Stage::kLeaving || version->facts.has_failed) continue;
    version->workers = wish.workers;
    actions_.push_back(SetWorkers{version->id, wish.workers});  // also if that is the number: what could not start is tried again
  }
  return {};
}

void Catalog::undo_scaling(Service& service) {
  const CatalogScaling undone = *std::exchange(service.scaling, std::nullopt);
  service.request.overrides.workers = undone.override_before;
  if (service.change) service.change->request.overrides.workers = undone.change_override_before;
  if (service.next) service.next->request.overrides.workers = undone.change_override_before;
  for (const CatalogScaling::Before& before : undone.before) {
    const auto version = std::ranges::find(service.versions, before.version, [](const auto& each) { return each->id; });
    if (version == service.versions.end() || (*version)->stage == CatalogVersion::Stage::kLeaving) continue;
    set_workers(**version, before.workers);
    CatalogChange::Kept* kept = service.change ? service.change->find_kept(**version) : nullptr;
    if (kept) *kept = {version->get(), before.kept_before, before.kept_wanted};
  }
}

void Catalog::begin_drain(Service& service, const Caller& caller, std::uint64_t now_ns) {
  log_.info("drain model={}", service.name);
  service.is_drained = true;
  if (service.change) service.change->ends_drain = false;
  if (service.next) service.next->ends_drain = false;
  if (!service.drain) service.drain = CatalogDrain{.begun_ns = now_ns};
  service.drain->callers.push_back(caller);
  set_route(service);
}

void Catalog::begin_unload(Service& service, Callers callers, std::uint64_t now_ns) {
  log_.info("unload model={}", service.name);
  for (Callers* others : all_callers(service)) cancel(service, *others, "it is being unloaded");
  service.unload_callers = std::move(callers);
  end_service(service, now_ns);
  move_unloading();
}

void Catalog::move_unloading() {
  for (auto& service : services_) {
    if (service->is_unloading) unloading_.push_back(std::move(service));
  }
  std::erase(services_, nullptr);
}

// ---- callers ----

std::vector<Catalog::Callers*> Catalog::all_callers(Service& service) {
  std::vector<Callers*> all{&service.unload_callers};
  if (service.change) all.push_back(&service.change->callers);
  if (service.next) all.push_back(&service.next->callers);
  if (service.scaling) all.push_back(&service.scaling->callers);
  if (service.drain) all.push_back(&service.drain->callers);
  return all;
}

bool Catalog::caller_gone(ClientId client) {
  std::size_t gone = 0;
  for (auto* all : {&services_, &unloading_}) {
    for (const auto& service : *all) {
      for (Callers* callers : all_callers(*service))
        gone += std::erase_if(*callers, [&](const Caller& caller) { return caller.client == client; });
    }
  }
  return gone > 0;
}

void Catalog::answer(const Service& service, Callers& callers, const Status& status, std::string_view outcome,
                     std::uint64_t begun_ns, std::uint64_t now_ns) {
  WishResult result{.model = service.name,
                    .outcome = std::string(outcome),
                    .versions = service.served_versions(),
                    .took_ns = now_ns - std::min(now_ns, begun_ns)};
  if (service.current) {
    result.version = service.current->number();
    result.workers = service.current->workers;
  }
  for (const Caller& caller : std::exchange(callers, {})) actions_.push_back(AnswerCaller{caller, status, result});
}

void Catalog::cancel(const Service& service, Callers& callers, std::string_view because) {
  answer(service, callers, cancelled("model '{}': {}", service.name, because), "", 0, 0);
}

void Catalog::close(const Status& why) {
  closed_ = why;
  for (auto* all : {&services_, &unloading_}) {
    for (const auto& service : *all) {
      for (Callers* callers : all_callers(*service)) answer(*service, *callers, why, "", 0, 0);
    }
  }
}

}  // namespace shoal::supervisor

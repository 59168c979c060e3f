// What is served: wishes of clients and of the configuration go into the catalog, and its actions are carried out here.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/json_text.hpp"
#include "supervisor/model_version.hpp"

namespace shoal::supervisor {
namespace {

constexpr int kLoadNice = 10;  // nice value of a load while other models serve

// Names the files of a model in errors.
std::string what_files(const ModelRequest& request) { return format("model '{}': files at {}", request.name, request.path); }

}  // namespace

// ---- wishes ----

// {"what": "load" | "unload" | "reload" | "scale" | "drain", "model", ...}. The answer is sent when the wish has come true.
void Daemon::handle_wish(Caller caller, const std::string& what, const nlohmann::json& asked) {
  const auto text_of = [&](const char* key) {
    return asked.contains(key) && asked[key].is_string() ? asked[key].get<std::string>() : std::string();
  };
  const auto refuse = [&](const Status& why) { send_control_reply(caller.client, caller.seq, why, ""); };
  Wish wish{.model = text_of("model"), .caller = caller};
  for (const WishKind kind : {WishKind::kLoad, WishKind::kReload, WishKind::kScale, WishKind::kDrain, WishKind::kUnload}) {
    if (what == wish_name(kind)) wish.kind = kind;
  }
  const std::string text = text_of("text");
  if (!text.empty() || wish.kind == WishKind::kLoad) {
    auto request = parse_model_argument(wish.model + "=" + text);
    if (!request.ok()) return refuse(request.status());
    if (request->name != wish.model)
      return refuse(invalid_argument("'{}' is not a valid name of a model: it must not contain '=' or ','", wish.model));
    wish.request = *std::move(request);
  }
  if (wish.kind == WishKind::kLoad || wish.kind == WishKind::kReload) {
    const Service* service = catalog_.find(wish.model);
    const ModelRequest* request = wish.request ? &*wish.request : service ? &service->request : nullptr;
    if (const Status room = request ? check_room(*request, caller.client) : Status(); !room.ok()) return refuse(room);
  }
  if (wish.kind == WishKind::kScale && asked.contains("workers") && asked["workers"].is_number_unsigned())
    wish.workers = static_cast<int>(std::min<std::uint64_t>(asked["workers"].get<std::uint64_t>(), 1 << 30));
  wish.force = asked.contains("force") && asked["force"].is_boolean() && asked["force"].get<bool>();
  const Status taken = catalog_.ask(std::move(wish), monotonic_now_ns());
  if (!taken.ok()) return refuse(taken);
  perform_catalog();
  is_catalog_due_ = true;
}

// Whether a client's load or reload may look for the files of a model.
Status Daemon::check_room(const ModelRequest& request, ClientId client) const {
  if (request.path.starts_with(kBuiltinPrefix)) return {};
  return files_.check_room(what_files(request), process_of(client));
}

std::int64_t Daemon::process_of(ClientId id) const {
  const Client* client = clients_->find(id);
  return client ? process_key(client->pid, client->uid) : 0;
}

// Handles SIGHUP. Models of the command line stay. Models of the configuration change to its new content. All files are looked
// for again.
void Daemon::reload_configuration() {
  if (phase_ != Phase::kServing) return;
  log_.info("reload_configuration");
  awaits_ready_ = true;
  manager_.notify(format("RELOADING=1\nMONOTONIC_USEC={}", monotonic_now_ns() / 1000));
  is_catalog_due_ = true;
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
  if (!reading_configuration_ || !reading_configuration_->is_over()) return;
  auto config = check_configuration(*reading_configuration_);
  reading_configuration_.reset();
  if (config.ok()) return take_configuration(*std::move(config));
  log_.error("configuration_refused reason=\"{}\"", config.status().message());
}

void Daemon::take_configuration(DaemonConfig config) {
  log_.info("configuration_taken models={}", config.models.size());
  apply_limits(config.limits);
  catalog_.configure(std::move(config.models), monotonic_now_ns());
  perform_catalog();
}

// ---- a turn ----

// Goes as far as processes, searches and requests allow. Only here versions are freed, because no function of one is on the
// stack.
void Daemon::advance_catalog(std::uint64_t now_ns) {
  advance_configuration();
  do {
    is_catalog_due_ = false;
    take_found_files();
    catalog_.advance([this](const CatalogVersion& version) { return versions_.at(version.id)->facts(); }, now_ns);
    is_catalog_due_ |= !catalog_.actions().empty();
    perform_catalog();
  } while (is_catalog_due_);
  is_catalog_busy_ = catalog_.is_busy();
  catalog_tick_ns_ = catalog_.next_tick_ns();
  note_who_awaits_idle();
  report_state();
}

void Daemon::take_found_files() {
  std::vector<Search> over;
  std::ranges::copy_if(std::move_iterator(searches_.begin()), std::move_iterator(searches_.end()), std::back_inserter(over),
                       [](const Search& search) { return search.files->is_over(); });
  std::erase_if(searches_, [](const Search& search) { return !search.files; });
  if (!over.empty()) describes_due_ = waiting_describes_.size();
  for (Search& search : over) {
    auto text = search.files->take();
    catalog_.found(search.id, text.ok() ? parse_entries(*text, search.request) : text.status());
  }
}

// The catalog waits until nothing is left of the requests of versions that leave or are drained.
void Daemon::note_who_awaits_idle() {
  for (const auto* all : {&catalog_.services(), &catalog_.unloading()}) {
    for (const auto& service : *all) {
      for (const auto& version : service->versions) {
        versions_.at(version->id)->awaits_idle = service->drain.has_value() || version->stage == CatalogVersion::Stage::kLeaving;
      }
    }
  }
}

// ---- the catalog's actions ----

void Daemon::perform_catalog() {
  while (!catalog_.actions().empty()) {
    describes_due_ = waiting_describes_.size();
    for (CatalogAction& action : std::exchange(catalog_.actions(), {})) std::visit([this](auto& one) { perform(one); }, action);
  }
}

void Daemon::perform(FindFiles& action) {
  if (action.request.path.starts_with(kBuiltinPrefix)) {  // it has no files
    catalog_.found(action.search, find_entries(action.request));
    is_catalog_due_ = true;
    return;
  }
  const Asker asker = action.client == 0 ? Asker::kDaemon : Asker::kClient;
  auto files = files_.ask(asker, what_files(action.request), question_text(action.request), process_of(action.client));
  searches_.push_back({action.search, std::move(action.request), std::move(files)});
}

void Daemon::perform(const StopFinding& action) {
  std::erase_if(searches_, [&](const Search& search) { return search.id == action.search; });
}

// Adds the version to the ledger and starts its zygote. A version that cannot be loaded is added, too, and has failed.
void Daemon::perform(AddVersion& action) {
  VersionEntry& entry = action.entry;
  const ModelConfig& config = entry.model.config;
  const bool others_serve = std::ranges::any_of(routes_, [](const auto& route) { return route.second.current != 0; });
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
      ledger_.add_model(action.model, {.queue_limit = static_cast<std::size_t>(config.queue_limit),
                                       .timeout_ns = config.timeout_ms * 1'000'000,
                                       .max_batch = static_cast<std::uint32_t>(config.max_batch),
                                       .max_delay_ns = static_cast<std::uint64_t>(config.max_delay_ms * 1e6),
                                       .quarantine_ns = static_cast<std::uint64_t>(config.quarantine_ms) * 1'000'000});
  if (index >= models_.size()) models_.resize(index + 1);
  models_[index] = std::make_unique<ModelVersion>(*this, action.version, index, std::move(entry), std::move(processes));
  versions_[action.version] = models_[index].get();
  models_[index]->start(monotonic_now_ns() + action.patience_ns);
}

void Daemon::perform(const SetWorkers& action) { versions_.at(action.version)->processes().set_workers(action.workers); }

void Daemon::perform(const SendProbe& action) { versions_.at(action.version)->send_probe(); }

void Daemon::perform(const FailVersion& action) { versions_.at(action.version)->processes().fail(action.reason); }

void Daemon::perform(const RetireVersion& action) {
  ModelVersion& model = *versions_.at(action.version);
  model.retire();
  ledger_.drain_model(model.index(), action.reason);
}

void Daemon::perform(const EndRequests& action) {
  ledger_.fail_model(versions_.at(action.version)->index(), action.reason);
  perform();
}

void Daemon::perform(const EndProcesses& action) {
  ModelVersion& model = *versions_.at(action.version);
  action.kill ? model.processes().kill_all() : model.end();
}

void Daemon::perform(const FreeVersion& action) {
  const ModelIndex index = versions_.extract(action.version).mapped()->index();
  ledger_.remove_model(index);
  models_[index].reset();
  versions_changed_ = true;
}

void Daemon::perform(SetRoute& action) {
  routes_[action.wire_id] = std::move(action.route);
  versions_changed_ = true;
}

void Daemon::perform(const RemoveRoute& action) { routes_.erase(action.wire_id); }

void Daemon::perform(const ForgetModel& action) {
  if (!catalog_.find(action.model)) flights_.forget(action.model);
}

void Daemon::perform(const AnswerCaller& action) {
  const WishResult& result = action.result;
  const nlohmann::json answer{{"model", result.model},
                              {"outcome", result.outcome},
                              {"version", result.version ? nlohmann::json(*result.version) : nlohmann::json()},
                              {"versions", result.versions},
                              {"workers", result.workers},
                              {"ms", result.took_ns / 1'000'000}};
  send_control_reply(action.caller.client, action.caller.seq, action.status, json_text(answer));
}

Daemon::ModelVersion* Daemon::current_of(const std::string& model) const {
  const Service* service = catalog_.find(model);
  return service && service->current ? versions_.at(service->current->id) : nullptr;
}

std::uint64_t Daemon::promised_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& model : models_) bytes += model ? model->promised_bytes() : 0;
  return bytes;
}

// ---- surplus workers ----

void Daemon::worker_leaving(ModelVersion& model, const WorkerProcess& worker) {
  ledger_.dismiss(worker.incarnation);
  leaving_workers_.push_back({worker.incarnation, &model, monotonic_now_ns() + kSurplusLimitNs, false});
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
  for (const auto& service : catalog_.services()) {
    const CatalogVersion* const current = service->current;
    const bool serves = current && lets_in(*service, *current);
    serving += serves;
    if (service->change || service->next) {
      is_settled = false;
    } else if (!serves) {
      trouble += format("; {}: {}", service->name,
                        service->is_drained ? "drained"
                        : current && !current->facts.has_failed
                            ? format("resting: {}", ledger_.model(versions_.at(current->id)->index()).breaker.reason())
                            : service->reason());
    }
  }
  const std::string status = format("{} models are served{}", serving, trouble);
  if (status != reported_ && manager_.notify_status(status)) reported_ = status;
  if (awaits_ready_ && is_settled && manager_.notify("READY=1")) awaits_ready_ = false;
  report_again_ns_.reset();
  if (status != reported_ || (awaits_ready_ && is_settled)) report_again_ns_ = now_ns_ + kReportAgainNs;
}

}  // namespace shoal::supervisor

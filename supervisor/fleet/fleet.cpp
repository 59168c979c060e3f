#include "supervisor/fleet/fleet.hpp"

#include <poll.h>

#include <algorithm>
#include <iterator>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/url.hpp"
#include "shm/model/fetched_model.hpp"
#include "shm/wire/model_json.hpp"

namespace shoal::supervisor {
namespace {

// Each waits for its server most of the time. One that hangs keeps nobody from other servers.
constexpr std::size_t kMostFetches = 32, kMostFetchesOfProcess = 8;
constexpr int kLoadNice = 10;  // nice value of a load while other models serve

// Names the files of a model in errors.
std::string what_files(const ModelRequest& request) { return format("model '{}': files at {}", request.name, request.path); }

}  // namespace

Fleet::Fleet(FleetOptions options, const Clock& clock, const SocketDirectory& directory, EventLoop& loop, Timers& timers,
             DataPlane& plane, FleetObserver& observer, Logger& log)
    : options_(std::move(options)),
      clock_(clock),
      directory_(directory),
      loop_(loop),
      timers_(timers),
      plane_(plane),
      observer_(observer),
      log_(log),
      files_(
          {.program = options_.worker_file}, kLargestAnswerBytes, clock, loop, timers, log, [this] { wake(); },
          options_.spawn_finder),
      fetches_(
          {.program = options_.fetch_file,
           .task = "fetches them",
           .limit_ns = options_.fetch_limit_ns,
           .late = "not fetched within {} s (SHOAL_FETCH_TIMEOUT_S), and the process that fetches them did not end by itself",
           .most_running = kMostFetches,
           .most_running_of_process = kMostFetchesOfProcess},
          kLargestAnswerBytes, clock, loop, timers, log, [this] { wake(); }, options_.spawn_finder),
      catalog_(log),
      stuck_zygotes_(loop, log),
      advance_(timers, Timer::Kind::kClock, [this](std::uint64_t) { advance(); }) {}

Fleet::~Fleet() = default;

// ---- wishes ----

Status Fleet::ask(Wish wish) {
  if (wish.kind == WishKind::kLoad || wish.kind == WishKind::kReload) {
    const Service* service = catalog_.find(wish.model);
    const ModelRequest* request = wish.request ? &*wish.request : service ? &service->request : nullptr;
    if (request && !request->path.starts_with(kBuiltinPrefix))
      SHOAL_RETURN_IF_ERROR(finder_of(*request).check_room(what_files(*request), plane_.process_of(wish.caller.client)));
  }
  SHOAL_RETURN_IF_ERROR(catalog_.ask(std::move(wish), clock_.now_ns()));
  perform();
  wake();
  return {};
}

// ---- the configuration ----

Result<DaemonConfig> Fleet::read_configuration(const std::function<bool()>& is_cancelled) {
  if (options_.configuration_file.empty()) return DaemonConfig();
  const std::unique_ptr<FileSearch> search = find_configuration(Asker::kStart);
  while (!search->is_over()) {
    const std::uint64_t now_ns = monotonic_now_ns(), limit_ns = timers_.next_ns().value_or(now_ns);
    pollfd ready{loop_.fd(), POLLIN, 0};
    (void)::poll(&ready, 1, limit_ns > now_ns ? static_cast<int>((limit_ns - now_ns) / 1'000'000 + 1) : 0);
    loop_.run_ready();
    timers_.run_due(monotonic_now_ns());
    if (is_cancelled()) return cancelled("{}: a signal came while it was read", options_.configuration_file.string());
  }
  return check_configuration(*search);
}

void Fleet::start(const DaemonConfig& configured) {
  catalog_.limit_services(static_cast<std::size_t>(configured.limits.models));
  for (const ModelRequest& request : configured.models) catalog_.serve(request, Origin::kConfiguration, clock_.now_ns());
  for (const ModelRequest& request : options_.models) catalog_.serve(request, Origin::kCommandLine, clock_.now_ns());
  is_running_ = true;
  wake();
}

void Fleet::reload_configuration() {
  log_.info("reload_configuration");
  wake();
  if (options_.configuration_file.empty()) return take_configuration({});
  // Ends the search of an earlier SIGHUP, which may have read an older file.
  reading_configuration_ = find_configuration(Asker::kConfiguration);
}

std::unique_ptr<FileSearch> Fleet::find_configuration(Asker asker) {
  return files_.ask(asker, format("configuration {}", options_.configuration_file.string()),
                    question_text(options_.configuration_file));
}

Result<DaemonConfig> Fleet::check_configuration(FileSearch& search) const {
  SHOAL_ASSIGN_OR_RETURN(const std::string text, search.take());
  SHOAL_ASSIGN_OR_RETURN(DaemonConfig config, parse_configuration(text));
  for (const ModelRequest& given : options_.models) {
    if (std::ranges::count(config.models, given.name, &ModelRequest::name) > 0)
      return invalid_argument("{}: model '{}' is also given by --model", options_.configuration_file.string(), given.name);
  }
  return config;
}

void Fleet::advance_configuration() {
  if (!reading_configuration_ || !reading_configuration_->is_over()) return;
  auto config = check_configuration(*reading_configuration_);
  reading_configuration_.reset();
  if (config.ok()) return take_configuration(*std::move(config));
  log_.error("configuration_refused reason=\"{}\"", config.status().message());
}

void Fleet::take_configuration(DaemonConfig config) {
  log_.info("configuration_taken models={}", config.models.size());
  observer_.limits_changed(config.limits);
  observer_.access_changed(config.access);
  catalog_.limit_services(static_cast<std::size_t>(config.limits.models));
  catalog_.configure(std::move(config.models), clock_.now_ns());
  perform();
}

// ---- a turn ----

void Fleet::postpone(std::uint64_t by_ns) {
  catalog_.postpone(by_ns);
  wake();
}

// The time of this call, not of the turn: wishes of the same turn came later than its beginning.
void Fleet::advance() {
  advance_configuration();
  do {
    advance_.clear();
    take_found_files();
    catalog_.advance([this](const CatalogVersion& version) { return versions_.at(version.id)->facts(); }, clock_.now_ns());
    if (!catalog_.actions().empty()) wake();
    perform();
  } while (advance_.is_set());
  is_busy_ = catalog_.is_busy();
  if (const auto next_ns = catalog_.next_tick_ns()) advance_.set(*next_ns);
  note_who_awaits_idle();
  observer_.fleet_advanced();
}

void Fleet::take_found_files() {
  std::vector<Search> over;
  std::ranges::copy_if(std::move_iterator(searches_.begin()), std::move_iterator(searches_.end()), std::back_inserter(over),
                       [](const Search& search) { return search.files->is_over(); });
  std::erase_if(searches_, [](const Search& search) { return !search.files; });
  if (!over.empty()) observer_.services_changed();
  for (Search& search : over) {
    auto text = search.files->take();
    if (text.ok() && search.is_fetch) {
      look_into(std::move(search), *text);
    } else {
      catalog_.found(search.id, text.ok() ? parse_entries(*text, search.request) : text.status());
    }
  }
}

FileFinder& Fleet::finder_of(const ModelRequest& request) { return must_be_fetched(request.path) ? fetches_ : files_; }

void Fleet::look_into(Search search, std::string_view fetched) {
  const auto model = parse_fetched(fetched);
  if (!model.ok()) return catalog_.found(search.id, model.status().with_context(what_files(search.request)));
  const std::string place = options_.fetch_directory.string() + "/";
  const auto given = without_file_scheme(search.request.path);  // such files stay where they are
  const bool is_in_place = model->path.starts_with(place) && std::filesystem::path(model->path).lexically_normal() == model->path;
  if (!is_in_place && !(given.ok() && *given == model->path)) {
    return catalog_.found(search.id, internal_error("{}: the process that fetches them names '{}', which is not in {}",
                                                    what_files(search.request), model->path, place));
  }
  for (const std::string& warning : model->warnings)
    log_.warn("fetch_warning model={} what=\"{}\"", search.request.name, warning);
  log_.info("fetched model={} from=\"{}\" to=\"{}\" bytes={}", search.request.name, search.request.path, model->path,
            model->bytes);
  ModelRequest here = search.request;
  here.path = model->path;
  look_for(std::move(search), here);
}

void Fleet::look_for(Search search, const ModelRequest& where) {
  search.is_fetch = must_be_fetched(where.path);
  search.files = finder_of(where).ask(search.asker, what_files(search.request), question_text(where), search.client_process);
  searches_.push_back(std::move(search));
}

// The catalog waits until nothing is left of the requests of versions that leave or are drained.
void Fleet::note_who_awaits_idle() {
  for (const auto* all : {&catalog_.services(), &catalog_.unloading()}) {
    for (const auto& service : *all) {
      for (const auto& version : service->versions) {
        plane_.version(version->id).awaits_idle = service->drain.has_value() || version->stage == CatalogVersion::Stage::kLeaving;
      }
    }
  }
}

// ---- the catalog's actions ----

void Fleet::perform() {
  while (!catalog_.actions().empty()) {
    observer_.services_changed();
    for (CatalogAction& action : std::exchange(catalog_.actions(), {})) std::visit([this](auto& one) { perform(one); }, action);
  }
}

void Fleet::perform(FindFiles& action) {
  if (action.request.path.starts_with(kBuiltinPrefix)) {  // it has no files
    catalog_.found(action.search, find_entries(action.request));
    wake();
    return;
  }
  look_for({.id = action.search,
            .request = action.request,
            .asker = action.client == 0 ? Asker::kDaemon : Asker::kClient,
            .client_process = plane_.process_of(action.client)},
           action.request);
}

void Fleet::perform(const StopFinding& action) {
  std::erase_if(searches_, [&](const Search& search) { return search.id == action.search; });
}

// A version that cannot be loaded is added, too, and has failed.
void Fleet::perform(AddVersion& action) {
  VersionEntry& entry = action.entry;
  const ModelConfig& config = entry.model.config;
  auto load = wire::load_text(entry.model);
  if (entry.failure.ok()) entry.failure = load.status();
  ProcessOptions processes{.name = entry.model.name,
                           .worker_file = options_.worker_file,
                           .directory = directory_.path(),
                           .load_text = load.ok() ? *std::move(load) : std::string(),
                           .workers = config.workers,
                           .lanes = config.contexts,
                           .load_nice = plane_.serves_anything() ? kLoadNice : 0,
                           .load_limit_ns = static_cast<std::uint64_t>(config.load_timeout_s) * 1'000'000'000};
  auto version = std::make_unique<ModelVersion>(*this, action.version, std::move(entry), std::move(processes));
  versions_.emplace(action.version, std::move(version)).first->second->start(clock_.now_ns() + action.patience_ns);
}

void Fleet::perform(const SetWorkers& action) { version(action.version).processes().set_workers(action.workers); }

void Fleet::perform(const SendProbe& action) { version(action.version).send_probe(); }

void Fleet::perform(const FailVersion& action) { version(action.version).processes().fail(action.reason); }

void Fleet::perform(const RetireVersion& action) {
  version(action.version).retire();
  plane_.retire(action.version, action.reason);
}

void Fleet::perform(const EndRequests& action) { plane_.end_requests(action.version, action.reason); }

void Fleet::perform(const EndProcesses& action) {
  action.kill ? version(action.version).processes().kill_all() : version(action.version).end();
}

void Fleet::perform(const FreeVersion& action) {
  plane_.remove_version(action.version);
  versions_.erase(action.version);
}

void Fleet::perform(SetRoute& action) { plane_.set_route(action.wire_id, std::move(action.route)); }

void Fleet::perform(const RemoveRoute& action) { plane_.remove_route(action.wire_id); }

void Fleet::perform(const ForgetModel& action) {
  if (!catalog_.find(action.model)) plane_.flights().forget(action.model);
}

void Fleet::perform(const AnswerCaller& action) { observer_.wish_answered(action); }

const ModelVersion* Fleet::current_of(const std::string& model) const {
  const Service* service = catalog_.find(model);
  return service && service->current ? &version(service->current->id) : nullptr;
}

std::uint64_t Fleet::promised_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [id, version] : versions_) bytes += version->promised_bytes();
  return bytes;
}

// ---- what is served ----

bool Fleet::lets_in(const Service& service, const CatalogVersion& version) const {
  const RoutedVersion& routed = plane_.version(version.id);
  return version.serves() && !routed.has_failed() && !service.is_drained && plane_.ledger().model(routed.index).breaker.closed();
}

bool Fleet::is_settled() const {
  return !reading_configuration_ &&
         std::ranges::none_of(catalog_.services(), [](const auto& service) { return service->change || service->next; });
}

std::string Fleet::summary() const {
  std::size_t serving = 0;
  std::string trouble;
  for (const auto& service : catalog_.services()) {
    const CatalogVersion* const current = service->current;
    const bool serves = current && lets_in(*service, *current);
    serving += serves;
    if (serves || service->change || service->next) continue;
    const std::string why = service->is_drained ? "drained"
                            : current && !current->facts.has_failed
                                ? format("resting: {}", plane_.ledger().model(plane_.version(current->id).index).breaker.reason())
                                : service->reason();
    trouble += format("; {}: {}", service->name, why);
  }
  return format("{} models are served{}", serving, trouble);
}

std::string Fleet::finding(const Service& service) const {
  const SearchId id = service.change ? service.change->search : 0;
  const auto search = std::ranges::find(searches_, id, &Search::id);
  const bool is_fetch = search != searches_.end() && search->is_fetch;
  if (!is_fetch) return "a process looks for its files";
  return search->files->progress().empty() ? "a process fetches its files" : search->files->progress();
}

// ---- the end ----

void Fleet::close(const Status& why) {
  is_closed_ = true;
  catalog_.close(why);
  perform();
  reading_configuration_.reset();
  searches_.clear();
}

void Fleet::end() {
  is_running_ = false;
  advance_.clear();
  for (const auto& [id, version] : versions_) version->end();
}

void Fleet::kill_all() {
  for (const auto& [id, version] : versions_) version->processes().kill_all();
}

bool Fleet::all_gone() const {
  return std::ranges::all_of(versions_, [](const auto& version) { return version.second->processes().all_gone(); });
}

bool Fleet::watches(pid_t pid) const {
  return files_.watches(pid) || fetches_.watches(pid) || stuck_zygotes_.watches(pid) ||
         std::ranges::any_of(versions_, [&](const auto& version) { return version.second->processes().watches(pid); });
}

}  // namespace shoal::supervisor

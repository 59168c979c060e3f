// A catalog, and the processes, searches and callers around it: each does one thing at a time, when the test says so.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "shm/base/format.hpp"
#include "supervisor/catalog/catalog.hpp"

namespace shoal::supervisor {

class CatalogWorld {
 public:
  static constexpr std::uint64_t kMs = 1'000'000;

  /// What the world knows of a version.
  struct Process {
    VersionEntry entry;
    VersionFacts facts;
    int wanted = 1;
    bool is_asked_to_probe = false;
    bool is_told_to_end = false;
    int requests = 0;
  };

  static ModelRequest request(const std::string& path, std::optional<int> workers = {}) {
    ModelRequest request{.name = "m", .path = path};
    request.overrides.workers = workers;
    return request;
  }
  /// A path is a list of versions and their stamps: "1a 2a".
  static std::vector<VersionEntry> entries_of(const ModelRequest& request) {
    std::vector<VersionEntry> entries;
    for (std::size_t at = 0; at < request.path.size(); at += 3) {
      VersionEntry entry;
      entry.model.name = request.name;
      entry.model.path = request.path;
      entry.model.files.version = static_cast<std::uint64_t>(request.path[at] - '0');
      entry.stamp = request.path[at + 1];
      entry.model.path = entry.stamp;
      entry.model.config.workers = request.overrides.workers.value_or(1);
      entries.push_back(std::move(entry));
    }
    return entries;
  }

  Status ask(Wish wish) {
    wish.model = "m";
    wish.caller = {++last_caller_, 1};
    Status taken = catalog_.ask(std::move(wish), now_);
    if (taken.ok())
      waiting_.push_back(last_caller_);
    else
      words_.push_back(format("refused {}", status_code_name(taken.code())));
    perform();
    return taken;
  }
  Status load(const std::string& path) { return ask({.kind = WishKind::kLoad, .request = request(path)}); }
  Status reload() { return ask({.kind = WishKind::kReload}); }
  Status reload(const std::string& path) { return ask({.kind = WishKind::kReload, .request = request(path)}); }
  Status force() { return ask({.kind = WishKind::kReload, .force = true}); }
  Status scale(int workers) { return ask({.kind = WishKind::kScale, .workers = workers}); }
  Status drain() { return ask({.kind = WishKind::kDrain}); }
  Status unload() { return ask({.kind = WishKind::kUnload}); }
  void configure(const std::optional<std::string>& path) {
    std::vector<ModelRequest> models;
    if (path) models.push_back(request(*path));
    catalog_.configure(std::move(models), now_);
    perform();
  }

  /// Advances until nothing follows.
  void advance() {
    for (bool is_first = true; is_first || !catalog_.actions().empty(); is_first = false) {
      perform();
      catalog_.advance([this](const CatalogVersion& version) { return facts_of(version.id); }, now_);
    }
  }
  void perform() {
    for (CatalogAction& action : std::exchange(catalog_.actions(), {})) std::visit([this](auto& one) { perform(one); }, action);
  }

  /// ---- what the world may do next ----
  bool find() {
    if (searches_.empty()) return false;
    const auto [search, asked] = *searches_.begin();
    searches_.erase(searches_.begin());
    catalog_.found(search, entries_of(asked));
    advance();
    return true;
  }
  bool fail_finding() {
    if (searches_.empty()) return false;
    const SearchId search = searches_.begin()->first;
    searches_.erase(searches_.begin());
    catalog_.found(search, Status(StatusCode::kNotFound, "no such path"));
    advance();
    return true;
  }
  /// The first version whose workers are not as many as wanted gets them.
  bool staff() {
    for (auto& [id, process] : processes_) {
      const int wanted = process.is_told_to_end ? 0 : process.wanted;
      const bool is_there =
          process.is_told_to_end ? process.facts.is_gone : process.facts.ready == wanted && process.facts.alive == wanted;
      if (process.facts.has_failed || is_there) continue;
      process.facts.is_stalled = false;
      process.facts.ready = process.facts.alive = wanted;
      process.facts.can_answer = wanted > 0;
      process.facts.is_gone = wanted == 0;
      advance();
      return true;
    }
    return false;
  }
  bool answer_probe(const Status& status = {}) {
    for (auto& [id, process] : processes_) {
      if (!std::exchange(process.is_asked_to_probe, false)) continue;
      catalog_.probed(id, status);
      advance();
      return true;
    }
    return false;
  }
  bool step() { return find() || staff() || answer_probe(); }
  void settle() {
    advance();
    while (step()) {
    }
  }
  void fail(VersionId id) {
    processes_.at(id).facts = {.has_failed = true, .is_gone = true, .reason = "its files are torn"};
    advance();
  }
  /// One thing fails that is under way: a search, a probe, or the processes of the youngest version that may still fail.
  bool fail_something() {
    if (fail_finding() || answer_probe(Status(StatusCode::kInternal, "not the stored output"))) return true;
    for (auto process = processes_.rbegin(); process != processes_.rend(); ++process) {
      if (process->second.facts.has_failed || process->second.is_told_to_end) continue;
      fail(process->first);
      return true;
    }
    return false;
  }
  /// The workers of the youngest version that wants more cannot start.
  bool stall() {
    for (auto& [id, process] : processes_) {
      if (process.facts.has_failed || process.is_told_to_end || process.facts.ready >= process.wanted) continue;
      process.facts.is_stalled = true;
      process.facts.reason = "no memory";
      advance();
      return true;
    }
    return false;
  }
  void wait(std::uint64_t ns) {
    now_ += ns;
    advance();
  }

  std::vector<std::string> words() { return std::exchange(words_, {}); }
  /// "" when the model is not served; else versions, workers, "drained".
  std::string served() const {
    if (!route_) return "";
    std::string text;
    for (const ModelRoute::Target& target : route_->targets) {
      const Process& process = processes_.at(target.version);
      text += format("{}{}{}x{}", text.empty() ? "" : " ", target.number, process.entry.stamp, process.facts.ready);
      if (target.version == route_->current) text += "*";
    }
    if (text.empty()) text = "none";
    return text + (route_->is_drained ? " drained" : "");
  }

  VersionFacts facts_of(VersionId id) const {
    const auto found = processes_.find(id);
    if (found == processes_.end()) return {.is_gone = true};
    VersionFacts facts = found->second.facts;
    facts.is_idle = found->second.requests == 0;
    facts.requests = static_cast<std::size_t>(found->second.requests);
    return facts;
  }
  /// Everything that decides what may happen from here on.
  std::string state() const {
    std::string text = served() + "|";
    for (const auto& [search, asked] : searches_) text += format("find {} ", asked.path);
    const VersionId first = processes_.empty() ? 0 : processes_.begin()->first;
    for (const auto& [id, process] : processes_) {
      text += format("{}:{}{} {}/{} {}{}{} ", id - first, process.entry.model.files.version, process.entry.stamp,
                     process.facts.ready, process.wanted, process.is_asked_to_probe, process.is_told_to_end,
                     process.facts.has_failed + 2 * process.facts.is_stalled);
    }
    for (const auto* all : {&catalog_.services(), &catalog_.unloading()}) {
      for (const auto& service : *all) {
        text += format("| {} {} {} {} ", static_cast<int>(service->origin), service->request.path,
                       service->request.overrides.workers.value_or(0), service->is_drained);
        for (const auto& version : service->versions)
          text += format("{}.{}.{}.{}.{} ", version->id - first, static_cast<int>(version->stage), version->workers,
                         version->is_probed, version->is_ended);
        if (const auto& change = service->change) {
          text +=
              format("change {} {} {} {} {} {} {} {} {} ", change->goes_on_without, change->is_load, change->ends_drain,
                     change->is_forced, change->has_changed, change->request.path, change->request.overrides.workers.value_or(0),
                     change->search != 0, change->settling_until_ns.has_value());
          text += format("{} {} {} {} ", change->found.has_value(), change->coming.size(), change->leaving.size(),
                         change->callers.size());
          for (const CatalogChange::Kept& kept : change->kept)
            text += format("k{}.{}.{} ", kept.version->id - first, kept.before, kept.wanted);
        }
        if (const auto& next = service->next)
          text += format("next {} {} {} {} {} ", next->ends_drain, next->is_forced, next->names_keys,
                         next->request.overrides.workers.value_or(0), next->callers.size());
        if (const auto& scaling = service->scaling) {
          text += format("scaling {} {} {} ", scaling->override_before.value_or(0), scaling->change_override_before.value_or(0),
                         scaling->callers.size());
          for (const CatalogScaling::Before& before : scaling->before)
            text += format("{}.{} ", before.version - first, before.workers);
        }
        if (service->drain) text += format("drain {} ", service->drain->callers.size());
        text += format("u{}", service->unload_callers.size());
      }
    }
    return text;
  }

  static Logger& log() {
    static Logger log("test");
    return log;
  }
  Catalog catalog_{log()};
  std::map<SearchId, ModelRequest> searches_;
  std::map<VersionId, Process> processes_;
  std::optional<ModelRoute> route_;
  std::uint32_t routed_ = 0;
  std::vector<ClientId> waiting_;  // callers without an answer
  std::vector<std::string> words_;
  std::string broken_;  // the first promise that was broken
  std::uint64_t now_ = 1'000 * kMs;
  ClientId last_caller_ = 0;
  std::string last_message_;  // of the last answer

 private:
  void perform(FindFiles& action) {
    searches_.emplace(action.search, action.request);
    words_.push_back("find " + action.request.path);
  }
  void perform(StopFinding& action) {
    if (searches_.erase(action.search) == 1) words_.push_back("stop finding");
  }
  void perform(AddVersion& action) {
    const int workers = action.entry.model.config.workers;
    const bool has_failed = !action.entry.failure.ok();
    words_.push_back(format("add {}{}", action.entry.model.files.version, action.entry.stamp));
    Process& process = processes_[action.version];
    process = {.entry = std::move(action.entry), .wanted = workers};
    process.facts = {.has_failed = has_failed, .is_gone = has_failed, .reason = process.entry.failure.message()};
  }
  void perform(SetWorkers& action) {
    words_.push_back(format("workers {} {}", action.version, action.workers));
    Process& process = processes_.at(action.version);
    process.wanted = action.workers;
    if (process.facts.ready > action.workers)
      process.facts.ready = action.workers;  // surplus workers leave at once, and end later
  }
  void perform(SendProbe& action) {
    words_.push_back(format("probe {}", action.version));
    processes_.at(action.version).is_asked_to_probe = true;
  }
  void perform(FailVersion& action) {
    words_.push_back(format("fail {}", action.version));
    Process& process = processes_.at(action.version);
    process.is_asked_to_probe = false;
    process.facts = {.has_failed = true, .is_gone = true, .reason = action.reason};
  }
  void perform(RetireVersion& action) {
    words_.push_back(format("retire {}", action.version));
    processes_.at(action.version).is_asked_to_probe = false;
  }
  void perform(EndRequests& action) {
    words_.push_back(format("end requests {}", action.version));
    processes_.at(action.version).requests = 0;
  }
  void perform(EndProcesses& action) {
    words_.push_back(format("{} {}", action.kill ? "kill" : "end", action.version));
    processes_.at(action.version).is_told_to_end = true;
  }
  void perform(FreeVersion& action) {
    words_.push_back(format("free {}", action.version));
    const Process& process = processes_.at(action.version);
    if (!process.is_told_to_end || !process.facts.is_gone || process.requests > 0)
      broken_ = "a version is freed that is not over";
    processes_.erase(action.version);
  }
  void perform(SetRoute& action) {
    const bool served_before = route_ && route_->current != 0 && action.wire_id == routed_;
    if (served_before && action.route.current == 0) broken_ = "nothing serves between two versions";
    if (route_ && action.wire_id == routed_ && can_serve(*route_) && !can_serve(action.route))
      broken_ = "a version that serves gives way to one that has failed";
    for (const ModelRoute::Target& target : action.route.targets) {
      const Process& process = processes_.at(target.version);
      if (process.is_told_to_end) broken_ = "a route to a version that was told to end";
      const bool is_new = !route_ || std::ranges::count(route_->targets, target) == 0;
      if (is_new && !process.facts.has_failed && process.facts.ready < process.wanted)
        broken_ = "a route to a version without its workers";
    }
    routed_ = action.wire_id;
    route_ = std::move(action.route);
  }
  bool can_serve(const ModelRoute& route) const {
    return std::ranges::any_of(route.targets,
                               [this](const ModelRoute::Target& target) { return !facts_of(target.version).has_failed; });
  }
  void perform(RemoveRoute& action) {
    if (action.wire_id == routed_) route_.reset();
  }
  void perform(ForgetModel& action) { words_.push_back("forget " + action.model); }
  void perform(AnswerCaller& action) {
    if (std::erase(waiting_, action.caller.client) != 1) broken_ = "an answer to a caller that waits for none";
    last_message_ = action.status.message();
    words_.push_back(format("answer {} {}", action.caller.client,
                            action.status.ok() ? action.result.outcome : std::string(status_code_name(action.status.code()))));
  }
};

}  // namespace shoal::supervisor

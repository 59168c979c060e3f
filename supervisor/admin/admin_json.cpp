// The answers to `list` and `stats`.
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "shm/base/clock.hpp"
#include "shm/base/json_text.hpp"
#include "supervisor/admin/admin.hpp"

namespace shoal::supervisor {
namespace {

using nlohmann::json;

template <unsigned kBits>
json histogram_json(const BasicHistogram<kBits>& histogram) {
  const auto ms = [](std::uint64_t ns) { return static_cast<double>(ns) / 1e6; };
  const auto quantile = [&](double fraction) { return ms(histogram.quantile(fraction)); };
  json buckets = json::array();
  histogram.for_each_bucket([&](std::uint64_t ns, std::uint64_t count) { buckets.push_back({ms(ns), count}); });
  return {{"count", histogram.count()}, {"sum", ms(histogram.sum())}, {"p50", quantile(0.5)},       {"p90", quantile(0.9)},
          {"p99", quantile(0.99)},      {"p99_9", quantile(0.999)},   {"max", ms(histogram.max())}, {"buckets", buckets}};
}

template <class Times>  // a ModelView, or the row of a flow
json latency_json(const Times& times) {
  return {{"queue", histogram_json(times.queue_ns)},
          {"compute", histogram_json(times.compute_ns)},
          {"total", histogram_json(times.total_ns)}};
}

// Rows of clients that are gone are among the others.
json flows_json(const FlowStatistics& flows, Clients& clients) {
  json rows = json::array();
  for (const FlowStatistics::Row& row : flows.rows()) {
    const bool is_others = row.client == 0;
    if (is_others && row.requests + row.refused == 0) continue;
    const Client* client = is_others ? nullptr : clients.find(row.client);
    rows.push_back({{"client", is_others ? json() : json(row.client)},
                    {"pid", client ? json(client->pid) : json()},
                    {"flow", is_others ? json() : json(row.flow)},
                    {"requests", row.requests},
                    {"refused", row.refused},
                    {"latency_ms", latency_json(row)}});
  }
  return rows;
}

json counts_json(const ModelCounts& counts) {
  json failed = json::object();
  for (std::size_t code = 1; code < counts.answered.size(); ++code) {
    if (counts.answered[code] > 0) failed[std::string(status_code_name(static_cast<StatusCode>(code)))] = counts.answered[code];
  }
  return {{"admitted", counts.admitted},
          {"refused", counts.refused},
          {"ok", counts.answered[0]},
          {"failed", failed},
          {"poison", counts.answered[static_cast<std::size_t>(StatusCode::kPoison)]},
          {"rerun", counts.rerun},
          {"late", counts.late},
          {"orphaned", counts.orphaned},
          {"too_late", counts.too_late},
          {"batches", counts.groups},
          {"batched", counts.grouped},
          {"worker_deaths", counts.worker_deaths},
          {"kills_while_running_and_rerun", counts.deaths_rerun}};
}

json copied_json(const Copied& requests, const Copied& answers) {
  return {{"requests", requests.messages},
          {"request_bytes", requests.bytes},
          {"answers", answers.messages},
          {"answer_bytes", answers.bytes}};
}

// The processes of clients whose tensors travelled in messages, the most bytes first; not all of them, because there may be
// thousands.
json copying_json(const Clients& clients) {
  constexpr std::size_t kMost = 16;
  std::vector<const ClientProcess*> processes;
  clients.for_each_process([&](const ClientProcess& process) {
    if (process.copied_requests.messages + process.copied_answers.messages > 0) processes.push_back(&process);
  });
  std::ranges::sort(processes, std::ranges::greater(),
                    [](const ClientProcess* process) { return process->copied_requests.bytes + process->copied_answers.bytes; });
  if (processes.size() > kMost) processes.resize(kMost);
  json list = json::array();
  for (const ClientProcess* process : processes) {
    json object = copied_json(process->copied_requests, process->copied_answers);
    object["pid"] = process->pid;
    object["connections"] = process->connections;
    object["arena_bytes"] = process->arena_bytes;
    list.push_back(std::move(object));
  }
  return list;
}

std::uint64_t value(const std::atomic<std::uint64_t>& field) { return field.load(std::memory_order_relaxed); }

json breaker_json(const Breaker& breaker, std::uint64_t now_ns) {
  json object{{"state", breaker.closed()    ? "closed"
                        : breaker.probing() ? "probing"
                                            : "open"},
              {"crashes", breaker.crashes(now_ns)}};
  object["reason"] = breaker.closed() ? json() : json(breaker.reason());
  return object;
}

json lane_json(const wire::LaneLine& line) {
  return {{"running_request", value(line.running_request)},
          {"running_attempt", value(line.running_attempt)},
          {"steps", value(line.step_counter)},
          {"completed", value(line.completed)},
          {"arena_bytes", value(line.arena_bytes)},
          {"parked", value(line.parked)},
          {"waits_for_device", value(line.waits_for_device) != 0},
          {"fallbacks", value(line.fallbacks)},
          {"thread_id", value(line.thread_id)}};
}

json programs_json(const wire::ProgramLine& line) {
  return {{"pinned", value(line.pinned)},       {"cached", value(line.programs)},
          {"cached_bytes", value(line.bytes)},  {"hits", value(line.hits)},
          {"misses", value(line.misses)},       {"compiled", value(line.compiled)},
          {"evicted", value(line.evicted)},     {"failed", value(line.failed)},
          {"compiling", value(line.compiling)}, {"compile_ms", static_cast<double>(value(line.compile_ns)) / 1e6}};
}

json worker_json(const WorkerProcess& worker, std::size_t lane_count, const Ledger& ledger, std::uint64_t now_ns) {
  json lanes = json::array();
  const auto page = worker.page(lane_count);
  for (const wire::LaneLine& line : page.lanes) lanes.push_back(lane_json(line));
  json object{{"pid", worker.pid},
              {"state", worker.state_name()},
              {"incarnation", worker.incarnation},
              {"lanes", lanes},
              {"answered", ledger.answered_by(worker.incarnation)},
              {"held", ledger.held_by(worker.incarnation)}};
  if (page.programs) object["programs"] = programs_json(*page.programs);
  if (worker.is_ready()) object["uptime_s"] = static_cast<double>(now_ns - worker.ready_ns) / 1e9;
  return object;
}

// The entry of a version that has no processes yet.
json entry_json(const std::string& name, const std::string& path, const ModelConfig& config, const ModelView& view,
                const Histogram& unrouted_ns, const Histogram& sent_again_ns, std::uint64_t now_ns) {
  return {{"name", name},
          {"version", 0},
          {"serving", false},
          {"current", false},
          {"state", "loading"},
          {"reason", ""},
          {"path", path},
          {"device", config.device},
          {"precision", config.precision},
          {"threads", config.threads},
          {"contexts", config.contexts},
          {"wanted_workers", config.workers},
          {"zygote", {{"pid", json()}}},
          {"workers", json::array()},
          {"queue", {{"length", view.queued}, {"limit", config.queue_limit}, {"running", view.running}}},
          {"counts", counts_json(view.counts)},
          {"copied", copied_json({}, {})},
          {"breaker", breaker_json(view.breaker, now_ns)},
          {"quarantined", view.quarantined},
          {"latency_ms", latency_json(view)},
          {"flows", json::array()},
          {"death_ms", {{"unrouted", histogram_json(unrouted_ns)}, {"sent_again", histogram_json(sent_again_ns)}}},
          {"packed_bytes", 0}};
}

// Also when what was started last has failed, no worker is left, and it is started again: requests wait for that.
std::string_view state_name(const Processes& processes) {
  const bool restarts = processes.state() == ModelState::kReady && processes.ready_workers() == 0 && !processes.reason().empty();
  return model_state_name(restarts ? ModelState::kLoading : processes.state());
}

}  // namespace

std::string Admin::list_json() const {
  json models = json::array();
  const auto add = [&](const Service& service) {
    models.push_back({{"name", service.name},
                      {"version", service.current ? json(service.current->number()) : json()},
                      {"versions", service.served_versions()},
                      {"state", service_state(service)}});
  };
  for (const auto& service : fleet_.catalog().services()) add(*service);
  for (const auto& service : fleet_.catalog().unloading()) {
    if (!fleet_.catalog().find(service->name)) add(*service);
  }
  return json_text({{"models", models}});
}

std::string_view Admin::service_state(const Service& service) const {
  if (service.is_unloading) return "unloading";
  if (service.is_drained) return "drained";
  return service.current ? state_name(fleet_.version(service.current->id).processes()) : "loading";
}

json Admin::version_json(const Service& service, const CatalogVersion& version, std::uint64_t now_ns, bool with_others) const {
  const ModelVersion& model = fleet_.version(version.id);
  const Processes& processes = model.processes();
  const ModelView view = plane_.ledger().model(model.routed().index);
  const ModelConfig& config = model.served().config;
  json workers = json::array();
  processes.for_each_worker([&](const WorkerProcess& worker) {
    workers.push_back(worker_json(worker, static_cast<std::size_t>(config.contexts), plane_.ledger(), now_ns));
  });
  const pid_t zygote = processes.zygote_pid();
  const bool is_coming = version.stage == CatalogVersion::Stage::kComing;
  const bool is_current = &version == service.current;
  const std::string& reason = processes.reason().empty() && is_current ? service.last_failure : processes.reason();
  json object = entry_json(service.name, model.served().path, config, view, model.routed().unrouted_ns,
                           model.routed().sent_again_ns, now_ns);
  object["version"] = model.number();
  object["serving"] = fleet_.lets_in(service, version);
  object["current"] = is_current;
  object["state"] = model.has_failed()       ? "failed"
                    : is_coming              ? "loading"
                    : !version.serves()      ? "draining"
                    : service.is_drained     ? "drained"
                    : !view.breaker.closed() ? "resting"
                                             : state_name(processes);
  object["reason"] = reason;
  object["wanted_workers"] = processes.options().workers;
  if (zygote > 0) object["zygote"]["pid"] = zygote;
  object["workers"] = workers;
  object["copied"] = copied_json(model.routed().copied_requests, model.routed().copied_answers);
  object["packed_bytes"] = processes.packed_bytes();
  if (with_others) object["flows"] = flows_json(view.flows, plane_.clients());
  if (model.loaded()) {
    object["arena_bytes"] = model.loaded()->arena_bytes;
    object["parameter_bytes"] = model.loaded()->parameter_bytes;
    object["tuning"] = model.loaded()->tuning;
    object["runs_in"] = model.loaded()->precision;
    object["hash"] = model.loaded()->hash;
  }
  return object;
}

// The entry of a model whose files are still looked for: no version is known, so all its counts are 0.
json Admin::finding_json(const Service& service, std::uint64_t now_ns) const {
  ModelConfig config;
  apply_overrides(service.request.overrides, config);
  const ModelCounts counts;
  const Histogram none;
  const FlowStatistics no_flows;
  const Breaker breaker;
  const ModelView view{counts, none, none, none, no_flows, 0, 0, 0, 0, breaker};
  json object = entry_json(service.name, service.request.path, config, view, none, none, now_ns);
  object["reason"] = fleet_.finding(service);
  return object;
}

std::string Admin::stats_json(bool with_others) const {
  const std::uint64_t now_ns = monotonic_now_ns();
  const Traffic& traffic = plane_.traffic();
  json models = json::array();
  for (const auto* all : {&fleet_.catalog().services(), &fleet_.catalog().unloading()}) {
    for (const auto& service : *all) {
      if (service->change && service->versions.empty()) models.push_back(finding_json(*service, now_ns));
      if (service->current) models.push_back(version_json(*service, *service->current, now_ns, with_others));
      for (auto version = service->versions.rbegin(); version != service->versions.rend(); ++version) {
        if (version->get() != service->current) models.push_back(version_json(*service, **version, now_ns, with_others));
      }
    }
  }
  return json_text({{"models", models},
                    {"supervisor",
                     {{"pid", ::getpid()},
                      {"uptime_s", static_cast<double>(now_ns - started_ns_) / 1e9},
                      {"directory", directory_},
                      {"clients", plane_.clients().count()},
                      {"bytes_read", traffic.client_bytes + traffic.lane_bytes},
                      {"client_messages", traffic.client_messages},
                      {"client_bytes", traffic.client_bytes},
                      {"held_message_bytes", plane_.message_bytes()},
                      {"arena_bytes", plane_.clients().arena_bytes()},
                      {"arena_allocated_bytes", plane_.clients().allocated_arena_bytes()},
                      {"copying", with_others ? copying_json(plane_.clients()) : json::array()},
                      {"lane_messages", traffic.lane_messages},
                      {"lane_bytes", traffic.lane_bytes},
                      {"bad_messages", traffic.bad_messages}}}});
}

}  // namespace shoal::supervisor

// What the daemon tells of itself.
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "shm/base/clock.hpp"
#include "supervisor/daemon.hpp"
#include "supervisor/daemon_service.hpp"

namespace shoal::supervisor {
namespace {

using nlohmann::json;

std::string dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

json histogram_json(const Histogram& histogram) {
  const auto ms = [](std::uint64_t ns) { return static_cast<double>(ns) / 1e6; };
  const auto quantile = [&](double fraction) { return ms(histogram.quantile(fraction)); };
  json buckets = json::array();
  histogram.for_each_bucket([&](std::uint64_t ns, std::uint64_t count) { buckets.push_back({ms(ns), count}); });
  return {{"count", histogram.count()}, {"p50", quantile(0.5)},       {"p90", quantile(0.9)}, {"p99", quantile(0.99)},
          {"p99_9", quantile(0.999)},   {"max", ms(histogram.max())}, {"buckets", buckets}};
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
  for (const wire::LaneLine& line : worker.lines(lane_count)) lanes.push_back(lane_json(line));
  json object{
      {"pid", worker.pid}, {"state", worker_state_name(worker.state)},           {"incarnation", worker.incarnation},
      {"lanes", lanes},    {"answered", ledger.answered_by(worker.incarnation)}, {"held", ledger.held_by(worker.incarnation)}};
  if (const wire::ProgramLine* programs = worker.programs(lane_count)) object["programs"] = programs_json(*programs);
  if (worker.state == WorkerProcess::State::kReady) object["uptime_s"] = static_cast<double>(now_ns - worker.ready_ns) / 1e9;
  return object;
}

}  // namespace

std::string Daemon::list_json() const {
  json models = json::array();
  for (const auto& service : services_) {
    if (!service) continue;
    const Model* current = service->current;
    models.push_back({{"name", service->name},
                      {"version", current ? json(current->version()) : json()},
                      {"versions", service->served_versions()},
                      {"state", service_state(*service)}});
  }
  return dump({{"models", models}});
}

std::string_view Daemon::service_state(const Service& service) {
  if (service.drained) return "drained";
  if (service.current) return model_state_name(service.current->processes().state());
  return is_unloading(service) ? "unloading" : "loading";
}

bool Daemon::lets_in(const Service& service, const Model& model) const {
  return model.is_serving() && !model.has_failed() && !service.drained && ledger_.model(model.index()).breaker.closed();
}

json Daemon::version_json(const Service& service, const Model& model, std::uint64_t now_ns) const {
  const ModelProcesses& processes = model.processes();
  const ModelView view = ledger_.model(model.index());
  const ModelConfig& config = model.served().config;
  json workers = json::array();
  for (const auto& worker : processes.workers())
    workers.push_back(worker_json(*worker, static_cast<std::size_t>(config.contexts), ledger_, now_ns));
  const pid_t zygote = processes.zygote_pid();
  const bool is_coming = model.stage() == Model::Stage::kComing;
  const std::string& reason = processes.reason().empty() && &model == service.current ? service.last_failure : processes.reason();
  json object{
      {"name", service.name},
      {"version", model.version()},
      {"serving", lets_in(service, model)},
      {"current", &model == service.current},
      {"state", model.has_failed()       ? "failed"
                : is_coming              ? "loading"
                : !model.is_serving()    ? "draining"
                : service.drained        ? "drained"
                : !view.breaker.closed() ? "resting"
                                         : model_state_name(processes.state())},
      {"reason", reason},
      {"path", model.served().path},
      {"device", config.device},
      {"precision", config.precision},
      {"threads", config.threads},
      {"contexts", config.contexts},
      {"wanted_workers", processes.options().workers},
      {"zygote", {{"pid", zygote > 0 ? json(zygote) : json()}}},
      {"workers", workers},
      {"queue", {{"length", view.queued}, {"limit", config.queue_limit}, {"running", view.running}}},
      {"counts", counts_json(view.counts)},
      {"breaker", breaker_json(view.breaker, now_ns)},
      {"quarantined", view.quarantined},
      {"latency_ms",
       {{"queue", histogram_json(view.queue_ns)},
        {"compute", histogram_json(view.compute_ns)},
        {"total", histogram_json(view.total_ns)}}},
      {"death_ms", {{"unrouted", histogram_json(model.unrouted_ns())}, {"sent_again", histogram_json(model.sent_again_ns())}}},
      {"packed_bytes", processes.packed_bytes()}};
  if (model.loaded()) {
    object["arena_bytes"] = model.loaded()->arena_bytes;
    object["parameter_bytes"] = model.loaded()->parameter_bytes;
    object["tuning"] = model.loaded()->tuning;
    object["hash"] = model.loaded()->hash;
  }
  return object;
}

std::string Daemon::stats_json() const {
  const std::uint64_t now_ns = monotonic_now_ns();
  json models = json::array();
  for (const auto& service : services_) {
    if (!service) continue;
    if (service->current) models.push_back(version_json(*service, *service->current, now_ns));
    for (auto model = service->versions.rbegin(); model != service->versions.rend(); ++model) {
      if (*model != service->current) models.push_back(version_json(*service, **model, now_ns));
    }
  }
  return dump({{"models", models},
               {"supervisor",
                {{"pid", ::getpid()},
                 {"uptime_s", static_cast<double>(now_ns - started_ns_) / 1e9},
                 {"directory", directory_.path()},
                 {"clients", clients_->count()},
                 {"bytes_read", traffic_.client_bytes + traffic_.lane_bytes},
                 {"client_messages", traffic_.client_messages},
                 {"client_bytes", traffic_.client_bytes},
                 {"lane_messages", traffic_.lane_messages},
                 {"lane_bytes", traffic_.lane_bytes},
                 {"bad_messages", traffic_.bad_messages}}}});
}

}  // namespace shoal::supervisor

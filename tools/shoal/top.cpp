// shoal top: the daemon's present activity.
#include "tools/shoal/top.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <optional>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/json_text.hpp"
#include "tools/shoal/commands.hpp"
#include "tools/shoal/process_memory.hpp"
#include "tools/shoal/watch.hpp"
#include "tools/shoal/with_daemon.hpp"

namespace shoal::tool {
namespace {

using nlohmann::json;

constexpr const char* kTopAbout =
    "Shows the present activity of the running daemon: requests, times, queues, and each worker's processor time and memory.";
constexpr const char* kTopMore =
    R"(Rates and times are those of the last interval (`shoal status` has those since the start). cpu: 1.00 is one processor all the time.
copied: tensors that travelled inside messages: shared memory had no room, or an output's size was not known before.
memory: shared pages are divided among the processes that map them. On a terminal the page is redrawn every second, until Ctrl-C.

  shoal top
  shoal top --once                      one interval only; for a log
  shoal top --json --interval 10        one JSON object per line)";

struct TopOptions {
  bool once = false, json = false;
  double interval_s = 1;
};

/// The processor time of all threads of a process.
std::optional<std::uint64_t> read_cpu_ns(std::int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string stat;
  std::getline(file, stat);
  const auto after_name = stat.rfind(')');
  unsigned long long user = 0, system = 0;
  if (after_name == std::string::npos ||
      std::sscanf(stat.c_str() + after_name + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user, &system) != 2)
    return std::nullopt;
  return (user + system) * (1'000'000'000 / static_cast<unsigned long long>(::sysconf(_SC_CLK_TCK)));
}

void look_at_process(const json& object, TopSample& sample) {
  if (!object.at("pid").is_number_integer()) return;
  const auto pid = object.at("pid").get<std::int64_t>();
  const auto cpu_ns = read_cpu_ns(pid);
  const auto memory = read_process_memory(static_cast<pid_t>(pid));
  if (cpu_ns && memory) sample.processes[pid] = {*cpu_ns, memory->pss_bytes};
}

Result<TopSample> look(Pool& pool) {
  TopSample sample;
  SHOAL_ASSIGN_OR_RETURN(const std::string text, pool.stats());
  sample.time_ns = monotonic_now_ns();
  sample.stats = json::parse(text);
  look_at_process(sample.stats.at("supervisor"), sample);
  for (const json& model : sample.stats.at("models")) {
    for (const json& worker : model.at("workers")) look_at_process(worker, sample);
  }
  return sample;
}

const json* find_model(const json& stats, const json& like) {
  for (const json& model : stats.at("models")) {
    if (model.at("name") == like.at("name") && model.at("version") == like.at("version")) return &model;
  }
  return nullptr;
}

using Buckets = std::map<double, std::uint64_t>;  // milliseconds -> requests

Buckets buckets_of(const json& model) {
  Buckets buckets;
  for (const json& bucket : model.at("latency_ms").at("total").at("buckets"))
    buckets[bucket.at(0).get<double>()] = bucket.at(1).get<std::uint64_t>();
  return buckets;
}

json quantile(const Buckets& buckets, double fraction) {
  std::uint64_t total = 0, seen = 0;
  for (const auto& [ms, count] : buckets) total += count;
  for (const auto& [ms, count] : buckets) {
    seen += count;
    if (static_cast<double>(seen) > fraction * static_cast<double>(total)) return ms;
  }
  return {};
}

std::uint64_t failed_of(const json& counts) {
  std::uint64_t failed = 0;
  for (const json& count : counts.at("failed")) failed += count.get<std::uint64_t>();
  return failed;
}

/// Of tensors that travelled inside messages, in both directions.
std::uint64_t copied_bytes(const json& model) {
  const json& copied = model.at("copied");
  return copied.at("request_bytes").get<std::uint64_t>() + copied.at("answer_bytes").get<std::uint64_t>();
}

void add_process(json& object, const TopSample& before, const TopSample& after) {
  const auto now = after.processes.find(object.at("pid").get<std::int64_t>());
  if (now == after.processes.end()) return;
  object["pss_bytes"] = now->second.pss_bytes;
  const auto then = before.processes.find(now->first);
  if (then == before.processes.end() || now->second.cpu_ns < then->second.cpu_ns) return;
  object["cpu"] =
      static_cast<double>(now->second.cpu_ns - then->second.cpu_ns) / static_cast<double>(after.time_ns - before.time_ns);
}

json model_json(const json& now, const TopSample& before, const TopSample& after) {
  const double seconds = static_cast<double>(after.time_ns - before.time_ns) / 1e9;
  const json* then = find_model(before.stats, now);
  const auto since = [&](std::uint64_t value, std::uint64_t earlier) {
    return static_cast<double>(value - std::min(value, earlier)) / seconds;
  };
  Buckets buckets = buckets_of(now);
  for (const auto& [ms, count] : then ? buckets_of(*then) : Buckets()) buckets[ms] -= std::min(buckets[ms], count);
  json workers = json::array();
  std::size_t ready = 0;
  for (const json& worker : now.at("workers")) {
    ready += worker.at("state") == "ready";
    workers.push_back({{"pid", worker.at("pid")},
                       {"state", worker.at("state")},
                       {"cpu", nullptr},
                       {"pss_bytes", nullptr},
                       {"answered", worker.at("answered")},
                       {"held", worker.at("held")}});
    add_process(workers.back(), before, after);
  }
  const json& counts = now.at("counts");
  return {{"name", now.at("name")},
          {"version", now.at("version")},
          {"state", now.at("state")},
          {"reason", now.at("reason")},
          {"requests_per_s",
           since(counts.at("ok").get<std::uint64_t>(), then ? then->at("counts").at("ok").get<std::uint64_t>() : 0)},
          {"failed_per_s", since(failed_of(counts), then ? failed_of(then->at("counts")) : 0)},
          {"copied_bytes_per_s", since(copied_bytes(now), then ? copied_bytes(*then) : 0)},
          {"p50_ms", quantile(buckets, 0.5)},
          {"p99_ms", quantile(buckets, 0.99)},
          {"queue", now.at("queue").at("length")},
          {"running", now.at("queue").at("running")},
          {"workers_ready", ready},
          {"workers_wanted", now.at("wanted_workers")},
          {"deaths", counts.at("worker_deaths")},
          {"workers", workers}};
}

std::string number_or_dash(const json& value, const char* pattern) {
  return value.is_number() ? number_text(value.get<double>(), pattern) : "-";
}
std::string bytes_text(const json& value) {
  return value.is_number() ? format_bytes(static_cast<std::uint64_t>(value.get<double>())) : "-";
}

Finish top(Pool& pool, const TopOptions& options) {
  const Interrupt interrupt;
  Pages pages(!options.once, options.json);
  auto before = look(pool);
  if (!before.ok()) return daemon_failure(before.status());
  const auto interval = nanoseconds_of(options.interval_s);
  do {
    if (interrupt.wait_for(interval)) return {};
    auto after = look(pool);
    if (!after.ok()) return interrupt.came() ? Finish() : daemon_failure(after.status());
    const json now = top_json(*before, *after);
    pages.show(options.json ? json_text(now) + "\n" : top_text(now));
    before = std::move(after);
  } while (!options.once && std::ferror(stdout) == 0);
  return {};
}

}  // namespace

json top_json(const TopSample& before, const TopSample& after) {
  const json& daemon = after.stats.at("supervisor");
  json supervisor{{"pid", daemon.at("pid")},
                  {"directory", daemon.at("directory")},
                  {"uptime_s", daemon.at("uptime_s")},
                  {"clients", daemon.at("clients")},
                  {"cpu", nullptr},
                  {"pss_bytes", nullptr}};
  add_process(supervisor, before, after);
  json models = json::array();
  for (const json& model : after.stats.at("models")) models.push_back(model_json(model, before, after));
  return {
      {"interval_s", static_cast<double>(after.time_ns - before.time_ns) / 1e9}, {"supervisor", supervisor}, {"models", models}};
}

std::string top_text(const json& top) {
  const json& daemon = top.at("supervisor");
  std::string text =
      format("daemon: pid {} in {}, up {} s, {} clients, cpu {}, {}\n\n", daemon.at("pid").dump(),
             printable(daemon.at("directory").get<std::string>()), number_or_dash(daemon.at("uptime_s"), "%.0f"),
             daemon.at("clients").dump(), number_or_dash(daemon.at("cpu"), "%.2f"), bytes_text(daemon.at("pss_bytes")));
  std::vector<std::vector<std::string>> models{
      {"model", "state", "requests/s", "failed/s", "p50 ms", "p99 ms", "waiting", "running", "copied/s", "workers", "deaths"}};
  std::vector<std::vector<std::string>> workers{{"worker", "pid", "state", "cpu", "memory", "answered", "held"}};
  std::string reasons;
  for (const json& model : top.at("models")) {
    const std::string name = format("{} {}", model.at("name").get<std::string>(), model.at("version").dump());
    models.push_back({name, model.at("state").get<std::string>(), number_or_dash(model.at("requests_per_s"), "%.1f"),
                      number_or_dash(model.at("failed_per_s"), "%.1f"), number_or_dash(model.at("p50_ms"), "%.3g"),
                      number_or_dash(model.at("p99_ms"), "%.3g"), model.at("queue").dump(), model.at("running").dump(),
                      bytes_text(model.at("copied_bytes_per_s")),
                      format("{}/{}", model.at("workers_ready").dump(), model.at("workers_wanted").dump()),
                      model.at("deaths").dump()});
    for (const json& worker : model.at("workers")) {
      workers.push_back({name, worker.at("pid").dump(), worker.at("state").get<std::string>(),
                         number_or_dash(worker.at("cpu"), "%.2f"), bytes_text(worker.at("pss_bytes")),
                         worker.at("answered").dump(), worker.at("held").dump()});
    }
    if (const auto reason = model.at("reason").get<std::string>(); !reason.empty())
      reasons += printable(name + ": " + reason) + "\n";
  }
  text += align_columns(models, {false, false, true, true, true, true, true, true, true, true, true});
  if (!reasons.empty()) text += "\n" + reasons;
  return text + "\n" + align_columns(workers, {false, true, false, true, true, true, true});
}

Command make_top(CLI::App& application) {
  const auto options = std::make_shared<TopOptions>();
  CLI::App* app = application.add_subcommand("top", kTopAbout);
  app->footer(kTopMore);
  app->add_flag("--once", options->once, "show one interval, then end");
  app->add_flag("--json", options->json, "print JSON, one object per interval");
  app->add_option("--interval", options->interval_s, "seconds between two samples (default 1)")
      ->check(CLI::Range(0.05, 3600.0))
      ->check(not_nan);
  return {app, [options](Invocation&) { return with_daemon([&](Pool& pool) { return top(pool, *options); }); }};
}

}  // namespace shoal::tool

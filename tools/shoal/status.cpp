// shoal status: the daemon's models, processes and memory.
#include <CLI/CLI.hpp>
#include <array>
#include <charconv>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "shm/base/errors.hpp"
#include "shm/base/json_text.hpp"
#include "tools/shoal/commands.hpp"
#include "tools/shoal/process_memory.hpp"
#include "tools/shoal/watch.hpp"
#include "tools/shoal/with_daemon.hpp"

namespace shoal::tool {
namespace {

using nlohmann::json;

constexpr const char* kStatusAbout =
    "Shows the running daemon's models, processes, requests, times, and the memory of each process.";
constexpr const char* kStatusMore =
    R"(Memory: `shared` is memory that other processes map, too (mainly the weights). `private` belongs to the process alone. `share` (PSS)
divides shared pages among the processes that map them, so the sum of the column is the memory of the pool.

  shoal status
  shoal status --watch                  again every second, until Ctrl-C; --watch=10: every 10 seconds
  shoal status --ready && echo up       exit code 0 if every model can answer, else 3; for scripts
  shoal status --json                   the daemon's own JSON, with "memory" for each process)";

constexpr double kShortestWatchS = 0.05, kLongestWatchS = 86'400;

struct StatusOptions {
  bool ready = false, json = false;
  std::string watch;  ///< seconds; "true": none were given
};

json to_json(const std::optional<ProcessMemory>& memory) {
  if (!memory) return {};
  return {{"rss_bytes", memory->rss_bytes},
          {"pss_bytes", memory->pss_bytes},
          {"private_bytes", memory->private_bytes},
          {"shared_bytes", memory->shared_bytes}};
}

/// Adds "memory" to an object with a "pid".
void add_memory(json& process) {
  if (process.is_object() && process.contains("pid") && process["pid"].is_number_integer()) {
    process["memory"] = to_json(read_process_memory(process["pid"].get<pid_t>()));
  }
}

void add_memory_everywhere(json& stats) {
  for (json& model : stats.at("models")) {
    add_memory(model.at("zygote"));
    for (json& worker : model.at("workers")) add_memory(worker);
  }
  add_memory(stats.at("supervisor"));
}

/// An error that names the models without a version that answers, and their states. OK if there is none.
Status check_ready(const json& stats) {
  std::map<std::string, std::string> waiting;  // name -> state; empty = a version answers
  for (const json& model : stats.at("models")) {
    const std::string now = model.at("state").get<std::string>(), reason = model.value("reason", "");
    std::string& state =
        waiting.try_emplace(model.at("name").get<std::string>(), reason.empty() ? now : format("{} ({})", now, printable(reason)))
            .first->second;
    if (model.at("serving").get<bool>() && now != "loading") state.clear();
  }
  std::string missing;
  for (const auto& [name, state] : waiting) {
    if (!state.empty()) missing += format("{}'{}' is {}", missing.empty() ? "" : ", ", name, state);
  }
  return missing.empty() ? Status() : unavailable("not ready: model {}", missing);
}

std::string text_of(const json& value) {
  return value.is_string() ? printable(value.get<std::string>()) : value.is_null() ? "-" : value.dump();
}

/// One line for all workers of a model, if requests needed programs that were not compiled at load.
std::string programs_text(const json& model) {
  std::map<std::string, std::uint64_t> sums;
  for (const json& worker : model.at("workers")) {
    const json programs = worker.value("programs", json::object());
    for (const auto& [key, value] : programs.items()) {
      if (value.is_number_unsigned()) sums[key] += value.get<std::uint64_t>();
    }
  }
  if (sums["misses"] == 0) return "";
  return format("  programs  {} cached ({}), {} compiled on demand, {} evicted; {} requests found a program, {} waited for one\n",
                sums["cached"], format_bytes(sums["cached_bytes"]), sums["compiled"], sums["evicted"], sums["hits"],
                sums["misses"]);
}

/// Crashes, refusals and batches, if there were any.
std::string faults_text(const json& model) {
  std::string text;
  const json& breaker = model.at("breaker");
  if (breaker.at("state") != "closed")
    text += format(
        "  resting   its workers crashed, and no request was to blame (last: {}); requests are refused until a worker answers a "
        "probe{}\n",
        text_of(breaker.at("reason")), breaker.at("state") == "probing" ? ", which is running now" : "");
  if (model.at("quarantined") != 0)
    text += format("  poison    {} inputs are refused because they crashed workers\n", text_of(model.at("quarantined")));
  const json& counts = model.at("counts");
  if (counts.at("batches") != 0)
    text += format("  batches   {} of {} requests\n", text_of(counts.at("batches")), text_of(counts.at("batched")));
  if (counts.at("too_late") != 0)
    text += format("  too late  {} requests were refused or dropped because their timeout was too short\n",
                   text_of(counts.at("too_late")));
  return text;
}

/// How many tensors travelled inside messages, if any did. Empty ones do not count.
std::string copied_text(const json& model) {
  const json copied = model.value("copied", json::object());
  const auto number = [&](const char* key) { return copied.value(key, std::uint64_t{0}); };
  if (number("request_bytes") + number("answer_bytes") == 0) return "";
  return format(
      "  copied    the inputs of {} requests ({}) and the outputs of {} answers ({}) travelled inside messages: "
      "shared memory had no room, or an output's size was not known before\n",
      number("requests"), format_bytes(number("request_bytes")), number("answers"), format_bytes(number("answer_bytes")));
}

std::string model_text(const json& model) {
  const json& counts = model.at("counts");
  std::uint64_t failed = 0;
  for (const json& count : counts.at("failed")) failed += count.get<std::uint64_t>();
  std::string text = format("\n{}: {}, version {}, {} of {} workers, from {}\n", text_of(model.at("name")),
                            text_of(model.at("state")), text_of(model.at("version")), model.at("workers").size(),
                            text_of(model.at("wanted_workers")), text_of(model.at("path")));
  if (const std::string reason = model.value("reason", ""); !reason.empty()) text += format("  {}\n", printable(reason));
  const json& queue = model.at("queue");
  text += format("  requests  {} answered, {} failed, {} run again, {} refused; {} running, {} of {} waiting; {} workers died\n",
                 text_of(counts.at("ok")), failed, text_of(counts.at("rerun")), text_of(counts.at("refused")),
                 text_of(queue.at("running")), text_of(queue.at("length")), text_of(queue.at("limit")),
                 text_of(counts.at("worker_deaths")));
  const json& latency = model.at("latency_ms");
  const auto times = [&](const char* what) {
    return format("{} {} (p99 {})", what, number_text(latency.at(what).at("p50").get<double>(), "%.3g"),
                  number_text(latency.at(what).at("p99").get<double>(), "%.3g"));
  };
  text += format("  ms        {}, {}, {}\n", times("total"), times("queue"), times("compute"));
  return text + faults_text(model) + programs_text(model) + copied_text(model);
}

std::vector<std::string> process_row(const std::string& what, const json& process, const std::string& state) {
  const json memory = process.value("memory", json());
  const auto bytes = [&](const char* key) {
    return memory.is_object() ? format_bytes(memory.at(key).get<std::uint64_t>()) : std::string("-");
  };
  return {what,
          text_of(process.at("pid")),
          state,
          text_of(process.value("answered", json())),
          bytes("shared_bytes"),
          bytes("private_bytes"),
          bytes("pss_bytes")};
}

std::uint64_t pss_of(const json& process) {
  const json memory = process.value("memory", json());
  return memory.is_object() ? memory.at("pss_bytes").get<std::uint64_t>() : 0;
}

std::string status_text(const json& stats) {
  const json& daemon = stats.at("supervisor");
  std::string text = format("daemon: pid {} in {}, up {} s, {} clients with {} of tensors\n", text_of(daemon.at("pid")),
                            text_of(daemon.at("directory")), number_text(daemon.at("uptime_s").get<double>(), "%.0f"),
                            text_of(daemon.at("clients")), format_bytes(daemon.value("arena_allocated_bytes", std::uint64_t{0})));
  std::vector<std::vector<std::string>> rows{{"process", "pid", "state", "answered", "shared", "private", "share"},
                                             process_row("daemon", daemon, "")};
  std::uint64_t total = pss_of(daemon);
  for (const json& model : stats.at("models")) {
    text += model_text(model);
    const std::string name = text_of(model.at("name"));
    rows.push_back(process_row(name + " zygote", model.at("zygote"), ""));
    total += pss_of(model.at("zygote"));
    for (const json& worker : model.at("workers")) {
      rows.push_back(process_row(name + " worker", worker, text_of(worker.at("state"))));
      total += pss_of(worker);
    }
  }
  rows.push_back({"sum", "", "", "", "", "", format_bytes(total)});
  return text + "\n" + align_columns(rows, {false, true, false, true, true, true, true});
}

std::string page_of(json stats, bool as_json) {
  add_memory_everywhere(stats);
  return as_json ? json_text(stats) + "\n" : status_text(stats);
}

Finish status(Pool& pool, const StatusOptions& options) {
  const auto text = pool.stats();
  if (!text.ok()) return daemon_failure(text.status());
  const json stats = json::parse(*text);
  if (options.json || !options.ready) std::fputs(page_of(stats, options.json).c_str(), stdout);
  return options.ready ? daemon_failure(check_ready(stats)) : Finish();
}

Finish watch(const StatusOptions& options) {
  double interval_s = 1;
  if (options.watch != "true") {  // CLI11's word for an option without its value
    const char* const end = options.watch.data() + options.watch.size();
    const auto read = std::from_chars(options.watch.data(), end, interval_s);
    if (read.ec != std::errc() || read.ptr != end || !(interval_s >= kShortestWatchS && interval_s <= kLongestWatchS))
      return usage_failure(
          invalid_argument("--watch {}: must be seconds, from {} to {}", options.watch, kShortestWatchS, kLongestWatchS));
  }
  return watch_daemon(interval_s, options.json, [&](Pool& pool) -> Result<std::string> {
    SHOAL_ASSIGN_OR_RETURN(const std::string text, pool.stats());
    return page_of(json::parse(text), options.json);
  });
}

}  // namespace

Command make_status(CLI::App& application) {
  const auto options = std::make_shared<StatusOptions>();
  CLI::App* app = application.add_subcommand("status", kStatusAbout);
  app->footer(kStatusMore);
  CLI::Option* ready =
      app->add_flag("--ready", options->ready, "exit code 0 if every model can answer, else 3; prints nothing else");
  app->add_option("--watch", options->watch,
                  "show it again every so many seconds (default 1), until Ctrl-C: in place on a terminal, else one below the "
                  "other; waits for the next daemon if this one ends")
      ->expected(0, 1)
      ->type_name("SECONDS")
      ->excludes(ready);
  app->add_flag("--json", options->json, "print JSON; with --watch an object per line");
  return {app, [options](Invocation&) {
            if (!options->watch.empty()) return watch(*options);
            return with_daemon([&](Pool& pool) { return status(pool, *options); });
          }};
}

}  // namespace shoal::tool

// shoal status: the daemon's models, processes and memory.
#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "shm/base/errors.hpp"
#include "shm/base/json_text.hpp"
#include "tools/shoal/commands.hpp"
#include "tools/shoal/process_memory.hpp"
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
  shoal status --ready && echo up       exit code 0 if every model can answer, else 3; for scripts
  shoal status --json                   the daemon's own JSON, with "memory" for each process)";

struct StatusOptions {
  bool ready = false, json = false;
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
    std::string& state =
        waiting.try_emplace(model.at("name").get<std::string>(), model.at("state").get<std::string>()).first->second;
    if (model.at("serving").get<bool>()) state.clear();
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
std::string ms_text(double ms) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", ms);
  return text;
}

/// Prints one line for all workers of a model, if requests needed programs that were not compiled at load.
void print_programs(const json& model) {
  std::map<std::string, std::uint64_t> sums;
  for (const json& worker : model.at("workers")) {
    const json programs = worker.value("programs", json::object());
    for (const auto& [key, value] : programs.items()) {
      if (value.is_number_unsigned()) sums[key] += value.get<std::uint64_t>();
    }
  }
  if (sums["misses"] == 0) return;
  std::printf(
      "  programs  %llu cached (%s), %llu compiled on demand, %llu evicted; %llu requests found a program, %llu waited for one\n",
      static_cast<unsigned long long>(sums["cached"]), format_bytes(sums["cached_bytes"]).c_str(),
      static_cast<unsigned long long>(sums["compiled"]), static_cast<unsigned long long>(sums["evicted"]),
      static_cast<unsigned long long>(sums["hits"]), static_cast<unsigned long long>(sums["misses"]));
}

/// Prints crashes, refusals and batches, if there were any.
void print_faults(const json& model) {
  const json& breaker = model.at("breaker");
  if (breaker.at("state") != "closed")
    std::printf(
        "  resting   its workers crashed, and no request was to blame (last: %s); requests are refused until a worker answers a "
        "probe%s\n",
        text_of(breaker.at("reason")).c_str(), breaker.at("state") == "probing" ? ", which is running now" : "");
  if (model.at("quarantined") != 0)
    std::printf("  poison    %s inputs are refused because they crashed workers\n", text_of(model.at("quarantined")).c_str());
  const json& counts = model.at("counts");
  if (counts.at("batches") != 0)
    std::printf("  batches   %s of %s requests\n", text_of(counts.at("batches")).c_str(), text_of(counts.at("batched")).c_str());
  if (counts.at("too_late") != 0)
    std::printf("  too late  %s requests were refused or dropped because their timeout was too short\n",
                text_of(counts.at("too_late")).c_str());
}

/// Prints how many tensors travelled inside messages, if any did.
void print_copied(const json& model) {
  const json copied = model.value("copied", json::object());
  const auto number = [&](const char* key) { return copied.value(key, std::uint64_t{0}); };
  if (number("requests") + number("answers") == 0) return;
  std::printf(
      "  copied    the inputs of %llu requests (%s) and the outputs of %llu answers (%s) found no room in shared memory\n",
      static_cast<unsigned long long>(number("requests")), format_bytes(number("request_bytes")).c_str(),
      static_cast<unsigned long long>(number("answers")), format_bytes(number("answer_bytes")).c_str());
}

void print_model(const json& model) {
  const json& counts = model.at("counts");
  std::uint64_t failed = 0;
  for (const json& count : counts.at("failed")) failed += count.get<std::uint64_t>();
  std::printf("\n%s: %s, version %s, %zu of %s workers, from %s\n", text_of(model.at("name")).c_str(),
              text_of(model.at("state")).c_str(), text_of(model.at("version")).c_str(), model.at("workers").size(),
              text_of(model.at("wanted_workers")).c_str(), text_of(model.at("path")).c_str());
  if (const std::string reason = model.value("reason", ""); !reason.empty()) std::printf("  %s\n", printable(reason).c_str());
  const json& queue = model.at("queue");
  std::printf("  requests  %s answered, %llu failed, %s run again, %s refused; %s running, %s of %s waiting; %s workers died\n",
              text_of(counts.at("ok")).c_str(), static_cast<unsigned long long>(failed), text_of(counts.at("rerun")).c_str(),
              text_of(counts.at("refused")).c_str(), text_of(queue.at("running")).c_str(), text_of(queue.at("length")).c_str(),
              text_of(queue.at("limit")).c_str(), text_of(counts.at("worker_deaths")).c_str());
  const json& latency = model.at("latency_ms");
  const auto times = [&](const char* what) {
    return format("{} {} (p99 {})", what, ms_text(latency.at(what).at("p50").get<double>()),
                  ms_text(latency.at(what).at("p99").get<double>()));
  };
  std::printf("  ms        %s, %s, %s\n", times("total").c_str(), times("queue").c_str(), times("compute").c_str());
  print_faults(model);
  print_programs(model);
  print_copied(model);
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

void print_text(const json& stats) {
  const json& daemon = stats.at("supervisor");
  std::printf("daemon: pid %s in %s, up %.0f s, %s clients with %s of tensors\n", text_of(daemon.at("pid")).c_str(),
              text_of(daemon.at("directory")).c_str(), daemon.at("uptime_s").get<double>(), text_of(daemon.at("clients")).c_str(),
              format_bytes(daemon.value("arena_allocated_bytes", std::uint64_t{0})).c_str());
  std::vector<std::vector<std::string>> rows{{"process", "pid", "state", "answered", "shared", "private", "share"},
                                             process_row("daemon", daemon, "")};
  std::uint64_t total = pss_of(daemon);
  for (const json& model : stats.at("models")) {
    print_model(model);
    const std::string name = text_of(model.at("name"));
    rows.push_back(process_row(name + " zygote", model.at("zygote"), ""));
    total += pss_of(model.at("zygote"));
    for (const json& worker : model.at("workers")) {
      rows.push_back(process_row(name + " worker", worker, text_of(worker.at("state"))));
      total += pss_of(worker);
    }
  }
  rows.push_back({"sum", "", "", "", "", "", format_bytes(total)});
  std::printf("\n%s", align_columns(rows, {false, true, false, true, true, true, true}).c_str());
}

Finish status(Pool& pool, const StatusOptions& options) {
  const auto text = pool.stats();
  if (!text.ok()) return daemon_failure(text.status());
  json stats = json::parse(*text);
  if (options.json) {
    add_memory_everywhere(stats);
    std::printf("%s\n", json_text(stats).c_str());
  } else if (!options.ready) {
    add_memory_everywhere(stats);
    print_text(stats);
  }
  return options.ready ? daemon_failure(check_ready(stats)) : Finish();
}

}  // namespace

Command make_status(CLI::App& application) {
  const auto options = std::make_shared<StatusOptions>();
  CLI::App* app = application.add_subcommand("status", kStatusAbout);
  app->footer(kStatusMore);
  app->add_flag("--ready", options->ready, "exit code 0 if every model can answer, else 3; prints nothing else");
  app->add_flag("--json", options->json, "print JSON");
  return {app, [options](Invocation&) { return with_daemon([&](Pool& pool) { return status(pool, *options); }); }};
}

}  // namespace shoal::tool

// shoal trace: the last events of workers, as a trace file.
#include <CLI/CLI.hpp>
#include <memory>

#include "shm/base/errors.hpp"
#include "shm/base/json_text.hpp"
#include "tools/shoal/commands.hpp"
#include "tools/shoal/flight_trace.hpp"
#include "tools/shoal/with_daemon.hpp"

namespace shoal::tool {
namespace {

using nlohmann::json;

constexpr const char* kTraceAbout =
    "Writes the last events of the running daemon's workers to a file for ui.perfetto.dev or chrome://tracing.";
constexpr const char* kTraceMore =
    R"(Each worker has a flight recorder with its last 4096 events: requests received, begun, ended and parked; compilations; clients that
attached and detached. It stays readable after the worker's death. The file also contains the last 8 dead workers of each model.

  shoal trace --chrome trace.json
  shoal trace --model resnet --pid 4711 --chrome trace.json)";

struct TraceOptions {
  std::string model, file;
  std::uint64_t pid = 0;
};

Finish trace(Pool& pool, const TraceOptions& options, Invocation& invocation) {
  const auto recorded = pool.trace(options.model, options.pid);
  if (!recorded.ok()) return daemon_failure(recorded.status());
  const json description = json::parse(recorded->description);
  const auto picture = chrome_trace(description, recorded->events);
  if (!picture.ok()) return picture.status().with_context("shoal trace");
  if (description.at("workers").empty()) {
    return Status(not_found("no such worker among the living and the last dead{}{}",
                            options.model.empty() ? "" : " of model '" + options.model + "'",
                            options.pid == 0 ? "" : format(" with pid {}", options.pid)));
  }
  for (const json& pid : description.at("left_out"))
    invocation.console.warn(
        format("the events of worker {} did not fit into the answer: get them with --pid {}", pid.dump(), pid.dump()));
  SHOAL_RETURN_IF_ERROR(write_file(options.file, json_text(*picture) + "\n"));
  std::printf("%zu workers, %zu events in %s\n", description.at("workers").size(), recorded->events.size() / 32,
              options.file.c_str());
  return {};
}

}  // namespace

Command make_trace(CLI::App& application) {
  const auto options = std::make_shared<TraceOptions>();
  CLI::App* app = application.add_subcommand("trace", kTraceAbout);
  app->footer(kTraceMore);
  app->add_option("--model", options->model, "only workers of this model")->type_name("NAME");
  app->add_option("--pid", options->pid, "only this worker")->check(CLI::Range(1, 1 << 22));
  app->add_option("--chrome", options->file, "the file to write")->required()->type_name("FILE")->check(not_empty);
  return {app, [options](Invocation& invocation) {
            return with_daemon([&](Pool& pool) { return trace(pool, *options, invocation); });
          }};
}

}  // namespace shoal::tool

// shoal trace: what workers did last, as a picture.
#include <CLI/CLI.hpp>
#include <fstream>
#include <memory>

#include "shm/base/errors.hpp"
#include "tools/shoal/commands.hpp"
#include "tools/shoal/flight_trace.hpp"
#include "tools/shoal/with_daemon.hpp"

namespace shoal::tool {
namespace {

using nlohmann::json;

constexpr const char* kAbout =
    "Writes what workers of the running daemon did last to a file for ui.perfetto.dev or chrome://tracing.";
constexpr const char* kMore =
    R"(Each worker has a flight recorder: its last 4096 events (requests received, begun, ended, parked; compilations; clients that came
and went). It stays readable after the worker's death: the last 8 dead workers of each model are in the file, too.

  shoal trace --chrome trace.json
  shoal trace --model resnet --pid 4711 --chrome trace.json)";

struct Options {
  std::string model, file;
  std::uint64_t pid = 0;
};

Finish trace(Pool& pool, const Options& options, Session& session) {
  const auto recorded = pool.trace(options.model, options.pid);
  if (!recorded.ok()) return daemon_failure(recorded.status());
  const json description = json::parse(recorded->description);
  const auto picture = chrome_trace(description, recorded->events);
  if (!picture.ok()) return picture.status().with_context("shoal trace");
  if (description.at("workers").empty()) {
    return Status(not_found("no such worker lives or is among the last dead{}{}",
                            options.model.empty() ? "" : " of model '" + options.model + "'",
                            options.pid == 0 ? "" : format(" with pid {}", options.pid)));
  }
  for (const json& pid : description.at("left_out"))
    session.console.warn(format("the events of worker {} did not fit: ask for them with --pid {}", pid.dump(), pid.dump()));
  std::ofstream file(options.file);
  file << picture->dump(-1, ' ', false, json::error_handler_t::replace) << '\n';
  file.close();
  if (!file) return status_from_errno("write", options.file, errno);
  std::printf("%zu workers, %zu events in %s\n", description.at("workers").size(), recorded->events.size() / 32,
              options.file.c_str());
  return {};
}

}  // namespace

Command make_trace(CLI::App& application) {
  const auto options = std::make_shared<Options>();
  CLI::App* app = application.add_subcommand("trace", kAbout);
  app->footer(kMore);
  app->add_option("--model", options->model, "only this model's workers");
  app->add_option("--pid", options->pid, "only this worker")->check(CLI::Range(1, 1 << 22));
  app->add_option("--chrome", options->file, "the file to write")->required()->check(not_empty);
  return {app, [options](Session& session) { return with_daemon([&](Pool& pool) { return trace(pool, *options, session); }); }};
}

}  // namespace shoal::tool

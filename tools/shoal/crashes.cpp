// shoal crashes: the deaths of workers.
#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/shoal/commands.hpp"
#include "tools/shoal/with_daemon.hpp"

namespace shoal::tool {
namespace {

using nlohmann::json;

constexpr const char* kCrashesAbout =
    "Shows the deaths of the running daemon's workers: time, cause, operator, and what happened to their requests.";
constexpr const char* kCrashesMore =
    R"(The daemon keeps the last 256 deaths and prints the newest last. Causes:
  crash          a fatal signal that the worker itself caused; the report has its operator and stack
  exception      an exception that nothing caught
  out_of_memory  an allocation failed within memory_mb, and the request could not be answered
  hung           ended by the daemon: no step and no processor time for max(250 ms, 5 x p99)
  run_limit      ended by the daemon: computed for run_limit_ms without finishing a step
  stopped        ended by the daemon: it was stopped (SIGSTOP) while it held requests
  ended          ended by the daemon for another reason, which the report names
  killed         by a signal from another process
  oom_killed     by the kernel, for lack of memory
  exited         by itself
  unknown        the cause was not seen
Requests are blamed only for crash, exception, out_of_memory, hung and run_limit.

  shoal crashes
  shoal crashes --model resnet --json)";

struct CrashesOptions {
  std::string model;
  bool json = false;
};

void print_requests(const json& death) {
  std::map<std::string, std::size_t> waiting;  // decision -> number of requests that had not begun
  std::size_t shown = 0;
  for (const json& request : death.at("requests")) {
    ++shown;
    const std::string decision = printable(request.at("decision").get<std::string>());
    if (!request.at("was_running").get<bool>()) {
      ++waiting[decision];
      continue;
    }
    std::printf("  request %s (client %s, seq %s): attempt %s, blamed %s times, %s\n", request.at("request").dump().c_str(),
                request.at("client").dump().c_str(), request.at("seq").dump().c_str(), request.at("attempts").dump().c_str(),
                request.at("blamed").dump().c_str(), decision.c_str());
  }
  for (const auto& [decision, count] : waiting) std::printf("  %zu requests that had not begun: %s\n", count, decision.c_str());
  const auto held = death.at("requests_held").get<std::size_t>();
  if (held > shown) std::printf("  %zu more requests\n", held - shown);
}

void print_death(const json& death) {
  std::printf("%s %s version %s, pid %s: %s: %s\n", death.at("time").get<std::string>().c_str(),
              death.at("model").get<std::string>().c_str(), death.at("version").dump().c_str(), death.at("pid").dump().c_str(),
              death.at("cause").get<std::string>().c_str(), printable(death.at("what").get<std::string>()).c_str());
  std::printf("  lived %.1f s, answered %s requests\n", death.at("lived_s").get<double>(), death.at("answered").dump().c_str());
  print_requests(death);
  if (!death.at("crash").is_object()) return;
  for (const json& frame : death.at("crash").at("stack")) std::printf("    %s\n", printable(frame.get<std::string>()).c_str());
}

Finish crashes(Pool& pool, const CrashesOptions& options) {
  const auto text = pool.crashes(options.model);
  if (!text.ok()) return daemon_failure(text.status());
  if (options.json) {
    std::printf("%s\n", text->c_str());
    return {};
  }
  const json deaths = json::parse(*text).at("crashes");
  for (const json& death : deaths) print_death(death);
  if (deaths.empty()) std::printf("no worker has died\n");
  return {};
}

}  // namespace

Command make_crashes(CLI::App& application) {
  const auto options = std::make_shared<CrashesOptions>();
  CLI::App* app = application.add_subcommand("crashes", kCrashesAbout);
  app->footer(kCrashesMore);
  app->add_option("--model", options->model, "only workers of this model")->type_name("NAME");
  app->add_flag("--json", options->json, "print JSON");
  return {app, [options](Invocation&) { return with_daemon([&](Pool& pool) { return crashes(pool, *options); }); }};
}

}  // namespace shoal::tool

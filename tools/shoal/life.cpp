// shoal load, unload, reload, scale, drain: change what the running daemon serves.
#include "tools/shoal/life.hpp"

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>

#include "shm/base/errors.hpp"
#include "shm/base/json_text.hpp"
#include "shm/model/model_config.hpp"
#include "tools/shoal/commands.hpp"
#include "tools/shoal/with_daemon.hpp"

namespace shoal::tool {
namespace {

using nlohmann::json;

constexpr const char* kAboutLoad = "Makes the running daemon serve another model, and returns when the model answers.";
constexpr const char* kMoreLoad =
    R"(NAME=PATH[,KEY=VALUE...] has the same form as for `shoald --model`; a relative PATH is relative to the current directory.
PATH may be a URL (https://, s3://, hdfs://, file://): a process of the daemon's fetches the files first, see shoal fetch --help. The daemon
forgets the model when it ends; write models that it always serves into its --config. If the model cannot be served, the exit code is 1,
the message says why, and the daemon is unchanged.

  shoal load resnet=models/resnet-50,workers=4
  shoal load resnet=https://models.example.com/resnet-50
  shoal load resnet=models/resnet,versions=latest:2      the two highest of models/resnet/1, models/resnet/2, ...)";

constexpr const char* kAboutReload = "Reads a model's files again and serves their new content. No request fails because of it.";
constexpr const char* kMoreReload =
    R"(The new version is loaded while the old one serves. Its workers start, and one of them answers a probe (the model's `golden` input,
else zeros). Then new requests go to the new version. The old version ends when it has answered its admitted requests. The command
returns then, or 30 seconds after the new version began to serve. If a step fails, the old version goes on, the message says why, and
the exit code is 1. Unchanged files and keys are not reloaded.

  shoal reload resnet                                    after a new directory models/resnet/3, or new files
  shoal reload resnet=models/resnet-v2,workers=8         from another path, or with other keys, from now on
  shoal reload resnet --force                            even if nothing has changed

Write a version into another directory and rename it, so that the daemon never sees half of it. Also ends `shoal drain`.)";

constexpr const char* kAboutUnload =
    "Stops serving a model: refuses new requests, answers the admitted ones, and ends its processes.";
constexpr const char* kMoreUnload =
    R"(Returns when the model's memory is free. Requests that have not finished after 30 seconds get UNAVAILABLE. A worker
that waits in the kernel, for a device or a dead network path, delays the return until it ends.

  shoal unload resnet)";

constexpr const char* kAboutScale = "Changes the number of worker processes of a model, and returns when that many are ready.";
constexpr const char* kMoreScale =
    R"(A superfluous worker gets no new requests, finishes those that it has, and ends. A reload keeps the number. When the daemon reads its
--config again, the number there counts.

  shoal scale resnet 8)";

constexpr const char* kAboutDrain = "Refuses new requests for a model, and returns when the admitted ones are answered.";
constexpr const char* kMoreDrain =
    R"(The model stays loaded. Requests get UNAVAILABLE until `shoal reload NAME`, which then takes no time. If no worker can answer the
admitted requests for 30 s, this fails, and the model stays closed.

  shoal drain resnet && maintain && shoal reload resnet)";

struct LifeOptions {
  std::string model;
  int workers = 0;
  bool force = false, json = false;
};

struct NameAndPath {
  std::string name, path;
};

NameAndPath split(const std::string& argument) {
  const std::size_t equals = argument.find('=');
  if (equals == std::string::npos) return {argument, ""};
  return {argument.substr(0, equals), argument.substr(equals + 1)};
}

void print(const std::string& name, const ModelChange& change, bool as_json) {
  if (as_json) {
    std::printf("%s\n", json_text({{"model", name},
                                   {"outcome", change.outcome},
                                   {"version", change.version},
                                   {"versions", change.versions},
                                   {"workers", change.workers},
                                   {"ms", change.took.count()}})
                            .c_str());
    return;
  }
  std::string versions;
  for (const std::uint64_t version : change.versions) versions += format("{}{}", versions.empty() ? "" : ", ", version);
  std::printf("%s: %s in %.1f s", name.c_str(), change.outcome.c_str(), static_cast<double>(change.took.count()) / 1e3);
  if (change.outcome != "unloaded")
    std::printf(", version%s %s, %d workers", change.versions.size() > 1 ? "s" : "", versions.c_str(), change.workers);
  std::printf("\n");
}

using Call = std::function<Result<ModelChange>(Pool&, const std::string& name, const std::string& path)>;

/// Sends the request, shows its progress, and prints its result.
Finish change(Pool& pool, const LifeOptions& options, const Call& call) {
  const auto [name, path] = split(options.model);
  auto answer = std::async(std::launch::async, [&, name = name, path = path] { return call(pool, name, path); });
  {
    Progress progress(name);
    while (answer.wait_for(std::chrono::milliseconds(200)) != std::future_status::ready) {
      progress.show([&, name = name] {
        const auto stats = pool.stats();
        return state_of(name, stats.ok() ? *stats : "");
      });
    }
  }
  const Result<ModelChange> changed = answer.get();
  if (!changed.ok()) return daemon_failure(changed.status());
  print(name, *changed, options.json);
  return {};
}

enum class Place { kNone, kOptional, kRequired };  // "=PATH[,KEY=VALUE...]" after the name

struct Words {
  const char* name;
  const char* about;
  const char* more;
  const char* argument;
  const char* argument_about;
  Place place = Place::kNone;
};

Status check_argument(const std::string& argument, Place place) {
  const bool has_place = argument.find('=') != std::string::npos;
  if (has_place && place == Place::kNone) return invalid_argument("'{}': give only the model's NAME", argument);
  return has_place || place == Place::kRequired ? parse_model_argument(argument).status() : Status();
}

Command make(CLI::App& application, const Words& words, const std::shared_ptr<LifeOptions>& options, Call call) {
  CLI::App* app = application.add_subcommand(words.name, words.about);
  app->footer(words.more);
  app->add_option(words.argument, options->model, words.argument_about)->required();
  app->add_flag("--json", options->json, "print JSON: model, outcome, version, versions, workers, ms");
  return {app, [options, call = std::move(call), place = words.place](Invocation&) -> Finish {
            if (Status wrong = check_argument(options->model, place); !wrong.ok()) return usage_failure(std::move(wrong));
            return with_daemon([&](Pool& pool) { return change(pool, *options, call); });
          }};
}

}  // namespace

std::string state_of(const std::string& name, const std::string& stats) try {
  const json object = json::parse(stats);
  std::string state = "waiting";
  for (const json& model : object.at("models")) {
    const auto stage = model.value("state", std::string());
    if (model.value("name", std::string()) != name || (stage != "loading" && stage != "draining")) continue;
    const auto version = model.value("version", std::uint64_t{0});
    if (version == 0) return model.value("reason", std::string());
    state = format("version {} is {}", version, stage);
    if (stage == "draining") continue;
    state += format(", {} of {} workers", model.value("workers", json::array()).size(), model.value("wanted_workers", 0));
    if (!model.value("serving", false)) return state;  // else it restarts
  }
  return state;
} catch (const json::exception&) {
  return "waiting";
}

Command make_load(CLI::App& application) {
  return make(application, {"load", kAboutLoad, kMoreLoad, "NAME=PATH", "NAME=PATH[,workers=4,...]", Place::kRequired},
              std::make_shared<LifeOptions>(),
              [](Pool& pool, const std::string& name, const std::string& path) { return pool.load(name, path); });
}

Command make_reload(CLI::App& application) {
  const auto options = std::make_shared<LifeOptions>();
  Command command =
      make(application, {"reload", kAboutReload, kMoreReload, "NAME", "NAME, or NAME=PATH[,KEY=VALUE...]", Place::kOptional},
           options, [options](Pool& pool, const std::string& name, const std::string& path) {
             return pool.reload(name, path, options->force);
           });
  command.app->add_flag("--force", options->force, "load it even if nothing has changed");
  return command;
}

Command make_unload(CLI::App& application) {
  return make(application, {"unload", kAboutUnload, kMoreUnload, "NAME", "the model's name in the daemon"},
              std::make_shared<LifeOptions>(),
              [](Pool& pool, const std::string& name, const std::string&) { return pool.unload(name); });
}

Command make_scale(CLI::App& application) {
  const auto options = std::make_shared<LifeOptions>();
  Command command =
      make(application, {"scale", kAboutScale, kMoreScale, "NAME", "the model's name in the daemon"}, options,
           [options](Pool& pool, const std::string& name, const std::string&) { return pool.scale(name, options->workers); });
  command.app->add_option("WORKERS", options->workers, "how many")->required()->check(CLI::Range(1, 1024));
  return command;
}

Command make_drain(CLI::App& application) {
  return make(application, {"drain", kAboutDrain, kMoreDrain, "NAME", "the model's name in the daemon"},
              std::make_shared<LifeOptions>(),
              [](Pool& pool, const std::string& name, const std::string&) { return pool.drain(name); });
}

}  // namespace shoal::tool

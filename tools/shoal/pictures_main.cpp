// shoal-pictures: what `shoal classify` and `shoal detect` become.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>

#include "shm/base/errors.hpp"
#include "shm/model/model_config.hpp"
#include "shoal/engine.hpp"
#include "shoal/passive_openmp.hpp"
#include "shoal/pool.hpp"
#include "tools/shoal/fetched.hpp"
#include "tools/shoal/in_process.hpp"
#include "tools/shoal/picture_commands.hpp"

namespace shoal::tool {
namespace {

constexpr int kContextsOfPool = 4;  // pictures that are decoded here while workers run others

}  // namespace

Finish with_picture_model(const PictureOptions& options, Invocation& invocation,
                          const std::function<Finish(const PictureModel&)>& work) {
  Optional<Preprocess> preprocess;
  if (!options.preset.empty()) preprocess = preprocess_preset(options.preset).value();  // the option is checked
  if (is_path(options.model)) {
    ensure_passive_openmp(invocation.argv);
    const int contexts = std::max(options.contexts, 1);
    SHOAL_ASSIGN_OR_RETURN(const std::string path, local_model(options.model, invocation.console));
    SHOAL_ASSIGN_OR_RETURN(Engine engine,
                           load_for_pictures(path, {.precision = options.precision, .contexts = contexts}, preprocess));
    for (const std::string& warning : engine.warnings()) invocation.console.warn(warning);
    invocation.console.hold_library_messages();
    return work({engine.client(), "", preprocess, contexts});
  }
  if (!options.precision.empty()) {
    return usage_failure(invalid_argument(
        "--precision works only with a PATH; '{}' is a model of the daemon, which uses the precision in model.toml",
        options.model));
  }
  auto pool = Pool::connect();
  if (!pool.ok()) return daemon_failure(pool.status());
  invocation.console.hold_library_messages();
  return work({pool->client(), options.model, preprocess, options.contexts > 0 ? options.contexts : kContextsOfPool});
}

}  // namespace shoal::tool

int main(int argc, char** argv) {
  using namespace shoal::tool;
  CLI::App application("", "shoal");
  ClassifyOptions classify_options;
  DetectOptions detect_options;
  const std::array commands{Command{add_classify(application, classify_options),
                                    [&](Invocation& invocation) { return classify(classify_options, invocation); }},
                            Command{add_detect(application, detect_options),
                                    [&](Invocation& invocation) { return detect(detect_options, invocation); }}};
  return run_command_line(application, commands, argc, argv);
}

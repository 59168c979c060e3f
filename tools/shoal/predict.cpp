// shoal predict: one request to a model that the daemon serves.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>

#include "shm/base/errors.hpp"
#include "shoal/pool.hpp"
#include "tools/shoal/commands.hpp"
#include "tools/shoal/tensor_files.hpp"
#include "tools/shoal/working.hpp"

namespace shoal::tool {
namespace {

constexpr const char* kPredictAbout =
    "Sends one request to a model of the running daemon and writes each output to DIR/<output name>.npy.";
constexpr const char* kPredictMore = R"(Writes and prints the same as `shoal run`.

  shoal predict resnet --input data=x.npy --output out
  shoal predict resnet --input data=x.npy --output out --timeout 50 --json
  shoal predict resnet --model-version 2 --input data=x.npy --output out

Exit code 3: no daemon, it does not answer, the model has failed, or its queue is full.)";

struct PredictOptions {
  std::string model, output;
  std::vector<std::string> inputs;
  std::int64_t timeout_ms = 0;
  std::uint64_t version = 0, flow = 0;
  bool json = false;
};

Finish predict(const PredictOptions& options, Invocation& invocation) {
  const auto files = parse_inputs(options.inputs);
  if (!files.ok()) return usage_failure(files.status());
  auto pool = Pool::connect();
  if (!pool.ok()) return daemon_failure(pool.status());
  const auto ask = [&](const auto& question) {  // both answers may take as long as the model loads
    const Working working(format("waiting for model '{}'", options.model));
    return question();
  };
  const auto info = ask([&] { return pool->describe(options.model, options.version); });
  if (!info.ok()) return daemon_failure(info.status());
  SHOAL_ASSIGN_OR_RETURN(const Tensors inputs, read_inputs(*files));
  const SubmitOptions how{
      .timeout = std::chrono::milliseconds(options.timeout_ms), .version = options.version, .flow = options.flow};
  const auto outputs = ask([&] { return pool->predict(options.model, inputs, how); });
  if (!outputs.ok()) return daemon_failure(outputs.status());
  for (std::string& warning : ignored_input_warnings(*info, inputs)) invocation.console.warn(std::move(warning));
  SHOAL_ASSIGN_OR_RETURN(const auto written, write_outputs(*outputs, options.output));
  print_outputs(written, options.json);
  return {};
}

}  // namespace

Command make_predict(CLI::App& application) {
  const auto options = std::make_shared<PredictOptions>();
  CLI::App* app = application.add_subcommand("predict", kPredictAbout);
  app->footer(kPredictMore);
  app->add_option("NAME", options->model, "the model's name in the daemon")->required();
  add_tensor_options(*app, options->inputs, options->output);
  app->add_option("--timeout", options->timeout_ms, "milliseconds for the whole request (default: the model's timeout_ms)")
      ->check(CLI::Range(1, 24 * 3'600'000));
  app->add_option("--model-version", options->version, "one of the versions that are served (default: the highest)")
      ->check(CLI::Range(std::uint64_t{1}, std::numeric_limits<std::uint64_t>::max()));
  app->add_option("--flow", options->flow,
                  "whom the request is for, a number; the daemon takes it only from users with the role of a gateway ([roles])");
  app->add_flag("--json", options->json, "print JSON");
  return {app, [options](Invocation& invocation) { return predict(*options, invocation); }};
}

}  // namespace shoal::tool

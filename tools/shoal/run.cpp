// shoal run: runs a model in this process.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shoal/engine.hpp"
#include "shoal/passive_openmp.hpp"
#include "tools/shoal/commands.hpp"
#include "tools/shoal/fetched.hpp"
#include "tools/shoal/in_process.hpp"
#include "tools/shoal/tensor_files.hpp"
#include "tools/shoal/working.hpp"

namespace shoal::tool {
namespace {

constexpr const char* kRunAbout =
    "Runs a checkpoint once in this process, without a daemon, and writes each output to DIR/<output name>.npy.";
constexpr const char* kRunMore =
    R"(The inputs decide the shapes. Label inputs are accepted and ignored. In file names every character outside [A-Za-z0-9._-] becomes _.
If two names are then equal, the later one gets a number.

  shoal run models/resnet-50 --input data=x.npy --output out
  shoal run models/resnet-50@7 --input data=x.npy --output out --json       epoch 7; {"outputs": [{"name", "dtype", "shape", "file"}]}
  shoal run models/resnet-50 --input data=x.npy --output out --device cpu-reference     plain loops: slow and simple
  shoal run models/resnet-50 --input data=x.npy --output out --threads 2 --repeat 100   median time of 100 runs after a warm-up)";

struct RunOptions {
  std::string path, output, device, precision;
  std::vector<std::string> inputs;
  int threads = 0;
  std::size_t repeat = 0;
  bool json = false;
};

Result<double> median_run_ms(Engine& engine, const Tensors& inputs, std::size_t repeat) {
  std::vector<double> times_ms;
  Progress progress("running", repeat);
  while (times_ms.size() < repeat) {
    const std::uint64_t start_ns = monotonic_now_ns();
    SHOAL_ASSIGN_OR_RETURN(const Tensors outputs, engine.run(inputs));
    times_ms.push_back(static_cast<double>(monotonic_now_ns() - start_ns) / 1e6);
    progress.show(times_ms.size());
  }
  std::ranges::sort(times_ms);
  return (times_ms[(repeat - 1) / 2] + times_ms[repeat / 2]) / 2;
}

/// Errors of loading and running name nodes of the graph. Adds the inputs that the user gave.
Status with_inputs(const Status& why, const Tensors& inputs) {
  if (why.code() != StatusCode::kInvalidArgument) return why;
  std::string given;
  for (const auto& [name, tensor] : inputs) {
    given += format("{}'{}' {} {}", given.empty() ? "" : ", ", name, dtype_name(tensor.dtype()), tensor.shape().to_string());
  }
  return Status(why.code(), format("{} (given: {})", why.message(), given));
}

Finish run(const RunOptions& options, Invocation& invocation) {
  const auto files = parse_inputs(options.inputs);
  if (!files.ok()) return usage_failure(files.status());
  ensure_passive_openmp(invocation.argv);
  SHOAL_ASSIGN_OR_RETURN(const Tensors inputs, read_inputs(*files));
  SHOAL_ASSIGN_OR_RETURN(const std::string path, local_model(options.path, invocation.console));
  auto engine =
      load_for_inputs(path, {.device = options.device, .precision = options.precision, .threads = options.threads}, inputs);
  if (!engine.ok()) return with_inputs(engine.status(), inputs);
  for (const std::string& warning : engine->warnings()) invocation.console.warn(warning);
  SHOAL_ASSIGN_OR_RETURN(const ModelInfo info, engine->describe());
  for (std::string& warning : ignored_input_warnings(info, inputs)) invocation.console.warn(std::move(warning));

  const auto outputs = [&] {
    const Working working("running");
    return engine->run(inputs);
  }();
  if (!outputs.ok()) return with_inputs(outputs.status(), inputs);
  SHOAL_ASSIGN_OR_RETURN(const auto written, write_outputs(*outputs, options.output));
  double median_ms = 0;
  if (options.repeat > 0) {
    SHOAL_ASSIGN_OR_RETURN(median_ms, median_run_ms(*engine, inputs, options.repeat));
  }
  print_outputs(written, options.json, options.repeat > 0 ? &median_ms : nullptr);
  return {};
}

}  // namespace

Command make_run(CLI::App& application) {
  const auto options = std::make_shared<RunOptions>();
  CLI::App* app = application.add_subcommand("run", kRunAbout);
  app->footer(kRunMore);
  app->add_option("PATH", options->path, "the checkpoint: PREFIX, PREFIX@EPOCH, a directory, or the URL of one")->required();
  add_tensor_options(*app, options->inputs, options->output);
  app->add_option("--device", options->device, "cpu or cpu-reference (default: as in model.toml, else cpu)");
  app->add_option("--precision", options->precision,
                  "f32; f32-fast, which allows Winograd; bf16; or auto, the fastest (default: as in model.toml, else f32)")
      ->check(CLI::IsMember({"f32", "f32-fast", "bf16", "auto"}));
  app->add_option("--threads", options->threads, "cores per run (default: as in model.toml, else 1)")->check(CLI::Range(1, 1024));
  app->add_option("--repeat", options->repeat, "run this many more times and print the median time")
      ->check(CLI::Range(1, 1'000'000));
  app->add_flag("--json", options->json, "print JSON");
  return {app, [options](Invocation& invocation) { return run(*options, invocation); }};
}

}  // namespace shoal::tool

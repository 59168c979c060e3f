// shoal-measure: what `shoal bench` becomes.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <functional>

#include "shm/base/errors.hpp"
#include "shm/base/json_text.hpp"
#include "shoal/engine.hpp"
#include "shoal/passive_openmp.hpp"
#include "shoal/pool.hpp"
#include "tools/shoal/bench/inputs.hpp"
#include "tools/shoal/bench/load_generator.hpp"
#include "tools/shoal/bench/plot.hpp"
#include "tools/shoal/bench/report.hpp"
#include "tools/shoal/bench_options.hpp"
#include "tools/shoal/commands.hpp"
#include "tools/shoal/fetched.hpp"
#include "tools/shoal/in_process.hpp"
#include "tools/shoal/tensor_files.hpp"

namespace shoal::tool {
namespace {

/// What the options give of the inputs.
struct GivenInputs {
  Tensors files;
  std::vector<TensorSpec> shapes;
};

std::vector<LoadPoint> loads_of(const BenchOptions& options) {
  std::vector<LoadPoint> loads;
  for (const double rate : options.rates) loads.push_back({.rate = rate});
  for (const std::uint32_t count : options.in_flight) loads.push_back({.in_flight = count});
  if (loads.empty()) loads = {{.in_flight = 1}, {.in_flight = 4}, {.in_flight = 16}};
  return loads;
}

/// Measures the loads until one of them is interrupted.
Result<std::vector<Measurement>> measure_all(const BenchOptions& options, const LoadGenerator& generator) {
  std::vector<Measurement> measurements;
  const std::vector<LoadPoint> loads = loads_of(options);
  const Interrupt interrupt;
  Progress progress(printable("measuring " + options.model));
  for (const LoadPoint& load : loads) {
    const auto watch = [&](const Measurement& so_far) {
      progress.show([&] {
        return format("load {} of {}, {}", measurements.size() + 1, loads.size(),
                      so_far.seconds > 0 ? format("{} answers", so_far.answers) : "warming up");
      });
    };
    SHOAL_ASSIGN_OR_RETURN(Measurement measured, generator.measure(load, interrupt, watch));
    const bool is_cut = measured.is_cut;
    if (!is_cut || measured.requests > 0) measurements.push_back(std::move(measured));
    if (is_cut) break;
  }
  return measurements;
}

/// The error of a measurement without an answer; OK if there was one.
Finish judge(const std::vector<Measurement>& measurements) {
  if (std::ranges::any_of(measurements, [](const Measurement& one) { return one.ok() > 0; })) return {};
  for (const Measurement& one : measurements) {
    if (!one.first_failure.ok()) return daemon_failure(one.first_failure.with_context("no request was answered"));
  }
  return Status(deadline_exceeded("no request ended while it was measured: give --duration more seconds"));
}

Finish report(const BenchOptions& options, const ModelInfo& model, const std::vector<Measurement>& measurements,
              Console& console) {
  if (options.json) {
    std::printf("%s\n", json_text(to_json(model, measurements)).c_str());
  } else if (!measurements.empty()) {
    std::fputs(to_table(measurements).c_str(), stdout);
  }
  for (std::string& warning : warnings_of(measurements)) console.warn(std::move(warning));
  Finish end = judge(measurements);
  if (measurements.empty()) return end;
  if (!options.csv.empty()) SHOAL_RETURN_IF_ERROR(write_file(options.csv, to_csv(measurements)));
  for (const std::string& plot : options.plots) SHOAL_RETURN_IF_ERROR(write_plot(plot, options.model, measurements));
  return end;
}

Finish measure(const BenchOptions& options, const Client& client, const std::string& name, const GivenInputs& given,
               Console& console) {
  const auto model = client.model(name, options.version);
  if (!model.ok()) return daemon_failure(model.status());
  const auto info = model->info();
  SHOAL_ASSIGN_OR_RETURN(Tensors inputs, make_inputs(client, *info, given.files, given.shapes, options.seed));
  const LoadGenerator generator(client, *model, std::move(inputs),
                                {.duration = nanoseconds_of(options.duration_s),
                                 .warmup = nanoseconds_of(options.warmup_s),
                                 .timeout = std::chrono::milliseconds(options.timeout_ms),
                                 .is_even = options.is_even,
                                 .seed = options.seed,
                                 .flow = options.flow,
                                 .priority = options.priority});
  SHOAL_ASSIGN_OR_RETURN(const auto measurements, measure_all(options, generator));
  return report(options, *info, measurements, console);
}

Finish bench_in_process(const BenchOptions& options, const GivenInputs& given, Console& console) {
  const std::vector<LoadPoint> loads = loads_of(options);
  const auto most = std::ranges::max_element(loads, {}, &LoadPoint::in_flight);
  EngineOptions engine_options{.precision = options.precision,
                               .threads = options.threads,
                               .contexts = std::max(options.contexts, 1),
                               .queue_limit = std::max(1024, static_cast<int>(most->in_flight)),
                               .shapes = {}};
  SHOAL_ASSIGN_OR_RETURN(const std::string path, local_model(options.model, console));
  auto engine = given.files.empty() ? load_for_shapes(path, std::move(engine_options), given.shapes)
                                    : load_for_inputs(path, std::move(engine_options), given.files);
  if (!engine.ok()) return engine.status();
  for (const std::string& warning : engine->warnings()) console.warn(warning);
  return measure(options, engine->client(), "", given, console);
}

/// An error if the model is the daemon's, and an option is given that it decides itself.
Status check_daemon_options(const BenchOptions& options) {
  const char* const given = !options.precision.empty() ? "--precision"
                            : options.threads > 0      ? "--threads"
                            : options.contexts > 0     ? "--contexts"
                                                       : nullptr;
  if (!given) return {};
  return invalid_argument("{} works only with a PATH; '{}' is a model of the daemon, which runs it as model.toml says", given,
                          options.model);
}

/// Whether the file can be written later, so that nothing is measured in vain. Makes no file.
Status check_writable(const std::filesystem::path& file) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) return status_from_errno("write", file.string(), EISDIR);
  const bool is_there = std::filesystem::exists(file, ignored);
  const std::filesystem::path directory = file.has_parent_path() ? file.parent_path() : ".";
  if (::access(is_there ? file.c_str() : directory.c_str(), is_there ? W_OK : W_OK | X_OK) == 0) return {};
  return status_from_errno("write", file.string(), errno);
}

Finish bench(const BenchOptions& options, Invocation& invocation) {
  for (const std::string& plot : options.plots) {
    if (Status wrong = check_plot_file(plot); !wrong.ok()) return usage_failure(std::move(wrong));
    SHOAL_RETURN_IF_ERROR(check_writable(plot));
  }
  if (!options.csv.empty()) SHOAL_RETURN_IF_ERROR(check_writable(options.csv));
  const auto files = parse_inputs(options.inputs);
  if (!files.ok()) return usage_failure(files.status());
  GivenInputs given;
  auto shapes = parse_shapes(options.shapes);
  if (!shapes.ok()) return usage_failure(shapes.status());
  given.shapes = *std::move(shapes);
  const bool is_here = is_path(options.model);
  if (is_here) {
    ensure_passive_openmp(invocation.argv);
  } else if (Status wrong = check_daemon_options(options); !wrong.ok()) {
    return usage_failure(std::move(wrong));
  }
  SHOAL_ASSIGN_OR_RETURN(given.files, read_inputs(*files));
  if (is_here) return bench_in_process(options, given, invocation.console);
  auto pool = Pool::connect();
  if (!pool.ok()) return daemon_failure(pool.status());
  return measure(options, pool->client(), options.model, given, invocation.console);
}

}  // namespace
}  // namespace shoal::tool

int main(int argc, char** argv) {
  using namespace shoal::tool;
  CLI::App application("", "shoal");
  BenchOptions options;
  const std::array commands{
      Command{add_bench(application, options), [&](Invocation& invocation) { return bench(options, invocation); }}};
  return run_command_line(application, commands, argc, argv);
}

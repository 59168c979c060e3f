#include "tools/shoal/bench_options.hpp"

#include <CLI/CLI.hpp>
#include <limits>
#include <memory>

#include "tools/shoal/commands.hpp"

namespace shoal::tool {
namespace {

constexpr const char* kBenchAbout =
    "Measures a model under load: how long its requests take, and how many it answers. The model is one of the running daemon "
    "(NAME) or a checkpoint in this process (PATH).";
constexpr const char* kBenchMore =
    R"(Closed loop (--in-flight): so many requests are always under way; the next one is sent when one is answered. Open loop (--rate): requests
are sent at their times, whether others are answered or not. A request's time counts from the moment at which it should have been sent,
so a model that stalls is not flattered. Several loads are measured one after the other. Percentiles are those of answered requests, in
milliseconds, accurate to 0.5 %; queue and compute are parts of them, as the daemon reports them. Without --input, inputs are random numbers
in [0, 1), integers 0 or 1; the same for the same --seed. Ctrl-C ends the measurement, and what was measured is printed.

  shoal bench resnet --in-flight 1,2,4,8
  shoal bench resnet --rate 50,100,150,200 --duration 10 --plot latency.svg --csv latency.csv
  shoal bench bert --shape data=1x128 --shape types=1x128 --in-flight 4
  shoal bench models/resnet-50 --contexts 2 --in-flight 2 --json

Exit code 1 or 3 if no request was answered.)";

}  // namespace

CLI::App* add_bench(CLI::App& application, BenchOptions& options) {
  CLI::App* app = application.add_subcommand("bench", kBenchAbout);
  app->footer(kBenchMore);
  app->add_option("MODEL", options.model, "NAME in the daemon, or PATH or URL of a checkpoint, or builtin:identity")->required();
  CLI::Option* in_flight = app->add_option("--in-flight", options.in_flight,
                                           "closed loop: requests under way, one or several numbers (default 1,4,16)")
                               ->delimiter(',')
                               ->allow_extra_args(false)
                               ->take_all()
                               ->type_name("N[,N...]")
                               ->check(CLI::Range(1, 32'000).description(""));
  app->add_option("--rate", options.rates, "open loop: requests per second, one or several numbers")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->take_all()
      ->type_name("R[,R...]")
      ->check(CLI::Range(0.01, 1e6).description(""))
      ->check(not_nan)
      ->excludes(in_flight);
  app->add_flag("--even", options.is_even, "open loop: requests at equal distances, else at random (a Poisson process)");
  app->add_option("--duration", options.duration_s, "seconds that are measured, for each load (default 5)")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.01, 86'400.0).description(""))
      ->check(not_nan);
  app->add_option("--warmup", options.warmup_s, "seconds before them that do not count (default 1)")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.0, 3600.0).description(""))
      ->check(not_nan);
  app->add_option("--timeout", options.timeout_ms, "milliseconds for each request (default: the model's timeout_ms)")
      ->type_name("MS")
      ->check(CLI::Range(1, 24 * 3'600'000).description(""));
  app->add_option("--input", options.inputs, "what every request brings, instead of random numbers; once per input of the model")
      ->type_name("INPUT=FILE")
      ->allow_extra_args(false)
      ->take_all();
  app->add_option("--shape", options.shapes, "the shape of an input, such as data=1x3x224x224 (default: open sizes are 1)")
      ->type_name("INPUT=SHAPE")
      ->allow_extra_args(false)
      ->take_all();
  app->add_option("--seed", options.seed, "of random inputs and arrivals (default 1)")->type_name("N");
  app->add_option("--priority", options.priority, "of the requests; one above 0 needs a role")
      ->type_name("N")
      ->check(CLI::Range(-128, 127).description(""));
  app->add_option("--flow", options.flow,
                  "whom the requests are for, a number; only for users with the role of a gateway ([roles])")
      ->type_name("N");
  app->add_option("--model-version", options.version, "one of the versions that are served (default: the highest)")
      ->type_name("N")
      ->check(CLI::Range(std::uint64_t{1}, std::numeric_limits<std::uint64_t>::max()).description(""));
  app->add_option("--precision", options.precision, "with PATH: f32, f32-fast, bf16 or auto (default: as in model.toml)")
      ->check(CLI::IsMember({"f32", "f32-fast", "bf16", "auto"}));
  app->add_option("--threads", options.threads, "with PATH: cores per request (default: as in model.toml, else 1)")
      ->type_name("N")
      ->check(CLI::Range(1, 1024).description(""));
  app->add_option("--contexts", options.contexts, "with PATH: requests that run at the same time (default 1)")
      ->type_name("N")
      ->check(CLI::Range(1, 256).description(""));
  app->add_option("--csv", options.csv, "write the numbers, a line for each load")->type_name("FILE")->check(not_empty);
  app->add_option("--plot", options.plots, "draw times and answers over the load: a .png or .svg; may be given twice")
      ->type_name("FILE")
      ->allow_extra_args(false)
      ->take_all()
      ->check(not_empty);
  app->add_flag("--json", options.json, "print JSON");
  return app;
}

Command make_bench(CLI::App& application) {
  const auto options = std::make_shared<BenchOptions>();
  return {add_bench(application, *options), [](Invocation& invocation) { return become("shoal-measure", invocation.argv); }};
}

}  // namespace shoal::tool

// shoal-bench: the C++ part of tools/bench.
#include <CLI/CLI.hpp>
#include <exception>
#include <iostream>

#include "shm/base/errors.hpp"
#include "shoal/passive_openmp.hpp"
#include "tools/benchmarks/completion_bench.hpp"
#include "tools/benchmarks/kernel_bench.hpp"
#include "tools/benchmarks/model_bench.hpp"
#include "tools/benchmarks/overload_bench.hpp"
#include "tools/benchmarks/pool_bench.hpp"
#include "tools/benchmarks/reload_bench.hpp"
#include "tools/benchmarks/request_bench.hpp"
#include "tools/benchmarks/shapes_bench.hpp"
#include "tools/benchmarks/storm.hpp"
#include "tools/benchmarks/timeline.hpp"

namespace {

int report(const shoal::Status& status) {
  if (status.ok()) return 0;
  std::cerr << "shoal-bench: " << status.to_string() << "\n";
  return 1;
}

}  // namespace

int main(int argc, char** argv) try {
  shoal::ensure_passive_openmp(argv);
  CLI::App app{"The C++ part of tools/bench. Use tools/bench.", "shoal-bench"};
  app.require_subcommand(1);

  int rounds = 7;
  auto* roundtrip = app.add_subcommand("roundtrip", "no-op round trip, compared with a bare ZeroMQ echo");
  auto* pipelined = app.add_subcommand("pipelined", "requests per second, compared with a bare ZeroMQ broker");
  auto* syscalls = app.add_subcommand("syscalls", "system calls per request of client, supervisor and worker");
  auto* respawn = app.add_subcommand("respawn", "time from kill() to the first answer of the replacement");
  auto* pool =
      app.add_subcommand("pool", "a model in the pool, compared with the same in this process; two workers compared with one");
  for (auto* command : {roundtrip, pipelined, syscalls, respawn, pool}) command->add_option("--rounds", rounds);
  std::string respawn_model = "builtin:identity";
  respawn->add_option("--model", respawn_model, "a checkpoint with model.toml");
  std::string pool_model;
  pool->add_option("model", pool_model, "a checkpoint with model.toml")->required();

  auto* requests = app.add_subcommand("requests", "requests without computing, controlled by lines on standard input");

  shoal::bench::LoadOptions load_options;
  auto* load = app.add_subcommand("load", "submit zeros to a model of the daemon in $SHOAL_DIR");
  load->add_option("model", load_options.model)->required();
  load->add_option("--requests", load_options.requests);
  load->add_option("--window", load_options.window);
  load->add_option("--each-worker", load_options.each_worker);

  shoal::bench::CompletionOptions completion_options;
  auto* completions = app.add_subcommand("completions", "many requests of one thread to a model of the daemon in $SHOAL_DIR");
  completions->add_option("model", completion_options.model)->required();
  completions->add_option("--in-flight", completion_options.in_flight)->check(CLI::PositiveNumber);
  completions->add_option("--requests", completion_options.requests)->check(CLI::PositiveNumber);

  shoal::bench::StormOptions storm_options;
  auto* storm = app.add_subcommand("storm", "many clients of a model of the daemon in $SHOAL_DIR, while its workers are killed");
  storm->add_option("model", storm_options.model)->required();
  storm->add_option("--seconds", storm_options.seconds);
  storm->add_option("--threads", storm_options.threads);
  storm->add_option("--kill-every-ms", storm_options.kill_every_ms, "0 = no kills");

  shoal::bench::TimelineOptions timeline_options;
  auto* timeline = app.add_subcommand(
      "timeline", "the time of each answer of a model of the daemon in $SHOAL_DIR, to clients that never pause");
  timeline->add_option("model", timeline_options.model)->required();
  timeline->add_option("input", timeline_options.input, "an .npy file")->required();
  timeline->add_option("--seconds", timeline_options.seconds);
  timeline->add_option("--threads", timeline_options.threads)->check(CLI::PositiveNumber);
  timeline->add_option("--timeout-ms", timeline_options.timeout_ms)->check(CLI::PositiveNumber);

  shoal::bench::ModelBenchOptions model_options;
  auto* model = app.add_subcommand("model", "one model in this process, controlled by lines on standard input, or profiled");
  model->add_option("path", model_options.path)->required();
  model->add_option("--shape", model_options.shapes, "the shape of an input, once per input in any order: NAME=N,N,...")
      ->required()
      ->take_all();
  model->add_option("--device", model_options.device);
  model->add_option("--threads", model_options.threads);
  model->add_option("--precision", model_options.precision, "f32, or f32-fast, which allows Winograd");
  model->add_option("--tuning-ms", model_options.tuning_ms, "measure algorithms for at most this long if there is no record");
  shoal::bench::ProfileOptions profile_options;
  bool wants_profile = false;
  model->add_flag("--profile", wants_profile, "print the time of each step and its lower bounds of compute and memory");
  model->add_option("--runs", profile_options.runs, "with --profile: take the best of this many")->check(CLI::Range(1, 100'000));
  model->add_option("--inputs", profile_options.inputs, "with --profile: DIR/0.npy, DIR/1.npy, ... (default: zeros)");
  model->add_flag("--json", profile_options.json, "with --profile: print JSON");

  shoal::bench::KernelBenchOptions kernel_options;
  auto* kernels = app.add_subcommand("kernels", "operators on the device cpu, compared with their oracle kernels");
  kernels->add_option("--rounds", kernel_options.rounds)->check(CLI::PositiveNumber);
  kernels->add_option("--threads", kernel_options.threads)->check(CLI::PositiveNumber);

  shoal::bench::ShapesOptions shapes_options;
  auto* shapes = app.add_subcommand("shapes", "a cached shape, alone and while a stream of new shapes is compiled");
  shapes->add_option("path", shapes_options.path)->required();
  shapes->add_option("--input", shapes_options.input);
  shapes->add_option("--shapes", shapes_options.shapes);
  shapes->add_option("--window", shapes_options.window, "new shapes requested at the same time");
  shapes->add_option("--rounds", shapes_options.rounds);
  shapes->add_option("--lowest", shapes_options.lowest, "the smallest height and width of the new shapes");
  shapes->add_option("--cached", shapes_options.cached, "height and width of the cached shape");
  shapes->add_option("--contexts", shapes_options.contexts);
  shapes->add_option("--cache-mb", shapes_options.cache_mb);

  shoal::bench::OverloadOptions overload_options;
  auto* overload =
      app.add_subcommand("overload", "more requests than the pool can answer, with deadlines; a client beside one that floods");
  overload->add_option("path", overload_options.path, "a checkpoint with model.toml")->required();
  overload->add_option("--workers", overload_options.workers);
  overload->add_option("--seconds", overload_options.seconds, "of overload, all rounds together");
  overload->add_option("--rounds", overload_options.rounds)->check(CLI::PositiveNumber);
  overload->add_option("--factor", overload_options.factor, "offered requests, as a multiple of the capacity")
      ->check(CLI::PositiveNumber);
  overload->add_option("--deadline-ms", overload_options.deadline_ms)->check(CLI::PositiveNumber);
  std::string batching_path;
  int max_batch = 16, batching_rounds = 5;
  double batching_seconds = 1;
  auto* batching = app.add_subcommand("batching", "throughput of joined requests, compared with single ones");
  batching->add_option("path", batching_path, "a checkpoint with model.toml")->required();
  batching->add_option("--max-batch", max_batch);
  batching->add_option("--rounds", batching_rounds);
  batching->add_option("--seconds", batching_seconds, "per side and round");

  shoal::bench::ReloadOptions reload_options;
  auto* reload = app.add_subcommand("reload", "a client of one model while another model is reloaded");
  reload->add_option("path", reload_options.path, "a checkpoint with model.toml")->required();
  reload->add_option("--seconds", reload_options.seconds, "with reloads, all rounds together");
  reload->add_option("--rounds", reload_options.rounds)->check(CLI::PositiveNumber);
  reload->add_option("--every", reload_options.every_s, "seconds from the start of a reload to the start of the next");

  CLI11_PARSE(app, argc, argv);
  if (*roundtrip) return report(shoal::bench::bench_roundtrip(rounds));
  if (*pipelined) return report(shoal::bench::bench_pipelined(rounds));
  if (*syscalls) return report(shoal::bench::bench_syscalls(rounds));
  if (*respawn) return report(shoal::bench::bench_respawn(rounds, respawn_model));
  if (*pool) return report(shoal::bench::bench_pool(rounds, pool_model));
  if (*requests) return report(shoal::bench::serve_requests());
  if (*completions) return report(shoal::bench::bench_completions(completion_options));
  if (*load) return report(shoal::bench::bench_load(load_options));
  if (*kernels) return report(shoal::bench::bench_kernels(kernel_options));
  if (*shapes) return report(shoal::bench::bench_shapes(shapes_options));
  if (*overload) return report(shoal::bench::bench_overload(overload_options));
  if (*batching) return report(shoal::bench::bench_batching(batching_path, max_batch, batching_rounds, batching_seconds));
  if (*reload) return report(shoal::bench::bench_reload(reload_options));
  if (*timeline) return report(shoal::bench::run_timeline(timeline_options));
  if (*storm) return report(shoal::bench::run_storm(storm_options));
  if (wants_profile) return report(shoal::bench::profile_model(model_options, profile_options));
  return report(shoal::bench::serve_model(model_options));
} catch (const std::exception& error) {
  return report(shoal::internal_error("{}", error.what()));
}

#include "tools/benchmarks/pool_bench.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <nlohmann/json.hpp>

#include "shm/base/errors.hpp"
#include "shm/model/model_config.hpp"
#include "shoal/pool.hpp"
#include "tools/benchmarks/client.hpp"
#include "tools/benchmarks/daemon.hpp"
#include "tools/benchmarks/runnable_model.hpp"
#include "tools/benchmarks/syscall_count.hpp"
#include "tools/benchmarks/zmq_baseline.hpp"

namespace shoal::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kRoundRequests = 5000;
constexpr int kPipelinedRequests = 50'000;
constexpr int kPipelineWindow = 256;
constexpr int kBurst = 5;             // runs of one side in a row, as in a serving process; their median counts
constexpr int kRequestsOfWorker = 8;  // per round of throughput

double seconds_since(SteadyClock::time_point start) { return std::chrono::duration<double>(SteadyClock::now() - start).count(); }

Json summary(const std::vector<double>& values) {
  return {{"p50", percentile(values, 0.5)}, {"p99", percentile(values, 0.99)}, {"best", percentile(values, 0)}};
}

struct PoolRun {
  std::vector<double> round_trips_us;
  double seconds = 0;
};

// Keeps `window` requests of one loaned tensor unanswered.
Result<PoolRun> run_pool(Pool& pool, const std::string& model, const NamedTensor& input, int requests, int window) {
  PoolRun run;
  struct Flight {
    Prediction prediction;
    SteadyClock::time_point sent;
  };
  std::deque<Flight> flights;
  const auto started = SteadyClock::now();
  for (int submitted = 0, answered = 0; answered < requests; ++answered) {
    for (; submitted < requests && static_cast<int>(flights.size()) < window; ++submitted) {
      const auto now = SteadyClock::now();
      flights.push_back({pool.submit(model, {input}), now});
    }
    const Result<Tensors>& outputs = flights.front().prediction.get();
    if (!outputs.ok()) return outputs.status();
    run.round_trips_us.push_back(seconds_since(flights.front().sent) * 1e6);
    flights.pop_front();
  }
  run.seconds = seconds_since(started);
  return run;
}

Result<double> bytes_per_request(Pool& pool, std::int64_t floats) {
  constexpr int kRequests = 200;
  SHOAL_ASSIGN_OR_RETURN(const Tensor input, pool.loan(DType::kFloat32, {1, floats}));
  SHOAL_ASSIGN_OR_RETURN(const PoolRun warm, run_pool(pool, "identity", {"data", input}, 10, 1));
  SHOAL_ASSIGN_OR_RETURN(const DaemonStats before, read_stats(pool));
  SHOAL_ASSIGN_OR_RETURN(const DaemonStats between, read_stats(pool));
  SHOAL_ASSIGN_OR_RETURN(const PoolRun run, run_pool(pool, "identity", {"data", input}, kRequests, 1));
  SHOAL_ASSIGN_OR_RETURN(const DaemonStats after, read_stats(pool));
  const auto control = between.bytes_read - before.bytes_read;  // the bytes of the stats requests themselves
  return static_cast<double>(after.bytes_read - between.bytes_read - control) / kRequests;
}

// A shape that the model takes: batch 1 if the batch is open; 1x256 for the identity model, which takes any shape.
Shape batch_of_one(const TensorSpec& input) {
  Shape shape = input.shape;
  if (shape.rank() > 0 && shape[0] < 0) shape[0] = 1;
  return shape.rank() > 0 && shape.element_count() > 0 ? shape : Shape{1, 256};
}

// The median milliseconds of a burst. The first run refills the caches and does not count.
template <typename Run>
Result<double> burst_ms(Run run) {
  std::vector<double> times;
  for (int i = 0; i <= kBurst; ++i) {
    const auto started = SteadyClock::now();
    SHOAL_RETURN_IF_ERROR(run());
    if (i > 0) times.push_back(seconds_since(started) * 1e3);
  }
  return percentile(times, 0.5);
}

// Requests per second with two unanswered per worker, so that no worker waits for the client.
Result<double> throughput(Pool& pool, const NamedTensor& input, int workers) {
  SHOAL_ASSIGN_OR_RETURN(const PoolRun run, run_pool(pool, "model", input, kRequestsOfWorker * workers, 2 * workers));
  return kRequestsOfWorker * workers / run.seconds;
}

std::string shape_argument(const std::string& name, const Shape& shape) {
  std::string text = name;
  for (int i = 0; i < shape.rank(); ++i) text.append(i == 0 ? "=" : ",").append(std::to_string(shape[i]));
  return text;
}

void print(const Json& json) { std::cout << json.dump(1) << std::endl; }

}  // namespace

Status bench_roundtrip(int rounds) {
  SHOAL_ASSIGN_OR_RETURN(const Daemon daemon, Daemon::start({"identity=builtin:identity,workers=1"}));
  SHOAL_ASSIGN_OR_RETURN(Pool pool, daemon.connect());
  SHOAL_ASSIGN_OR_RETURN(const Tensor input, pool.loan(DType::kFloat32, {1, 256}));
  SHOAL_ASSIGN_OR_RETURN(const PoolRun warm, run_pool(pool, "identity", {"data", input}, 1000, 1));
  std::vector<double> pool_p50, bare_p50;
  Json rows = Json::array();
  for (int round = 0; round < rounds; ++round) {
    SHOAL_ASSIGN_OR_RETURN(const PoolRun run, run_pool(pool, "identity", {"data", input}, kRoundRequests, 1));
    const BaselineRun bare = run_baseline(daemon.directory(), {.requests = kRoundRequests});
    pool_p50.push_back(percentile(run.round_trips_us, 0.5));
    bare_p50.push_back(percentile(bare.round_trips_us, 0.5));
    rows.push_back({{"pool_us", summary(run.round_trips_us)}, {"bare_us", summary(bare.round_trips_us)}});
  }
  SHOAL_ASSIGN_OR_RETURN(const double small, bytes_per_request(pool, 256));
  SHOAL_ASSIGN_OR_RETURN(const double large, bytes_per_request(pool, 150'528));
  print({{"pool_p50_us", percentile(pool_p50, 0)},
         {"bare_p50_us", percentile(bare_p50, 0)},
         {"ratio", percentile(pool_p50, 0) / percentile(bare_p50, 0)},
         {"supervisor_bytes_per_request", {{"1KB", small}, {"600KB", large}}},
         {"rounds", rows}});
  return {};
}

Status bench_pipelined(int rounds) {
  SHOAL_ASSIGN_OR_RETURN(const Daemon daemon, Daemon::start({"identity=builtin:identity,workers=1"}));
  SHOAL_ASSIGN_OR_RETURN(Pool pool, daemon.connect());
  SHOAL_ASSIGN_OR_RETURN(const Tensor input, pool.loan(DType::kFloat32, {1, 256}));
  SHOAL_ASSIGN_OR_RETURN(const PoolRun warm,
                         run_pool(pool, "identity", {"data", input}, kPipelinedRequests / 5, kPipelineWindow));
  std::vector<double> pool_rate, bare_rate, ratios;
  for (int round = 0; round < rounds; ++round) {
    SHOAL_ASSIGN_OR_RETURN(const PoolRun run, run_pool(pool, "identity", {"data", input}, kPipelinedRequests, kPipelineWindow));
    const BaselineRun bare = run_baseline(daemon.directory(), {.requests = kPipelinedRequests, .window = kPipelineWindow});
    pool_rate.push_back(kPipelinedRequests / run.seconds);
    bare_rate.push_back(kPipelinedRequests / bare.seconds);
    ratios.push_back(pool_rate.back() / bare_rate.back());
  }
  print({{"pool_per_second", percentile(pool_rate, 0.5)},
         {"bare_per_second", percentile(bare_rate, 0.5)},
         {"ratio", percentile(ratios, 0.5)},
         {"best_of_each_ratio", percentile(pool_rate, 1) / percentile(bare_rate, 1)}});
  return {};
}

Status bench_syscalls(int rounds) {
  SHOAL_ASSIGN_OR_RETURN(const Daemon daemon, Daemon::start({"identity=builtin:identity,workers=1"}));
  SHOAL_ASSIGN_OR_RETURN(Pool pool, daemon.connect());
  SHOAL_ASSIGN_OR_RETURN(const Tensor input, pool.loan(DType::kFloat32, {1, 256}));
  SHOAL_ASSIGN_OR_RETURN(const PoolRun warm, run_pool(pool, "identity", {"data", input}, 1000, 1));
  SHOAL_ASSIGN_OR_RETURN(const DaemonStats stats, read_stats(pool));
  if (stats.worker_pids.empty()) return internal_error("no worker is ready");
  const std::pair<const char*, pid_t> processes[] = {
      {"client", ::getpid()}, {"supervisor", daemon.pid()}, {"worker", stats.worker_pids[0]}};
  Json result;
  for (const auto& [name, requests, window] :
       {std::tuple("one_at_a_time", kRoundRequests, 1), std::tuple("pipelined", kPipelinedRequests, kPipelineWindow)}) {
    std::vector<double> per_request[std::size(processes)];
    for (int round = 0; round < rounds; ++round) {
      std::vector<SyscallCount> counts;
      for (const auto& process : processes) {
        SHOAL_ASSIGN_OR_RETURN(SyscallCount count, SyscallCount::of(process.second));
        counts.push_back(std::move(count));
      }
      SHOAL_ASSIGN_OR_RETURN(const PoolRun run, run_pool(pool, "identity", {"data", input}, requests, window));
      for (std::size_t i = 0; i < std::size(processes); ++i)
        per_request[i].push_back(static_cast<double>(counts[i].value()) / requests);
    }
    for (std::size_t i = 0; i < std::size(processes); ++i) result[name][processes[i].first] = percentile(per_request[i], 0.5);
  }
  print({{"system_calls_per_request", result}});
  return {};
}

Status bench_respawn(int rounds, const std::string& model) {
  SHOAL_ASSIGN_OR_RETURN(const Daemon daemon, Daemon::start({"model=" + model + ",workers=1"}));
  SHOAL_ASSIGN_OR_RETURN(Pool pool, daemon.connect());
  SHOAL_ASSIGN_OR_RETURN(const ModelInfo info, pool.describe("model"));
  SHOAL_ASSIGN_OR_RETURN(const Tensor input, pool.loan(info.inputs[0].dtype, batch_of_one(info.inputs[0])));
  std::vector<double> answered_ms, quiet_ms;
  for (int round = 0; round < rounds; ++round) {
    const auto quiet = SteadyClock::now();
    if (const auto outputs = pool.predict("model", {{info.inputs[0].name, input}}); !outputs) return outputs.status();
    quiet_ms.push_back(seconds_since(quiet) * 1e3);
    SHOAL_ASSIGN_OR_RETURN(const DaemonStats stats, read_stats(pool));
    if (stats.worker_pids.empty()) return internal_error("no worker to kill in round {}", round);
    const auto killed = SteadyClock::now();
    ::kill(stats.worker_pids[0], SIGKILL);
    if (const auto outputs = pool.predict("model", {{info.inputs[0].name, input}}); !outputs) return outputs.status();
    answered_ms.push_back(seconds_since(killed) * 1e3);
    SHOAL_ASSIGN_OR_RETURN(const DaemonStats after, read_stats(pool));
    if (after.worker_pids == stats.worker_pids)
      return internal_error("the answer of round {} did not come from a replacement", round);
  }
  print({{"kill_to_answer_ms", summary(answered_ms)}, {"quiet_ms", summary(quiet_ms)}, {"kills", rounds}});
  return {};
}

Status bench_pool(int rounds, const std::string& model) {
  SHOAL_ASSIGN_OR_RETURN(const Daemon one, Daemon::start({"model=" + model + ",workers=1"}));
  SHOAL_ASSIGN_OR_RETURN(const Daemon two, Daemon::start({"model=" + model + ",workers=2"}));
  SHOAL_ASSIGN_OR_RETURN(Pool pool, one.connect());
  SHOAL_ASSIGN_OR_RETURN(Pool pool_of_two, two.connect());
  SHOAL_ASSIGN_OR_RETURN(const ModelInfo info, pool.describe("model"));
  const TensorSpec& spec = info.inputs[0];
  const Shape shape = batch_of_one(spec);
  SHOAL_ASSIGN_OR_RETURN(const Tensor input, pool.loan(spec.dtype, shape));
  SHOAL_ASSIGN_OR_RETURN(const Tensor input_of_two, pool_of_two.loan(spec.dtype, shape));
  SHOAL_ASSIGN_OR_RETURN(RunnableModel in_process,
                         RunnableModel::load({.path = model,
                                              .shapes = {shape_argument(spec.name, shape)},
                                              .tuning_ms = ModelConfig{}.tuning_ms}));  // uses the daemon's record

  std::vector<double> in_process_ms, pool_ms, cost, one_per_s, two_per_s, gain;
  for (int round = -1; round < rounds; ++round) {
    SHOAL_ASSIGN_OR_RETURN(const double alone, burst_ms([&] { return in_process.run(); }));
    SHOAL_ASSIGN_OR_RETURN(const double pooled, burst_ms([&] { return pool.predict("model", {{spec.name, input}}).status(); }));
    SHOAL_ASSIGN_OR_RETURN(const double by_one, throughput(pool, {spec.name, input}, 1));
    SHOAL_ASSIGN_OR_RETURN(const double by_two, throughput(pool_of_two, {spec.name, input_of_two}, 2));
    if (round < 0) continue;  // warm-up
    in_process_ms.push_back(alone);
    pool_ms.push_back(pooled);
    cost.push_back(pooled / alone);
    one_per_s.push_back(by_one);
    two_per_s.push_back(by_two);
    gain.push_back(by_two / by_one);
  }
  print({{"latency",
          {{"in_process_ms", percentile(in_process_ms, 0.5)},
           {"pool_ms", percentile(pool_ms, 0.5)},
           {"ratio", percentile(cost, 0.5)},
           {"best_ratio", percentile(pool_ms, 0) / percentile(in_process_ms, 0)}}},
         {"throughput",
          {{"one_worker_per_s", percentile(one_per_s, 0.5)},
           {"two_workers_per_s", percentile(two_per_s, 0.5)},
           {"ratio", percentile(gain, 0.5)},
           {"best_ratio", percentile(two_per_s, 1) / percentile(one_per_s, 1)}}}});
  return {};
}

Status bench_load(const LoadOptions& options) {
  SHOAL_ASSIGN_OR_RETURN(Pool pool, Pool::connect());
  SHOAL_ASSIGN_OR_RETURN(const ModelInfo info, pool.describe(options.model));
  SHOAL_ASSIGN_OR_RETURN(const Tensor input, pool.loan(info.inputs[0].dtype, batch_of_one(info.inputs[0])));
  std::vector<double> total_ms, compute_ms;
  std::deque<Prediction> flights;
  const auto each_has_enough = [&]() -> Result<bool> {
    if (options.each_worker == 0) return true;
    SHOAL_ASSIGN_OR_RETURN(const std::string text, pool.stats());
    const auto stats = Json::parse(text);
    for (const auto& model : stats["models"]) {
      if (model["name"] != options.model) continue;
      for (const auto& worker : model["workers"]) {
        if (worker["answered"] < options.each_worker) return false;
      }
    }
    return true;
  };
  for (bool enough = false; !enough;) {
    for (int submitted = 0, answered = 0; answered < options.requests; ++answered) {
      for (; submitted < options.requests && static_cast<int>(flights.size()) < options.window; ++submitted) {
        flights.push_back(pool.submit(options.model, {{info.inputs[0].name, input}}));
      }
      const Outcome& outcome = flights.front().outcome();
      if (!outcome.outputs) return outcome.outputs.status();
      compute_ms.push_back(static_cast<double>(outcome.compute_time.count()) / 1e6);
      total_ms.push_back(static_cast<double>((outcome.compute_time + outcome.queue_time).count()) / 1e6);
      flights.pop_front();
    }
    SHOAL_ASSIGN_OR_RETURN(enough, each_has_enough());
  }
  print({{"requests", compute_ms.size()}, {"compute_ms", summary(compute_ms)}, {"queue_and_compute_ms", summary(total_ms)}});
  return {};
}

}  // namespace shoal::bench

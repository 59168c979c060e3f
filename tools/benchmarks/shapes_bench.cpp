#include "tools/benchmarks/shapes_bench.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "shm/base/errors.hpp"
#include "tools/benchmarks/daemon.hpp"
#include "tools/shoal/process_memory.hpp"

namespace shoal::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;
using Milliseconds = std::vector<double>;

constexpr const char* kShapesModel = "m";
constexpr auto kQuietTime = std::chrono::seconds(4);

double since_ms(SteadyClock::time_point start) {
  return std::chrono::duration<double, std::milli>(SteadyClock::now() - start).count();
}

nlohmann::ordered_json time_summary(Milliseconds times) {
  std::ranges::sort(times);
  const auto at = [&](double fraction) {
    return times[static_cast<std::size_t>(fraction * static_cast<double>(times.size() - 1))];
  };
  return {{"requests", times.size()}, {"p50_ms", at(0.5)}, {"p99_ms", at(0.99)}, {"most_ms", times.back()}};
}

Result<Tensor> noise(std::int64_t height, std::int64_t width) {
  SHOAL_ASSIGN_OR_RETURN(Tensor tensor, Tensor::create(DType::kFloat32, Shape{1, 3, height, width}));
  std::mt19937 generator(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::ranges::generate(tensor.values<float>(), [&] { return uniform(generator); });
  return tensor;
}

/// Sends requests of one shape, one after the other, on its own thread until stop().
class Asker {
 public:
  Asker(Pool& pool, std::string input, Tensor tensor)
      : thread_([this, &pool, input = std::move(input), tensor = std::move(tensor)](std::stop_token stopping) {
          while (!stopping.stop_requested() && status_.ok()) {
            const auto start = SteadyClock::now();
            status_ = pool.predict(kShapesModel, {{input, tensor}}).status();
            times_.push_back(since_ms(start));
          }
        }) {}
  /// Adds the times to `times`.
  Status stop(Milliseconds& times) {
    thread_.request_stop();
    thread_.join();
    times.insert(times.end(), times_.begin(), times_.end());
    return status_;
  }

 private:
  Status status_;
  Milliseconds times_;
  std::jthread thread_;  // last, because it uses the other members
};

/// Sends requests of new sizes: (lowest, lowest), (lowest, lowest + 1) ...
class NewShapes {
 public:
  explicit NewShapes(const ShapesOptions& options) : options_(options) {}

  /// Sends `count` more, `window` at a time.
  Status ask(Pool& pool, int count, Milliseconds& times) {
    std::deque<std::pair<SteadyClock::time_point, Prediction>> under_way;
    for (int i = 0; i < count || !under_way.empty(); ++i) {
      if (i >= count || static_cast<int>(under_way.size()) == options_.window) {
        SHOAL_RETURN_IF_ERROR(under_way.front().second.get().status());
        times.push_back(since_ms(under_way.front().first));
        under_way.pop_front();
      }
      if (i >= count) continue;
      const int columns = 25;
      SHOAL_ASSIGN_OR_RETURN(Tensor tensor, noise(options_.lowest + next_ / columns, options_.lowest + next_ % columns));
      ++next_;
      under_way.emplace_back(SteadyClock::now(), pool.submit(kShapesModel, {{options_.input, tensor}}));
    }
    return {};
  }

 private:
  const ShapesOptions& options_;
  int next_ = 0;
};

Result<nlohmann::json> worker_of(Pool& pool) {
  SHOAL_ASSIGN_OR_RETURN(const std::string text, pool.stats());
  return nlohmann::json::parse(text)["models"][0]["workers"][0];
}

std::string model_argument(const ShapesOptions& options) {
  return format("{}={},contexts={},cache_mb={},timeout_ms=0,input={}:?x3x?x?,shape={}:1x3x{}x{}", kShapesModel, options.path,
                options.contexts, options.cache_mb, options.input, options.input, options.cached, options.cached);
}

}  // namespace

Status bench_shapes(const ShapesOptions& options) {
  if (options.rounds < 1 || options.shapes < options.rounds || options.window < 1) {
    return invalid_argument("{} new shapes in {} rounds, {} at the same time: each round needs at least one", options.shapes,
                            options.rounds, options.window);
  }
  SHOAL_ASSIGN_OR_RETURN(const Daemon daemon, Daemon::start({model_argument(options)}));
  SHOAL_ASSIGN_OR_RETURN(Pool pool, daemon.connect());
  SHOAL_ASSIGN_OR_RETURN(Pool other_pool, daemon.connect());
  SHOAL_ASSIGN_OR_RETURN(const Tensor cached, noise(options.cached, options.cached));
  SHOAL_ASSIGN_OR_RETURN(const nlohmann::json first, worker_of(pool));
  const pid_t pid = first["pid"];
  for (int i = 0; i < 20; ++i) SHOAL_RETURN_IF_ERROR(pool.predict(kShapesModel, {{options.input, cached}}).status());

  NewShapes new_shapes(options);
  Milliseconds quiet, shared, busy, fresh, ignored;
  auto memory = nlohmann::json::array();
  for (int round = 0; round < options.rounds; ++round) {
    {
      Asker asker(pool, options.input, cached);
      std::this_thread::sleep_for(kQuietTime);
      SHOAL_RETURN_IF_ERROR(asker.stop(quiet));
    }
    {
      Asker asker(pool, options.input, cached), second(other_pool, options.input, cached);
      std::this_thread::sleep_for(kQuietTime);
      SHOAL_RETURN_IF_ERROR(second.stop(ignored));
      SHOAL_RETURN_IF_ERROR(asker.stop(shared));
    }
    Asker asker(pool, options.input, cached);
    SHOAL_RETURN_IF_ERROR(new_shapes.ask(other_pool, options.shapes / options.rounds, fresh));
    SHOAL_RETURN_IF_ERROR(asker.stop(busy));
    if (const auto now = tool::read_process_memory(pid)) memory.push_back(static_cast<double>(now->private_bytes) / 1e6);
  }
  SHOAL_ASSIGN_OR_RETURN(const nlohmann::json last, worker_of(pool));
  const auto quiet_summary = time_summary(quiet), busy_summary = time_summary(busy);
  std::cout << nlohmann::ordered_json{{"alone", quiet_summary},
                                      {"beside another client of a cached shape", time_summary(shared)},
                                      {"while new shapes are compiled", busy_summary},
                                      {"p99_ratio", busy_summary["p99_ms"].get<double>() / quiet_summary["p99_ms"].get<double>()},
                                      {"new shapes", time_summary(fresh)},
                                      {"worker_private_mb_after_each_round", memory},
                                      {"programs", last["programs"]}}
                   .dump(1)
            << std::endl;
  return {};
}

}  // namespace shoal::bench

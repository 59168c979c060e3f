#include "tools/benchmarks/storm.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "shm/base/errors.hpp"
#include "shoal/pool.hpp"

namespace shoal::bench {
namespace {

using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;

struct Counts {
  std::atomic<std::uint64_t> submitted{0}, answered{0}, wrong{0}, failed{0}, kills{0};
};

// The request that a client thread repeats, and its answer before the kills began.
struct Question {
  Tensors inputs;
  std::vector<std::vector<std::byte>> answer;
};

Result<Question> prepare(Pool& pool, const ModelInfo& info, unsigned seed) {
  Question question;
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (const TensorSpec& spec : info.inputs) {
    Shape shape = spec.shape;
    if (shape.rank() > 0 && shape[0] < 0) shape[0] = 1;
    SHOAL_ASSIGN_OR_RETURN(Tensor tensor, pool.loan(spec.dtype, shape));
    if (spec.dtype != DType::kFloat32)
      return unimplemented("the storm needs a float32 model; input {} is {}", spec.name, dtype_name(spec.dtype));
    std::ranges::generate(tensor.values<float>(), [&] { return uniform(generator); });
    question.inputs.push_back({spec.name, tensor});
  }
  SHOAL_ASSIGN_OR_RETURN(const Tensors outputs, pool.predict(info.name, question.inputs));
  for (const NamedTensor& output : outputs) {
    const auto bytes = output.tensor.view().bytes();
    question.answer.emplace_back(bytes.begin(), bytes.end());
  }
  return question;
}

bool same(const Tensors& outputs, const std::vector<std::vector<std::byte>>& answer) {
  return std::ranges::equal(outputs, answer, [](const NamedTensor& output, const auto& bytes) {
    return std::ranges::equal(output.tensor.view().bytes(), bytes);
  });
}

void ask_until(SteadyClock::time_point end, Pool& pool, const std::string& model, const Question& question, Counts& counts) {
  while (SteadyClock::now() < end) {
    ++counts.submitted;
    const Prediction prediction = pool.submit(model, question.inputs);
    if (const Result<Tensors>& outputs = prediction.get(); !outputs) {
      if (counts.failed++ == 0) std::cerr << "\n" << outputs.status().to_string() << "\n";
    } else if (!same(*outputs, question.answer)) {
      ++counts.wrong;
    }
    ++counts.answered;
  }
}

Result<nlohmann::json> model_stats(Pool& pool, const std::string& model) {
  SHOAL_ASSIGN_OR_RETURN(const std::string text, pool.stats());
  const auto stats = nlohmann::json::parse(text);
  for (const auto& entry : stats["models"]) {
    if (entry["name"] == model) return entry;
  }
  return not_found("the daemon does not serve model '{}'", model);
}

void kill_one(Pool& watcher, const std::string& model, std::mt19937& generator, Counts& counts) {
  const auto stats = model_stats(watcher, model);
  if (!stats) return;
  std::vector<pid_t> pids;
  for (const auto& worker : (*stats)["workers"]) {
    if (worker["state"] == "ready") pids.push_back(worker["pid"]);
  }
  if (pids.empty()) return;
  if (::kill(pids[std::uniform_int_distribution<std::size_t>(0, pids.size() - 1)(generator)], SIGKILL) == 0) ++counts.kills;
}

void print_live_line(const Counts& counts, double seconds_left) {
  std::fprintf(stderr, "\r\033[K  %8lu answers   %4lu kills   %lu lost   %lu wrong   %.0f s left", counts.answered.load(),
               counts.kills.load(), counts.failed.load(), counts.wrong.load(), std::max(0.0, seconds_left));
}

}  // namespace

Status run_storm(const StormOptions& options) {
  SHOAL_ASSIGN_OR_RETURN(Pool pool, Pool::connect());
  SHOAL_ASSIGN_OR_RETURN(Pool watcher, Pool::connect({.arena_limit_bytes = 0}));
  SHOAL_ASSIGN_OR_RETURN(const ModelInfo info, pool.describe(options.model));
  std::vector<Question> questions;
  for (int i = 0; i < options.threads; ++i) {
    SHOAL_ASSIGN_OR_RETURN(Question question, prepare(pool, info, static_cast<unsigned>(i)));
    questions.push_back(std::move(question));
  }

  Counts counts;
  SHOAL_ASSIGN_OR_RETURN(const nlohmann::json before, model_stats(watcher, options.model));
  const auto started = SteadyClock::now();
  const auto end = started + std::chrono::duration_cast<SteadyClock::duration>(std::chrono::duration<double>(options.seconds));
  {
    std::vector<std::jthread> clients;
    for (const Question& question : questions)
      clients.emplace_back([&] { ask_until(end, pool, options.model, question, counts); });
    std::mt19937 generator(1);
    const bool live = ::isatty(STDERR_FILENO);
    auto next_kill = started + std::chrono::milliseconds(options.kill_every_ms);
    for (auto now = started; now < end; now = SteadyClock::now()) {
      if (options.kill_every_ms > 0 && now >= next_kill) {
        kill_one(watcher, options.model, generator, counts);
        next_kill += std::chrono::milliseconds(options.kill_every_ms);
      }
      if (live) print_live_line(counts, std::chrono::duration<double>(end - now).count());
      std::this_thread::sleep_until(std::min({next_kill > now ? next_kill : now + 100ms, now + 100ms, end}));
    }
  }
  const double seconds = std::chrono::duration<double>(SteadyClock::now() - started).count();
  if (::isatty(STDERR_FILENO)) print_live_line(counts, 0), std::fputc('\n', stderr);
  SHOAL_ASSIGN_OR_RETURN(const nlohmann::json after, model_stats(watcher, options.model));
  const auto grown = [&](const char* key) {
    return after["counts"].value(key, std::uint64_t{0}) - before["counts"].value(key, std::uint64_t{0});
  };
  const std::uint64_t lost = counts.submitted - counts.answered + counts.failed;
  std::cout << nlohmann::ordered_json{{"answers", counts.answered.load()},
                                      {"per_second", static_cast<double>(counts.answered) / seconds},
                                      {"kills", counts.kills.load()},
                                      {"lost", lost},
                                      {"wrong", counts.wrong.load()},
                                      {"kills_that_hit_a_running_request", grown("kills_while_running_and_rerun")},
                                      {"rerun", grown("rerun")}}
                   .dump(1)
            << std::endl;
  if (lost != 0 || counts.wrong != 0)
    return internal_error("{} answers lost, {} wrong, of {}", lost, counts.wrong.load(), counts.submitted.load());
  return {};
}

}  // namespace shoal::bench

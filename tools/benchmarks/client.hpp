// A client of a benchmark, and what is said of the times of its answers.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "shoal/result.hpp"
#include "tools/benchmarks/daemon.hpp"

namespace shoal::bench {

using SteadyClock = std::chrono::steady_clock;

double ms(SteadyClock::duration time);
SteadyClock::duration duration_of(double seconds);

/// 0.5: the median. 0 of no values.
double percentile(std::vector<double> values, double fraction);
/// {"requests", "p50_ms", "p99_ms"}
nlohmann::ordered_json latency(const std::vector<double>& times_ms);

/// One client, and the one question it asks: zeros of the smallest shape of the model's first input.
class Client {
 public:
  /// Asks once, too.
  static Result<Client> connect(const Daemon& daemon, const std::string& model);
  Prediction ask(SubmitOptions options = {}) { return pool_.submit(model_, {input_}, options); }

 private:
  Client(Pool pool, std::string model, NamedTensor input)
      : pool_(std::move(pool)), model_(std::move(model)), input_(std::move(input)) {}
  Pool pool_;
  std::string model_;
  NamedTensor input_;
};

/// Keeps `window` requests under way until `end`. Returns how many were answered by then.
Result<std::uint64_t> keep_busy(Client& client, int window, SteadyClock::time_point end);
/// One request after the other until `end`.
Status ask_singly(Client& client, SteadyClock::time_point end, std::vector<double>& times_ms);

}  // namespace shoal::bench

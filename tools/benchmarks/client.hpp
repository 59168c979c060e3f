// A benchmark's client, and the summary of its latencies.
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

/// share 0.5: the median. 0 if there are no values.
double percentile(std::vector<double> values, double fraction);
/// {"requests", "p50_ms", "p99_ms"}
nlohmann::ordered_json latency(const std::vector<double>& times_ms);

/// Of this process.
std::size_t thread_count();
/// A loan of zeros for a model's input, of the smallest shape.
Result<Tensor> zeros(const shoal::Client& client, const TensorSpec& input);

/// A client that always sends the same request: zeros of the smallest shape of the model's first input.
class Client {
 public:
  /// Also sends one request.
  static Result<Client> connect(const Daemon& daemon, const std::string& model);
  Prediction ask(SubmitOptions options = {}) { return pool_.submit(model_, {input_}, options); }

 private:
  Client(Pool pool, std::string model, NamedTensor input)
      : pool_(std::move(pool)), model_(std::move(model)), input_(std::move(input)) {}
  Pool pool_;
  std::string model_;
  NamedTensor input_;
};

/// Keeps `window` requests unanswered until `end`. Returns how many were answered by then.
Result<std::uint64_t> keep_busy(Client& client, int window, SteadyClock::time_point end);
/// Sends one request after the other until `end`.
Status ask_singly(Client& client, SteadyClock::time_point end, std::vector<double>& times_ms);

}  // namespace shoal::bench

#include "tools/benchmarks/timeline.hpp"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "shm/base/errors.hpp"
#include "shm/tensor/npy.hpp"
#include "shoal/pool.hpp"
#include "tools/benchmarks/client.hpp"

namespace shoal::bench {
namespace {

struct Record {
  SteadyClock::time_point sent;
  SteadyClock::duration wait;
  const char* outcome;
};

// What one thread saw.
struct Log {
  std::vector<Record> records;
  std::map<std::string, int> errors;
};

std::vector<float> values_of(const Tensors& outputs) {
  const auto values = outputs.front().tensor.values<float>();
  return {values.begin(), values.end()};
}

void ask_until(SteadyClock::time_point end, Pool& pool, const Tensors& inputs, const std::vector<float>& expected,
               const TimelineOptions& options, Log& log) {
  for (auto sent = SteadyClock::now(); sent < end; sent = SteadyClock::now()) {
    const Prediction prediction = pool.submit(options.model, inputs, {.timeout = std::chrono::milliseconds(options.timeout_ms)});
    const Result<Tensors>& outputs = prediction.get();
    const auto wait = SteadyClock::now() - sent;
    if (!outputs) ++log.errors[outputs.status().to_string()];
    log.records.push_back({sent, wait, !outputs ? "error" : values_of(*outputs) == expected ? "ok" : "wrong"});
  }
}

}  // namespace

Status run_timeline(const TimelineOptions& options) {
  SHOAL_ASSIGN_OR_RETURN(Pool pool, Pool::connect());
  SHOAL_ASSIGN_OR_RETURN(const ModelInfo info, pool.describe(options.model));
  SHOAL_ASSIGN_OR_RETURN(Tensor from_file, read_npy(options.input));
  const Tensors inputs{{info.inputs.front().name, std::move(from_file)}};
  SHOAL_ASSIGN_OR_RETURN(const Tensors first, pool.predict(options.model, inputs));
  const std::vector<float> expected = values_of(first);
  std::cout << nlohmann::json{{"output", expected}}.dump() << std::endl;

  std::vector<Log> logs(static_cast<std::size_t>(options.threads));
  {
    const auto end = SteadyClock::now() + duration_of(options.seconds);
    std::vector<std::jthread> clients;
    for (Log& log : logs) clients.emplace_back([&] { ask_until(end, pool, inputs, expected, options, log); });
  }
  auto requests = nlohmann::json::array();
  auto errors = nlohmann::json::object();
  for (const Log& log : logs) {
    for (const Record& record : log.records)
      requests.push_back(
          {std::chrono::duration<double>(record.sent.time_since_epoch()).count(), ms(record.wait), record.outcome});
    for (const auto& [message, count] : log.errors) errors[message] = errors.value(message, 0) + count;
  }
  std::cout << nlohmann::json{{"requests", std::move(requests)}, {"errors", std::move(errors)}}.dump() << std::endl;
  return {};
}

}  // namespace shoal::bench

#include "tools/benchmarks/client.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "shm/base/errors.hpp"

namespace shoal::bench {

double ms(SteadyClock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); }
SteadyClock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<SteadyClock::duration>(std::chrono::duration<double>(seconds));
}

double percentile(std::vector<double> values, double fraction) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[static_cast<std::size_t>(fraction * static_cast<double>(values.size() - 1))];
}

nlohmann::ordered_json latency(const std::vector<double>& times_ms) {
  return {{"requests", times_ms.size()}, {"p50_ms", percentile(times_ms, 0.5)}, {"p99_ms", percentile(times_ms, 0.99)}};
}

std::size_t thread_count() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}

Result<Tensor> zeros(const shoal::Client& client, const TensorSpec& input) {
  Shape shape = input.shape.is_known() ? input.shape : Shape();
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] < 0) shape[axis] = 1;
  }
  SHOAL_ASSIGN_OR_RETURN(Tensor tensor, client.loan(input.dtype, shape));
  std::ranges::fill(tensor.view().bytes(), std::byte{0});
  return tensor;
}

Result<Client> Client::connect(const Daemon& daemon, const std::string& model) {
  SHOAL_ASSIGN_OR_RETURN(Pool pool, daemon.connect());
  SHOAL_ASSIGN_OR_RETURN(const ModelInfo info, pool.describe(model));
  SHOAL_ASSIGN_OR_RETURN(Tensor input, zeros(pool.client(), info.inputs[0]));
  Client client(std::move(pool), model, {info.inputs[0].name, std::move(input)});
  SHOAL_RETURN_IF_ERROR(client.ask().get().status());
  return client;
}

Result<std::uint64_t> keep_busy(Client& client, int window, SteadyClock::time_point end) {
  std::vector<Prediction> flights;
  for (int i = 0; i < window; ++i) flights.push_back(client.ask());
  std::uint64_t answers = 0;
  for (std::size_t next = 0;; next = (next + 1) % flights.size()) {
    SHOAL_RETURN_IF_ERROR(flights[next].get().status());
    if (SteadyClock::now() >= end) return answers;
    ++answers;
    flights[next] = client.ask();
  }
}

Status ask_singly(Client& client, SteadyClock::time_point end, std::vector<double>& times_ms) {
  while (SteadyClock::now() < end) {
    const auto begin = SteadyClock::now();
    SHOAL_RETURN_IF_ERROR(client.ask().get().status());
    times_ms.push_back(ms(SteadyClock::now() - begin));
  }
  return {};
}

}  // namespace shoal::bench

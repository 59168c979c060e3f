#include "tools/benchmarks/request_bench.hpp"

#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shoal/engine.hpp"
#include "shoal/pool.hpp"
#include "tools/benchmarks/client.hpp"

namespace shoal::bench {
namespace {

constexpr std::int64_t kElements = 4;

Result<double> median_us(const shoal::Client& client, std::string_view model, int count) {
  SHOAL_ASSIGN_OR_RETURN(const Tensor input, Tensor::create(DType::kFloat32, Shape{1, kElements}));
  std::vector<double> times_us;
  for (int i = 0; i < count; ++i) {
    const std::uint64_t begin_ns = monotonic_now_ns();
    SHOAL_RETURN_IF_ERROR(client.predict(model, {{"data", input}}).status());
    times_us.push_back(static_cast<double>(monotonic_now_ns() - begin_ns) / 1e3);
  }
  return percentile(std::move(times_us), 0.5);
}

}  // namespace

Status serve_requests() {
  SHOAL_ASSIGN_OR_RETURN(const Engine engine, Engine::load("builtin:identity"));
  std::optional<Pool> pool;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string what;
    int count = 0;
    if (!(words >> what >> count) || count < 1 || (what != "engine" && what != "pool"))
      return invalid_argument("'{}' is none of: engine N, pool N", line);
    if (what == "pool" && !pool) {
      SHOAL_ASSIGN_OR_RETURN(pool, Pool::connect());
    }
    SHOAL_ASSIGN_OR_RETURN(const double us,
                           what == "pool" ? median_us(*pool, "echo", count) : median_us(engine.client(), "", count));
    std::cout << us << std::endl;
  }
  return {};
}

}  // namespace shoal::bench

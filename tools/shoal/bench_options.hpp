// The command line of `shoal bench`, which shoal and shoal-measure share: shoal prints the help, shoal-measure does the work.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace shoal::tool {

struct BenchOptions {
  std::string model, csv, precision;
  std::vector<std::string> inputs, shapes, plots;
  std::vector<std::uint32_t> in_flight;  ///< closed loop: the loads
  std::vector<double> rates;             ///< open loop: the loads
  bool is_even = false;                  ///< open loop: arrivals at equal distances, else at random
  std::uint64_t seed = 1, version = 0, flow = 0;
  double duration_s = 5, warmup_s = 1;
  std::int64_t timeout_ms = 0;
  int priority = 0, threads = 0, contexts = 0;
  bool json = false;
};

/// Adds the command, which fills `options`.
CLI::App* add_bench(CLI::App& application, BenchOptions& options);

}  // namespace shoal::tool

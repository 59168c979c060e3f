#include "tools/benchmarks/reload_bench.hpp"

#include <algorithm>
#include <iostream>
#include <thread>
#include <vector>

#include "shm/base/errors.hpp"
#include "tools/benchmarks/client.hpp"

namespace shoal::bench {
namespace {

constexpr const char* kWatched = "watched";
constexpr const char* kReloaded = "reloaded";

Status reload_until(Pool& admin, SteadyClock::time_point end, double every_s, std::vector<double>& reloads_ms) {
  for (auto next = SteadyClock::now(); next < end; next = std::max(next + duration_of(every_s), SteadyClock::now())) {
    std::this_thread::sleep_until(next);
    const auto begin = SteadyClock::now();
    SHOAL_RETURN_IF_ERROR(admin.reload(kReloaded, "", true).status());
    reloads_ms.push_back(ms(SteadyClock::now() - begin));
  }
  return {};
}

}  // namespace

Status bench_reload(const ReloadOptions& options) {
  const auto argument = [&](const char* name) { return format("{}={},timeout_ms=0", name, options.path); };
  SHOAL_ASSIGN_OR_RETURN(const Daemon daemon, Daemon::start({argument(kWatched), argument(kReloaded)}));
  SHOAL_ASSIGN_OR_RETURN(Client client, Client::connect(daemon, kWatched));
  SHOAL_ASSIGN_OR_RETURN(Client other, Client::connect(daemon, kReloaded));
  SHOAL_ASSIGN_OR_RETURN(Pool admin, daemon.connect());
  std::vector<double> quiet_ms, reloading_ms, moved, reloads_ms;
  for (int round = -1; round < options.rounds; ++round) {
    const auto measure = [&](bool reloads, std::vector<double>& times_ms) -> Status {
      const auto end = SteadyClock::now() + duration_of(options.seconds / options.rounds);
      Status of_other, of_reloads;
      {
        const std::jthread load([&] { of_other = keep_busy(other, 1, end).status(); });
        const std::jthread reloading([&] {
          if (reloads) of_reloads = reload_until(admin, end, options.every_s, reloads_ms);
        });
        SHOAL_RETURN_IF_ERROR(ask_singly(client, end, times_ms));
      }
      SHOAL_RETURN_IF_ERROR(of_other);
      return of_reloads;
    };
    std::vector<double> quiet, reloading;
    SHOAL_RETURN_IF_ERROR(measure(false, quiet));
    SHOAL_RETURN_IF_ERROR(measure(true, reloading));
    if (round < 0) {  // warm-up
      reloads_ms.clear();
      continue;
    }
    moved.push_back(percentile(reloading, 0.99) / percentile(quiet, 0.99));
    quiet_ms.insert(quiet_ms.end(), quiet.begin(), quiet.end());
    reloading_ms.insert(reloading_ms.end(), reloading.begin(), reloading.end());
  }
  std::cout << nlohmann::ordered_json{{"reloads", reloads_ms.size()},
                                      {"reload_ms", {{"p50", percentile(reloads_ms, 0.5)}, {"max", percentile(reloads_ms, 1)}}},
                                      {"quiet", latency(quiet_ms)},
                                      {"beside_reloads", latency(reloading_ms)},
                                      {"p99_moved_by_reloads", percentile(moved, 0.5)}}
                   .dump(1)
            << std::endl;
  return {};
}

}  // namespace shoal::bench

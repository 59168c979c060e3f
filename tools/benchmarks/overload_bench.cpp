#include "tools/benchmarks/overload_bench.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <iostream>
#include <random>
#include <thread>
#include <vector>

#include "shm/base/errors.hpp"
#include "tools/benchmarks/client.hpp"

namespace shoal::bench {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::ordered_json;

constexpr const char* kModel = "m";
constexpr auto kGrace = 20ms;            // an answer that is late by this much still counts
constexpr auto kLook = 1ms;              // how often a client looks for answers, which is the precision of its times
constexpr auto kRareLook = 20ms;         // for a client whose times do not matter: looking at a long queue takes time from others
constexpr int kWindow = 8;               // unanswered requests per worker: enough to keep it busy, and some waiting
constexpr double kCapacityShare = 0.25;  // the share of a round in which the capacity is measured

Result<double> throughput(Client& client, int window, double seconds) {
  const auto begin = SteadyClock::now();
  SHOAL_ASSIGN_OR_RETURN(const std::uint64_t answers, keep_busy(client, window, begin + duration_of(seconds)));
  return static_cast<double>(answers) / seconds;
}

/// The results of requests that were offered at a rate.
struct Offered {
  std::uint64_t sent = 0, good = 0, late = 0;  // late: OK, but after deadline and grace
  std::uint64_t good_by_end = 0;               // answered while requests were still offered
  std::array<std::uint64_t, 14> failed{};      // by StatusCode
  std::vector<double> good_ms;
  double worst_overdue_ms = 0;  // the longest time from a deadline to its answer

  Json json() const {
    Json codes = Json::object();
    for (std::size_t code = 0; code < failed.size(); ++code) {
      if (failed[code] > 0) codes[std::string(status_code_name(static_cast<StatusCode>(code)))] = failed[code];
    }
    return {{"sent", sent},
            {"good", good},
            {"late", late},
            {"failed", codes},
            {"good_answers", latency(good_ms)},
            {"worst_overdue_ms", worst_overdue_ms}};
  }
};

/// Sends requests at random moments until `end`, on average `rate` per second, without waiting for answers. Each has the
/// deadline, if it is not 0.
void offer(Client& client, double rate, SteadyClock::time_point end, SteadyClock::duration deadline, Offered& offered) {
  struct Flight {
    SteadyClock::time_point sent;
    Prediction prediction;
  };
  std::vector<Flight> flights;
  std::mt19937 random(1);
  std::exponential_distribution<double> gap(rate);
  auto next = SteadyClock::now(), look = next;
  for (auto now = next; now < end || !flights.empty(); now = SteadyClock::now()) {
    for (; next <= now && next < end; next += duration_of(gap(random)), ++offered.sent)
      flights.push_back({SteadyClock::now(), client.ask({.timeout = deadline})});
    std::this_thread::sleep_until(next < look && next < end ? next : look);
    if (SteadyClock::now() < look) continue;
    look = SteadyClock::now() + (deadline.count() > 0 ? kLook : kRareLook);
    std::erase_if(flights, [&](const Flight& flight) {
      if (!flight.prediction.ready()) return false;
      const auto took = SteadyClock::now() - flight.sent;
      const Status status = flight.prediction.get().status();
      if (deadline.count() > 0) offered.worst_overdue_ms = std::max(offered.worst_overdue_ms, ms(took - deadline));
      if (!status.ok()) {
        ++offered.failed[static_cast<std::size_t>(status.code()) % offered.failed.size()];
      } else if (deadline.count() > 0 && took > deadline + kGrace) {
        ++offered.late;
      } else {
        ++offered.good;
        offered.good_by_end += SteadyClock::now() < end;
        offered.good_ms.push_back(ms(took));
      }
      return true;
    });
  }
}

Result<Daemon> serve(const std::string& path, const std::string& keys) {
  return Daemon::start({format("{}={},timeout_ms=0,{}", kModel, path, keys)});
}

}  // namespace

Status bench_overload(const OverloadOptions& options) {
  SHOAL_ASSIGN_OR_RETURN(const Daemon daemon, serve(options.path, format("workers={}", options.workers)));
  SHOAL_ASSIGN_OR_RETURN(Client client, Client::connect(daemon, kModel));
  SHOAL_ASSIGN_OR_RETURN(Client other, Client::connect(daemon, kModel));
  const int window = kWindow * options.workers;
  const double round_s = options.seconds / options.rounds;
  const auto deadline = std::chrono::milliseconds(options.deadline_ms);
  SHOAL_RETURN_IF_ERROR(throughput(client, window, 1).status());  // warm-up
  std::vector<double> ratios, capacities, alone_ms, beside_busy_ms, beside_flood_ms, moved;
  Offered all, flood;
  Json rounds = Json::array();
  for (int round = 0; round < options.rounds; ++round) {
    SHOAL_ASSIGN_OR_RETURN(const double capacity, throughput(client, window, round_s * kCapacityShare));
    capacities.push_back(capacity);
    Offered offered;
    const auto begin = SteadyClock::now();
    offer(client, options.factor * capacity, begin + duration_of(round_s), deadline, offered);
    const double goodput = static_cast<double>(offered.good_by_end) / round_s;
    ratios.push_back(goodput / capacity);
    rounds.push_back({{"capacity_per_s", capacity},
                      {"goodput_per_s", goodput},
                      {"offered_per_s", static_cast<double>(offered.sent) / round_s}});
    all.sent += offered.sent, all.good += offered.good, all.late += offered.late;
    for (std::size_t i = 0; i < all.failed.size(); ++i) all.failed[i] += offered.failed[i];
    all.good_ms.insert(all.good_ms.end(), offered.good_ms.begin(), offered.good_ms.end());
    all.worst_overdue_ms = std::max(all.worst_overdue_ms, offered.worst_overdue_ms);

    const auto beside = [&](auto&& neighbor, std::vector<double>& times_ms) -> Status {
      const auto end = SteadyClock::now() + duration_of(round_s / 2);
      Status of_neighbor;
      std::jthread thread([&] { of_neighbor = neighbor(end); });
      SHOAL_RETURN_IF_ERROR(ask_singly(client, end, times_ms));
      thread.join();
      return of_neighbor;
    };
    std::vector<double> busy, flooded;
    SHOAL_RETURN_IF_ERROR(beside([](auto) { return Status(); }, alone_ms));
    SHOAL_RETURN_IF_ERROR(beside([&](auto end) { return keep_busy(other, window, end).status(); }, busy));
    SHOAL_RETURN_IF_ERROR(beside(
        [&](auto end) {
          offer(other, options.factor * capacity, end, {}, flood);
          return Status();
        },
        flooded));
    moved.push_back(percentile(flooded, 0.99) / percentile(busy, 0.99));
    beside_busy_ms.insert(beside_busy_ms.end(), busy.begin(), busy.end());
    beside_flood_ms.insert(beside_flood_ms.end(), flooded.begin(), flooded.end());
  }
  std::cout << Json{{"capacity_per_s", percentile(capacities, 0.5)},
                    {"goodput_of_capacity", percentile(ratios, 0.5)},
                    {"overload", all.json()},
                    {"alone", latency(alone_ms)},
                    {"beside_a_busy_client", latency(beside_busy_ms)},
                    {"beside_a_flooding_client", latency(beside_flood_ms)},
                    {"p99_moved_by_the_flood", percentile(moved, 0.5)},
                    {"flood", flood.json()},
                    {"rounds", rounds}}
                   .dump(1)
            << std::endl;
  return {};
}

Status bench_batching(const std::string& path, int max_batch, int rounds, double seconds) {
  SHOAL_ASSIGN_OR_RETURN(const Daemon single, serve(path, "workers=1"));
  SHOAL_ASSIGN_OR_RETURN(const Daemon joining, serve(path, format("workers=1,max_batch={}", max_batch)));
  SHOAL_ASSIGN_OR_RETURN(Client one, Client::connect(single, kModel));
  SHOAL_ASSIGN_OR_RETURN(Client many, Client::connect(joining, kModel));
  std::vector<double> single_per_s, joined_per_s, gains;
  for (int round = -1; round < rounds; ++round) {
    SHOAL_ASSIGN_OR_RETURN(const double alone, throughput(one, 4 * max_batch, seconds));
    SHOAL_ASSIGN_OR_RETURN(const double joined, throughput(many, 4 * max_batch, seconds));
    if (round < 0) continue;  // warm-up
    single_per_s.push_back(alone);
    joined_per_s.push_back(joined);
    gains.push_back(joined / alone);
  }
  std::cout << Json{{"max_batch", max_batch},
                    {"single_per_s", percentile(single_per_s, 0.5)},
                    {"joined_per_s", percentile(joined_per_s, 0.5)},
                    {"gain", percentile(gains, 0.5)}}
                   .dump(1)
            << std::endl;
  return {};
}

}  // namespace shoal::bench

// LoadGenerator: drives a model from one thread, and measures what becomes of its requests.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "shoal/completion_queue.hpp"
#include "supervisor/route/histogram.hpp"
#include "tools/shoal/interrupt.hpp"

namespace shoal::tool {

/// One load: a closed loop with so many requests under way, or an open loop with so many a second.
struct LoadPoint {
  std::uint32_t in_flight = 0;  ///< 0: an open loop
  double rate = 0;
  bool is_open() const { return in_flight == 0; }
  double x() const { return is_open() ? rate : in_flight; }
};

/// Accurate to 0.4 %, in 59 KB however long it is filled.
using FineHistogram = supervisor::BasicHistogram<7>;

/// What was measured at one load. Requests of the warm-up are not in it.
struct Measurement {
  LoadPoint load;
  double seconds = 0;                              ///< how long was measured; less than asked for after an interrupt
  std::uint64_t requests = 0;                      ///< that ended
  std::uint64_t answers = 0;                       ///< answers that came within `seconds`
  std::map<StatusCode, std::uint64_t> failures;    ///< the others
  Status first_failure;                            ///< OK if there was none
  FineHistogram total_ns, queue_ns, compute_ns;    ///< of answered requests; total_ns from the time at which they were due
  FineHistogram late_ns;                           ///< how much later than due this program sent them
  std::map<std::uint16_t, std::uint64_t> batches;  ///< requests that ran together -> answered requests
  bool is_cut = false;                             ///< an interrupt ended it

  std::uint64_t ok() const { return total_ns.count(); }  ///< of `requests`, that were answered
  double answers_per_s() const { return seconds > 0 ? static_cast<double>(answers) / seconds : 0; }
  double mean_batch() const;  ///< 0 = not known
};

struct LoadOptions {
  std::chrono::nanoseconds duration{}, warmup{}, timeout{};
  bool is_even = false;  ///< open loop: requests at equal distances, else a Poisson process
  std::uint64_t seed = 1, flow = 0;
  int priority = 0;
};

/// Sends the same inputs again and again: in a closed loop when a request has ended, in an open loop when its time has come. The
/// time of a request in an open loop counts from when it was due, so a stall of the model, or of this program, is seen in all
/// requests that were due meanwhile (no "coordinated omission"). In a closed loop a request that failed is followed by a pause,
/// as long as the answer asks for and at least 1 ms.
///   Threads  thread-bound
class LoadGenerator {
 public:
  /// Called at least ten times a second while a load is measured.
  using Watcher = std::function<void(const Measurement& so_far)>;

  LoadGenerator(Client client, Model model, Tensors inputs, LoadOptions options)
      : client_(std::move(client)), model_(std::move(model)), inputs_(std::move(inputs)), options_(options) {}

  /// Measures one load, and waits for the requests that are then under way.
  ///   Errors  of a request that cannot be submitted at all: a bug, or no memory
  Result<Measurement> measure(const LoadPoint& load, const Interrupt& interrupt, const Watcher& watcher) const;

 private:
  class Run;
  const Client client_;
  const Model model_;
  const Tensors inputs_;
  const LoadOptions options_;
};

}  // namespace shoal::tool

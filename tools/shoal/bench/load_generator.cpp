#include "tools/shoal/bench/load_generator.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <queue>
#include <random>
#include <vector>

#include "shm/base/errors.hpp"

namespace shoal::tool {
namespace {

using SteadyClock = std::chrono::steady_clock;
using Time = SteadyClock::time_point;

constexpr std::size_t kMostUnderWay = 32'000;  // a Pool takes 32768
constexpr int kBurst = 64;                     // requests that are sent before this thread looks for answers again
constexpr std::chrono::milliseconds kLongestWait(100), kShortestPause(1);

std::uint64_t to_ns(std::chrono::nanoseconds time) { return static_cast<std::uint64_t>(std::max<std::int64_t>(time.count(), 0)); }

}  // namespace

double Measurement::mean_batch() const {
  double requests = 0, runs = 0;
  for (const auto& [size, count] : batches) {
    if (size == 0) continue;
    requests += static_cast<double>(count);
    runs += static_cast<double>(count) / size;
  }
  return runs > 0 ? requests / runs : 0;
}

/// One load.
class LoadGenerator::Run {
 public:
  Run(const LoadGenerator& generator, const LoadPoint& load)
      : generator_(generator), options_(generator.options_), queue_(generator.client_), random_(options_.seed) {
    measured_.load = load;
    const Time start = SteadyClock::now();
    from_ = start + options_.warmup;
    until_ = from_ + options_.duration;
    if (load.is_open()) next_arrival_ = start;
    for (std::uint32_t i = 0; i < load.in_flight; ++i) free_.push(start);
  }

  Result<Measurement> run(const Interrupt& interrupt, const Watcher& watcher) {
    while (has_more() || queue_.under_way() > 0) {
      Time now = SteadyClock::now();
      if (interrupt.came()) return cut_at(now);
      for (int i = 0; i < kBurst && has_more() && next_due() <= now && queue_.under_way() < kMostUnderWay; ++i) {
        SHOAL_RETURN_IF_ERROR(send(now));
        now = SteadyClock::now();
      }
      Time deadline = now + kLongestWait;
      if (has_more() && queue_.under_way() < kMostUnderWay) deadline = std::clamp(next_due(), now, deadline);
      if (queue_.under_way() > 0) {
        take(queue_.next(completions_, deadline));
      } else {
        interrupt.wait_for(deadline - now);
      }
      measured_.seconds = std::chrono::duration<double>(std::clamp(SteadyClock::now(), from_, until_) - from_).count();
      watcher(measured_);
    }
    return std::move(measured_);
  }

 private:
  struct Sent {
    Time due, sent;
  };

  bool is_open() const { return measured_.load.is_open(); }
  /// In an open loop everything that was due is sent, also if it is late.
  bool has_more() const { return (is_open() ? next_arrival_ : SteadyClock::now()) < until_; }
  Time next_due() const {
    if (is_open()) return next_arrival_;
    return free_.empty() ? Time::max() : free_.top();
  }
  bool is_measured(Time time) const { return from_ <= time && time < until_; }

  Status send(Time now) {
    if (idle_.empty()) {
      SHOAL_RETURN_IF_ERROR(make_request());
    }
    const std::size_t index = idle_.back();
    sent_[index] = {is_open() ? next_arrival_ : now, now};
    SHOAL_RETURN_IF_ERROR(queue_.submit(requests_[index], index));
    idle_.pop_back();
    if (is_open()) {
      next_arrival_ += gap();
    } else {
      free_.pop();
    }
    return {};
  }

  Status make_request() {
    Request request(generator_.model_);
    for (const NamedTensor& input : generator_.inputs_) SHOAL_RETURN_IF_ERROR(request.set_input(input.name, input.tensor));
    if (options_.timeout.count() > 0) request.set_timeout(options_.timeout);
    request.set_priority(static_cast<std::int8_t>(options_.priority));
    request.set_flow(options_.flow);
    idle_.push_back(requests_.size());
    requests_.push_back(std::move(request));
    sent_.emplace_back();
    return {};
  }

  std::chrono::nanoseconds gap() {
    const double mean_ns = 1e9 / measured_.load.rate;
    const double gap_ns = options_.is_even ? mean_ns : std::exponential_distribution<double>(1 / mean_ns)(random_);
    return std::chrono::nanoseconds(static_cast<std::int64_t>(std::ceil(gap_ns)));
  }

  void take(std::size_t count) {
    const Time now = SteadyClock::now();
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t index = completions_[i].tag;
      const Outcome& outcome = requests_[index].outcome();
      if (!is_open()) {
        const auto pause = std::max<std::chrono::nanoseconds>(outcome.retry_after, kShortestPause);
        free_.push(outcome.outputs.ok() ? now : now + pause);
      }
      count_in(sent_[index], now, outcome);
      idle_.push_back(index);
      completions_[i].request = Request();
    }
  }

  void count_in(const Sent& sent, Time now, const Outcome& outcome) {
    const bool is_ok = outcome.outputs.ok();
    if (is_ok && is_measured(now)) ++measured_.answers;
    if (!is_measured(is_open() ? sent.due : now)) return;
    ++measured_.requests;
    measured_.late_ns.add(to_ns(sent.sent - sent.due));
    if (!is_ok) {
      ++measured_.failures[outcome.outputs.status().code()];
      if (measured_.first_failure.ok()) measured_.first_failure = outcome.outputs.status();
      return;
    }
    measured_.total_ns.add(to_ns(now - sent.due));
    measured_.queue_ns.add(to_ns(outcome.queue_time));
    measured_.compute_ns.add(to_ns(outcome.compute_time));
    ++measured_.batches[outcome.batch];
  }

  Measurement cut_at(Time now) {
    measured_.is_cut = true;
    measured_.seconds = std::chrono::duration<double>(std::clamp(now, from_, until_) - from_).count();
    return std::move(measured_);
  }

  const LoadGenerator& generator_;
  const LoadOptions& options_;
  CompletionQueue queue_;
  std::mt19937_64 random_;
  Measurement measured_;
  Time from_, until_;
  Time next_arrival_;                                                      // open loop
  std::priority_queue<Time, std::vector<Time>, std::greater<Time>> free_;  // closed loop: when each may be sent again
  std::vector<Request> requests_;  // the tag is the index; only as many as were under way at once
  std::vector<Sent> sent_;
  std::vector<std::size_t> idle_;
  std::array<Completion, 256> completions_;
};

Result<Measurement> LoadGenerator::measure(const LoadPoint& load, const Interrupt& interrupt, const Watcher& watcher) const {
  ::prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);  // the kernel may otherwise wake this thread 50 us late
  return Run(*this, load).run(interrupt, watcher);
}

}  // namespace shoal::tool

// Stops a model whose workers crash while no request is to blame, and probes its workers until one answers.
//
//   closed ──(5 crashes within 10 s)──▶ open ──(back-off is over)──▶ probing ──(answered)──▶ closed
//                                        ▲                              │
//                                        └──(crashed, or no answer)─────┘  back-off 1 s, doubled each time, at most 30 s
//   A late answer to a probe closes it, too, as long as the next worker has not been probed.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>

namespace shoal::supervisor {

/// Threads: thread-compatible
class Breaker {
 public:
  static constexpr std::size_t kCrashes = 5;
  static constexpr std::uint64_t kWithinNs = 10'000'000'000;
  static constexpr std::uint64_t kFirstBackoffNs = 1'000'000'000, kLongestBackoffNs = 30'000'000'000;
  static constexpr std::uint64_t kProbeLimitNs = 10'000'000'000;

  bool closed() const { return state_ == State::kClosed; }
  bool probing() const { return state_ == State::kProbing; }
  /// The last crash: "signal 11 at address 0x0".
  const std::string& reason() const { return reason_; }
  /// The time of the next probe or, while probing, the time at which the probe is given up. Means nothing while closed.
  std::uint64_t until_ns() const { return until_ns_; }
  /// The worker that was probed last; 0 = no worker has been probed since the breaker was closed.
  std::uint64_t prober() const { return prober_; }
  /// When the probe that the prober has not answered yet began; 0 = the prober owes no answer.
  std::uint64_t owed_since_ns() const { return owed_since_ns_; }

  /// Counts a crash that no request is to blame for.
  void crashed(std::string what, std::uint64_t now_ns) {
    reason_ = std::move(what);
    crashes_ns_[next_] = now_ns;
    next_ = (next_ + 1) % kCrashes;
    const std::uint64_t oldest_ns = crashes_ns_[next_];
    if (state_ != State::kClosed || oldest_ns == 0 || now_ns - oldest_ns > kWithinNs) return;
    open(kFirstBackoffNs, now_ns);
  }
  /// Number of recent crashes; at most kCrashes.
  std::size_t crashes(std::uint64_t now_ns) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(crashes_ns_, [&](std::uint64_t at_ns) { return at_ns && now_ns - at_ns <= kWithinNs; }));
  }
  bool probe_due(std::uint64_t now_ns) const { return state_ == State::kOpen && now_ns >= until_ns_; }
  void begin_probe(std::uint64_t prober, std::uint64_t now_ns) {
    state_ = State::kProbing;
    prober_ = prober;
    until_ns_ = now_ns + kProbeLimitNs;
    owed_since_ns_ = now_ns;
  }
  /// Waits for the next probe. A late answer to this one still counts.
  void give_up_probe(std::uint64_t now_ns) { open(std::min(backoff_ns_ * 2, kLongestBackoffNs), now_ns); }
  /// The prober has answered the probe, has failed it, or has died.
  void probe_ended(bool answered, std::uint64_t now_ns) {
    owed_since_ns_ = 0;
    if (!answered) {
      if (probing()) give_up_probe(now_ns);
      return;
    }
    state_ = State::kClosed;
    crashes_ns_ = {};
    prober_ = 0;
  }

 private:
  enum class State : std::uint8_t { kClosed, kOpen, kProbing };

  void open(std::uint64_t backoff_ns, std::uint64_t now_ns) {
    state_ = State::kOpen;
    backoff_ns_ = backoff_ns;
    until_ns_ = now_ns + backoff_ns;
  }

  State state_ = State::kClosed;
  std::array<std::uint64_t, kCrashes> crashes_ns_{};
  std::size_t next_ = 0;
  std::uint64_t backoff_ns_ = 0, until_ns_ = 0, prober_ = 0, owed_since_ns_ = 0;
  std::string reason_;
};

}  // namespace shoal::supervisor

// The deaths of workers: what is known of each, and what became of the requests it held.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "shm/log/log.hpp"
#include "shm/wire/status_page.hpp"
#include "supervisor/process/oom_kills.hpp"
#include "supervisor/process/processes.hpp"
#include "supervisor/process/timers.hpp"
#include "supervisor/route/ledger.hpp"

namespace shoal::supervisor {

enum class DeathCause {
  kUnknown,      // nobody saw how it ended
  kCrash,        // a fatal signal that it caused itself
  kException,    // an exception that nobody caught
  kOutOfMemory,  // an allocation failed, and the worker could not go on
  kStopped,      // ended by the daemon: it was stopped while it held requests
  kHung,         // ended by the daemon: it made no progress
  kRunLimit,     // ended by the daemon: a run took too long
  kEnded,        // ended by the daemon: it broke a rule; `why` says which
  kKilled,       // by a signal from outside
  kOomKilled,    // by the kernel, for memory
  kExited,       // by itself
};
std::string_view death_cause_name(DeathCause cause);

/// What a worker's crash record says, copied and made printable. The worker may have written anything.
struct CrashText {
  wire::CrashCause cause{};
  std::uint32_t signal = 0;
  std::int32_t code = 0, sender_pid = 0;
  std::uint64_t address = 0;
  std::string operator_name;
  std::string stack;  // a line per frame
};
/// Nothing when the record is not complete.
std::optional<CrashText> read_crash(const wire::CrashRecord& record);

struct Death {
  std::uint64_t unix_ms = 0;
  std::string model;
  std::uint64_t version = 0;
  pid_t pid = -1;
  std::uint64_t incarnation = 0, answered = 0;
  std::uint64_t lived_ns = 0;
  std::uint64_t noticed_ns = 0, unrouted_ns = 0;  // CLOCK_MONOTONIC: its pidfd was seen; no request can go to it any more
  EndReason ended = EndReason::kNone;
  std::string ended_because;
  std::optional<CrashText> crash;
  std::optional<int> wait_status;                // as of waitpid(); another process may have seen it
  bool was_oom_kill = false;                     // a SIGKILL not from us, while the kernel killed for lack of memory
  std::vector<DeathOutcome> requests;            // those that ran first; the log keeps kShownRequests
  std::size_t held = 0, running = 0, rerun = 0;  // requests, set by the log

  DeathCause cause() const;
  /// "signal 11 (code 1) at address 0x0 in Convolution 'conv1'"
  std::string what() const;
};

/// The last deaths. A death is complete, and logged, once it is known how the process ended, or kReportLimitNs later.
///   Threads  thread-bound
class DeathLog {
 public:
  static constexpr std::size_t kKept = 256;
  static constexpr std::size_t kShownRequests = 64;
  static constexpr std::uint64_t kReportLimitNs = 1'000'000'000;

  /// Both outlive this.
  DeathLog(Timers& timers, Logger& log)
      : log_(log), report_(timers, Timer::Kind::kClock, [this](std::uint64_t now_ns) { report_late(now_ns); }) {}

  void add(Death death, std::uint64_t now_ns);
  /// Its parent says how it ended.
  void reaped(std::uint64_t incarnation, int wait_status, std::uint64_t now_ns);

  /// Has a worker of that model died?
  bool knows(const std::string& model) const { return std::ranges::count(deaths_, model, &Death::model) > 0; }
  /// {"crashes": [...]}, oldest first; of all models when `model` is empty.
  std::string json(const std::string& model) const;
  /// Empty when it is not among them.
  std::string what(std::uint64_t incarnation) const;
  OomKills& oom_kills() { return oom_kills_; }

 private:
  void complete(Death& death, std::uint64_t now_ns);
  void report_late(std::uint64_t now_ns);
  void set_timer();

  Logger& log_;
  OomKills oom_kills_;
  std::deque<Death> deaths_;
  std::vector<std::uint64_t> incomplete_;  // incarnations
  Timer report_;                           // of the first of them
};

}  // namespace shoal::supervisor

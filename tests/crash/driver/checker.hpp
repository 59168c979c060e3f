// The offline checker. Its only inputs are the clients' histories and the daemon's snapshots from the start and the end; it talks
// to nobody.
#pragma once

#include <functional>
#include <istream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tests/crash/driver/history.hpp"

namespace shoal::test {

/// A broken promise, and where it was found.
struct Violation {
  enum class Kind {
    kLost,          ///< no answer, though the client lived to its end
    kTwice,         ///< answered more than once
    kUnasked,       ///< answered before it was asked, or never asked
    kWrongBytes,    ///< not the answer of that version
    kWrongVersion,  ///< answered by a version that may not answer
    kPoison,        ///< an innocent request answered POISON
    kFailed,        ///< an innocent request that failed with another code
    kSpared,        ///< a guilty request answered like an innocent one
    kLate,          ///< after the deadline
    kTorn,          ///< a history that cannot be read
    kDied,          ///< a client that ended early and was not killed
    kMiscounted,    ///< the daemon's counts contradict each other or the histories
    kUnready,       ///< at the end a model has not all its workers
    kLeaked,        ///< descriptors, memfds, mappings, processes, sockets or memory that were not there at the start
  };
  Kind kind{};
  std::string where, what;
};
std::string to_string(const Violation& violation);

/// The clients in one language.
struct ClientCounts {
  std::uint64_t ok = 0, killed = 0;
};

struct CheckReport {
  std::uint64_t asked = 0, answered = 0, ok = 0, rerun = 0, cancelled = 0, expired = 0, poisoned = 0;
  std::uint64_t unknown = 0;                       ///< under way when their client was killed, so nobody knows their outcome
  std::map<std::string, ClientCounts> clients_in;  ///< by language, where histories come from ClientProcesses
  std::vector<Violation> violations;
  std::uint64_t violation_count = 0;  ///< all of them; `violations` keeps the first 100
};

/// Reads each history of one daemon once, then compares the daemon's two snapshots (snapshot.hpp).
///   Threads  thread-bound
class Checker {
 public:
  static constexpr std::uint64_t kLateNs = 100'000'000;  ///< a request is late when it is answered this long after its deadline
  static constexpr double kMemoryNoise = 6e6;  ///< bytes that the heap of the supervisor or of a zygote may keep from its peak

  ///   answer  returns the hash of the right answer, or nothing when this version may not answer
  using Answer = std::function<std::optional<std::uint64_t>(const Question&, std::uint64_t version)>;
  explicit Checker(Answer answer) : answer_(std::move(answer)) {}

  /// Reads how long the supervisor had waited for a processor at each time: lines of "TIME WAITED", in ns. These waits are not
  /// counted as lateness. They may not fall. Call it before the histories are read.
  void read_waits(std::istream& waits);
  void read_history(std::istream& history, const std::string& name, bool was_killed);
  /// Compares what the daemon holds, counts and serves. Call it after all histories.
  void compare_snapshots(const nlohmann::json& start, const nlohmann::json& end, const std::string& name);
  /// Compares only what the daemon holds.
  void compare_holdings(const nlohmann::json& start, const nlohmann::json& end, const std::string& name);
  /// Whether every model has its workers and its zygote, and no request is left.
  static bool at_rest(const nlohmann::json& snapshot);
  const CheckReport& report() const { return report_; }

 private:
  void judge(const Asked& asked, const Answered& answered, const std::string& where);
  void compare_counts(const nlohmann::json& model, const std::string& where);
  void add(Violation::Kind kind, const std::string& where, const std::string& what);

  std::uint64_t waited_between(std::uint64_t begin_ns, std::uint64_t end_ns) const;

  Answer answer_;
  std::map<std::uint64_t, std::uint64_t> waits_;
  std::map<Question, std::map<std::uint64_t, std::optional<std::uint64_t>>> known_;
  std::map<std::string, std::uint64_t> ok_by_model_, unknown_by_model_, expired_by_model_, cancelled_by_model_;
  CheckReport report_;
};

}  // namespace shoal::test

// The offline checker: reads what clients wrote down and what the daemon said of itself at the start and at the end, and nothing
// else; it talks to nobody.
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

/// What was broken, and where it was found.
struct Violation {
  enum class Kind {
    kLost,          ///< a client that lived to its end was never answered
    kTwice,         ///< answered again
    kUnasked,       ///< answered before it was asked, or never asked
    kWrongBytes,    ///< not what that version answers
    kWrongVersion,  ///< by a version that may not answer
    kPoison,        ///< an innocent request called guilty
    kFailed,        ///< an innocent request that failed otherwise
    kSpared,        ///< a guilty request answered as if it were none
    kLate,          ///< after the deadline
    kTorn,          ///< a history that is none
    kDied,          ///< a client that ended before its time, and was not killed
    kMiscounted,    ///< the daemon's counts contradict each other or the histories
    kUnready,       ///< at the end a model is not served as wanted
    kLeaked,        ///< descriptors, memfds, mappings, processes, sockets or memory that were not there at the start
  };
  Kind kind{};
  std::string where, what;
};
std::string to_string(const Violation& violation);

struct CheckReport {
  std::uint64_t asked = 0, answered = 0, ok = 0, rerun = 0, cancelled = 0, expired = 0, poisoned = 0;
  std::uint64_t unknown = 0;  ///< under way when their client was killed: nobody can say
  std::vector<Violation> violations;
  std::uint64_t violation_count = 0;  ///< all of them; `violations` keeps the first 100
};

/// Reads each history of one daemon once, then compares the daemon's two snapshots (snapshot.hpp).
///   Threads  thread-bound
class Checker {
 public:
  static constexpr std::uint64_t kLateNs = 100'000'000;  ///< beyond its deadline a request is late
  static constexpr double kMemoryNoise = 6e6;  ///< bytes that the supervisor's or a zygote's heap keeps of the largest moment

  /// `answer` knows the hash of the right answer, or that this version may not answer.
  using Answer = std::function<std::optional<std::uint64_t>(const Question&, std::uint64_t version)>;
  explicit Checker(Answer answer) : answer_(std::move(answer)) {}

  /// How long the supervisor had been kept waiting for a processor in all, by time (both in ns): what it could not help is no
  /// delay of its own. Lines of "TIME WAITED"; before the histories.
  void read_waits(std::istream& waits);
  void read_history(std::istream& history, const std::string& name, bool was_killed);
  /// After all histories: what the daemon holds, counts and serves.
  void compare_snapshots(const nlohmann::json& start, const nlohmann::json& end, const std::string& name);
  /// Only what it holds.
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
  std::map<std::string, std::uint64_t> ok_by_model_, unknown_by_model_, expired_by_model_;
  CheckReport report_;
};

}  // namespace shoal::test

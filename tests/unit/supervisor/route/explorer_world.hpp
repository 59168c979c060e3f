// A ledger with one model, and a simulated world around it: clients, lanes that run the requests they are sent, dying workers,
// and time. The world lists the possible events, lets one of them happen, and checks the promises.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/unit/supervisor/route/ledger_state.hpp"

namespace shoal::supervisor {

/// The requests, workers and events of one exploration. All numbers are small, because every order of the events is explored.
struct Plan {
  struct Submission {
    ClientId client = 1;
    std::uint64_t flow = 0;
    std::int8_t priority = 0;
    std::uint64_t timeout_ns = 0;
    std::uint32_t rows = 1;
    bool joinable = false;
  };
  std::string name;
  std::vector<Submission> requests;  // at most kMaxRequests
  ModelLimits limits;
  ClientShares shares = {};
  int workers = 2, lanes = 1;  // workers alive at a time; lanes of each
  int lives = 3;               // number of workers that ever start
  int ticks = 1;               // steps of time
  std::uint64_t step_ns = 8'000'000;
  bool cancels = false, clients_die = false, parks = false, undelivered = false, lies = false, operators = false,
       dismisses = false;
  bool shaky = false;  // four crashes without a guilty request have happened already
};

enum class EventKind : std::uint8_t {
  kSubmit,        // a: request
  kBegin,         // a: first request of a group that was sent
  kAnswer,        // a: request; b: 0 ok, 1 an error
  kPark,          // a: first request of a group that was sent
  kCancel,        // a: request
  kClientDies,    // a: client
  kTime,          // one step
  kWorkerStarts,  // ready
  kWorkerDies,    // a: worker; b: Evidence
  kUndelivered,   // a: first request of a group that was sent
  kRoutable,      // a: worker
  kProbed,        // b: 1 answered
  kFail,
  kDrain,
  kGiveUp,   // fail_everything()
  kDismiss,  // a: worker
};
inline constexpr std::size_t kEventKinds = 16;

enum class Evidence : std::uint8_t {
  kNothing,       // the status lines are empty
  kRunning,       // the lanes name what they run
  kCrash,         // the first lane that runs something crashed
  kCrashUnnamed,  // the same, but the lane had not named what it runs yet
  kKilled,        // the crash record says that another process sent the signal
  kElsewhere,     // a thread that is no lane crashed
  kMemory,        // an allocation failed
  kCompiling,     // the crash record names a parked request
  kLie,           // the crash record names a request of another worker
};
inline constexpr std::size_t kEvidences = 9;

struct Event {
  EventKind kind{};
  std::uint8_t a = 0, b = 0;
  std::uint16_t packed() const { return static_cast<std::uint16_t>(static_cast<unsigned>(kind) << 8 | a << 4 | b); }
  static Event unpack(std::uint16_t packed) {
    return {static_cast<EventKind>(packed >> 8), static_cast<std::uint8_t>(packed >> 4 & 15),
            static_cast<std::uint8_t>(packed & 15)};
  }
  std::string text() const;
};

/// The transitions that have been seen, by event and by the place of a request before and after it. Also the decisions by event.
struct Coverage {
  std::bitset<kEventKinds * kPlaces * kPlaces> transitions;
  std::bitset<kEventKinds * 16> decisions;     // event, Action::Kind
  std::bitset<kEventKinds * 16> answers;       // event, StatusCode of a kReply
  std::bitset<kEvidences * kPlaces> evidence;  // evidence, place after it
  std::vector<std::string> texts() const;
};

/// A bug between the ledger and the code that carries out its decisions. It shows that the explorer finds such a bug.
enum class Sabotage { kNone, kForgetsReleases, kAnswersTwice, kReleasesEarly };

/// Threads: thread-compatible. Copies are independent.
class World {
 public:
  static constexpr std::size_t kMaxRequests = 4, kMaxLives = 6;

  explicit World(const Plan& plan, Sabotage sabotage = Sabotage::kNone);
  void possible(std::vector<Event>& events) const;
  void happen(const Event& event, Coverage* coverage);
  std::uint64_t hash() const;
  /// The first promise that was broken; empty if none was.
  const std::string& violation() const { return violation_; }

 private:
  enum class Phase : std::uint8_t { kNone, kSent, kRunning, kParked };
  struct TrackedRequest {
    RequestId id = 0;
    bool submitted = false, admitted = false, answered = false, released = false, forgotten = false;
    bool lone = false;  // it must be alone on its worker
    Phase phase = Phase::kNone;
    std::uint8_t worker = 0, lane = 0;   // of its lease
    std::uint8_t leader = 0, index = 0;  // the first request of its group, and its own place in the group
    std::uint16_t group = 0;             // grows with every group that is sent
    std::uint16_t attempt = 0;
    std::uint8_t crashes = 0;  // number of crashes that it was part of
    bool crashed_alone = false, out_of_memory = false;
    bool has_old_lease = false;
    LaneRef old_lane;
    std::uint16_t old_attempt = 0;
  };
  struct Worker {
    Incarnation incarnation = 0;
    bool alive = false, routable = true, dismissed = false;
  };

  void settle(const Event& event, Coverage* coverage);
  void obey(const Action& action, const Action* before);
  void obey_send(const Action& action, const Action* before);
  void check();
  void broken(const std::string& promise);
  std::vector<LaneEvidence> evidence_of(std::uint8_t worker, Evidence kind);
  std::size_t number_of(RequestId id) const;
  bool may_begin(std::size_t request) const;
  bool is_first_left(std::size_t request) const;
  bool leased(std::size_t request) const { return requests_[request].phase != Phase::kNone; }
  void drop_lease(std::size_t request) { requests_[request].phase = Phase::kNone; }

  const Plan* plan_;
  Sabotage sabotage_;
  Ledger ledger_;
  std::uint64_t now_ns_ = 1'000'000'000;
  std::array<TrackedRequest, kMaxRequests> requests_;
  std::array<Worker, kMaxLives> workers_;
  std::uint8_t lives_ = 0, ticks_ = 0;
  std::uint16_t groups_ = 0;
  std::array<bool, 3> gone_{};
  bool failed_ = false, drained_ = false, given_up_ = false;
  std::size_t answering_ = kMaxRequests;  // the request whose reply is being handled
  std::string violation_;
};

}  // namespace shoal::supervisor

// The ledger: what became of every request. A pure state machine; it does no I/O and reads no clock.
//
//   admitted → queued ──────────────▶ leased(lane, attempt) → done | failed
//                ▲                      ▲   │
//                │         suspected ───┘   │ alone, on a worker that holds nothing else
//                │             ▲            │
//                └─────────────┴────────────┘ the worker died: pidfd, nothing else
//
// Leases are made in groups: requests that run together (a batch), mostly of one. A group is one credit of its lane.
//
// Every admitted request of a living client gets exactly one terminal reply (kForward or kReply). Its slots are the client's
// again with that reply (`released`) or, when the answer came before the run ended, with a later kRelease.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "shoal/runner.hpp"
#include "shoal/status.hpp"
#include "supervisor/route/breaker.hpp"
#include "supervisor/route/cost_estimates.hpp"
#include "supervisor/route/deadline_wheel.hpp"
#include "supervisor/route/histogram.hpp"
#include "supervisor/route/request_queue.hpp"

namespace shoal::supervisor {

using RequestId = std::uint64_t;  // generation << 32 | slot; never used twice, never 0
using ClientId = std::uint64_t;
using ModelIndex = std::uint32_t;
using Incarnation = std::uint64_t;  // one life of a worker; never used twice

/// The slot of a request: what a table beside the ledger is indexed by.
constexpr std::uint32_t slot_of(RequestId request) { return static_cast<std::uint32_t>(request); }

struct LaneRef {
  Incarnation incarnation = 0;
  std::uint32_t lane = 0;
  friend bool operator==(const LaneRef&, const LaneRef&) = default;
};

struct Admission {
  ClientId client = 0;
  std::uint64_t seq = 0;
  ModelIndex model = 0;
  std::int8_t priority = 0;
  std::uint64_t timeout_ns = 0;  // 0 = the model's
  std::uint64_t shape = 0;       // requests of equal shapes and rows cost the same
  std::uint32_t rows = 1;        // the first dimension of its inputs, which `shape` leaves out
  bool joinable = false;         // it may run with others of its shape
};

struct LaneReply {
  LaneRef lane;
  RequestId request = 0;
  std::uint16_t attempt = 0;
  StatusCode status = StatusCode::kOk;
  std::uint64_t compute_ns = 0;
  std::uint16_t batch = 0;  // requests that this run answered; 0 = not known
};

/// What a dead worker left in the line of one lane. Nothing of it is believed that does not fit the leases.
struct LaneEvidence {
  RequestId running_request = 0;
  std::uint64_t running_attempt = 0;
  std::uint64_t running_count = 1;  // requests that ran together, from that one on
  std::uint64_t running_hash = 0;   // of its inputs; 0 = not known
  bool crashed = false;             // the crash record is complete
  bool out_of_memory = false;       // beside its worker's memory limit
  bool on_lane = false;             // the fault was this lane's own
  bool sent_by_process = false;     // the signal came from another process: no evidence
  RequestId crash_request = 0;
  RequestId compiling_request = 0;  // parked on this lane, and its program was being compiled
  std::string what;                 // "signal 11 at address 0x0 in Convolution 'conv1'"
};

/// What a worker's death meant for one request that it held.
struct DeathOutcome {
  enum class Fate { kRunsAgain, kRunsAlone, kAnsweredPoison, kAnsweredAborted, kAnsweredUnavailable, kWasAnswered };
  RequestId request = 0;
  ClientId client = 0;
  std::uint64_t seq = 0;
  std::uint16_t begun = 0;   // runs begun so far, the one that ended with the worker among them
  std::uint16_t blamed = 0;  // of those, how many it is to blame for
  bool was_running = false;
  Fate fate{};
};

/// Stands for the breaker's probe where requests are named.
inline constexpr RequestId kProbe = ~RequestId{0};

/// A lane that holds requests, or owes the breaker an answer: what it has had for longest.
struct BusyLane {
  ModelIndex model = 0;
  LaneRef lane;
  RequestId oldest = 0;
  std::uint64_t leased_ns = 0;
  bool parked = false;  // everything it holds is
};

/// What is to be done, in this order. The kSend of a group follow each other.
struct Action {
  enum class Kind {
    kSend,        // the request to its lane
    kForward,     // the lane's reply in hand to the client
    kReply,       // a reply made here to the client
    kRelease,     // tell the client that the request's slots are free
    kCancelRun,   // tell the worker that nobody waits for the request
    kForget,      // the request is over: its payload can go
    kQuarantine,  // tell the model's workers, or the one named, quarantined(model)
    kProbe,       // have the worker answer its model's stored input, and say probed()
  };
  Kind kind{};
  RequestId request = 0;
  ClientId client = 0;
  std::uint64_t seq = 0;
  ModelIndex model = 0;
  LaneRef lane;                   // kSend, kCancelRun; its incarnation: kProbe, kQuarantine (0 = all workers)
  std::uint16_t attempt = 0;      // kSend
  std::uint16_t batch_size = 1;   // kSend: requests of its group
  std::uint16_t batch_index = 0;  // kSend: of this one in the group
  bool hash_inputs = false;       // kSend: a suspect
  std::uint8_t quarantine = 0;    // kSend: number of the list that holds; 0 = that is empty
  std::uint16_t attempts = 0;     // replies: runs begun
  StatusCode status = StatusCode::kOk;
  Ran ran = Ran::kNo;
  bool released = true;
  std::uint64_t queue_ns = 0;
  std::string message;  // kReply
};

struct ModelLimits {
  std::size_t queue_limit = 1024;
  std::uint64_t timeout_ns = 0;    // 0 = none
  std::uint32_t max_batch = 1;     // rows of requests that run together
  std::uint64_t max_delay_ns = 0;  // how long a request waits for others while a lane is idle
  std::uint64_t quarantine_ns = 600'000'000'000;
};

/// What one client may have.
struct ClientShares {
  std::size_t in_flight = 0;  // requests of it that are not over; 0 = any number
  double of_queue = 1;        // of a model's queue that is more than half full; of several that flood it each gets less
};

struct ModelCounts {
  std::uint64_t admitted = 0, refused = 0, rerun = 0, late = 0, worker_deaths = 0, orphaned = 0;
  std::uint64_t groups = 0, grouped = 0;     // batches of two and more, and the requests in them
  std::uint64_t too_late = 0;                // refused or given up because they could not have been answered in time
  std::uint64_t deaths_rerun = 0;            // deaths whose lane named a running request that was then run again
  std::array<std::uint64_t, 14> answered{};  // by StatusCode, kOk included
};

struct ModelView {
  const ModelCounts& counts;
  const Histogram& queue_ns;
  const Histogram& compute_ns;
  const Histogram& total_ns;
  std::size_t queued, running, suspected, quarantined;
  const Breaker& breaker;
};

/// The ledger of all models.
///   Threads  thread-bound
class Ledger {
 public:
  static constexpr int kMaxBegunAttempts = 10;
  static constexpr std::uint64_t kCreditNs = 200'000;
  static constexpr std::uint64_t kTimerNs = 4'000'000;  // how late tick() may come
  static constexpr std::uint32_t kMinCredits = 2, kMaxCredits = 64;
  static constexpr std::size_t kMaxParked = 64;  // groups of one lane
  static constexpr std::size_t kMaxQuarantined = 1024;

  void set_client_shares(ClientShares shares) { shares_ = shares; }

  /// The lowest number that no model has.
  ModelIndex add_model(std::string name, ModelLimits limits);
  /// New requests are refused with the reason from now on; those admitted go on, and run again where that must be.
  void drain_model(ModelIndex model, std::string reason);
  /// True when no request of the model is left: none waits, none runs, no slots are to be released.
  bool model_idle(ModelIndex model) const { return models_[model].live == 0; }
  /// The model must be idle. Its number goes to the next one added; what its workers still say is not heard.
  void remove_model(ModelIndex model);
  /// Requests are refused, those waiting are answered kUnavailable with the reason; running ones go on, but are not run again.
  void fail_model(ModelIndex model, const std::string& reason);
  void restore_model(ModelIndex model);
  ModelView model(ModelIndex model) const;

  /// Queues a request. Follow with dispatch() once its payload is kept.
  ///   Errors  kOverloaded (see retry_after_ms), kUnavailable (draining, the model failed, or its breaker is open: see
  ///           retry_after_ms), kDeadlineExceeded: what waits and runs already would make the answer too late
  Result<RequestId> admit(const Admission& admission, std::uint64_t now_ns);
  /// Hands waiting requests to lanes with credit.
  void dispatch(ModelIndex model, std::uint64_t now_ns);
  /// When what was refused with kOverloaded or kUnavailable has a chance.
  std::uint32_t retry_after_ms(ModelIndex model, std::uint64_t now_ns) const;

  void worker_ready(ModelIndex model, Incarnation incarnation, std::uint32_t lanes, std::uint64_t now_ns);
  /// A worker that is not routable gets no new requests.
  void set_routable(Incarnation incarnation, bool routable, std::uint64_t now_ns);
  /// The worker gets nothing new ever, and its end is no death.
  void dismiss(Incarnation incarnation);
  /// The lease could not be delivered: its whole group waits again, its worker becomes unroutable.
  void undelivered(RequestId request);
  /// False when the reply matches no lease: counted late, nothing else happens.
  bool lane_replied(const LaneReply& reply, std::uint64_t now_ns);
  /// The request's group waits in its lane until its program is compiled, and takes up none of the lane's credit until it is
  /// answered. Beyond kMaxParked of a lane it does. Nothing happens when it matches no lease.
  void lane_parked(LaneRef lane, RequestId request, std::uint16_t attempt, std::uint64_t now_ns);
  /// The pidfd reported: no thread of the worker runs any more. `evidence` has one entry per lane. Returns what became of each
  /// request that it held, oldest first.
  std::vector<DeathOutcome> worker_died(Incarnation incarnation, std::span<const LaneEvidence> evidence, std::uint64_t now_ns);
  /// What became of a kProbe. One that was not asked for is no error.
  void probed(Incarnation incarnation, bool answered, std::uint64_t now_ns);
  /// Hashes of inputs that the model's workers answer with kPoison.
  std::vector<std::uint64_t> quarantined(ModelIndex model) const;
  /// Of that list: another whenever it changes, 1 to 255.
  std::uint8_t quarantine_number(ModelIndex model) const { return models_[model].quarantine_number; }

  void client_gone(ClientId client);
  void cancel(ClientId client, std::uint64_t seq, std::uint64_t now_ns);
  /// Answers what is past its deadline, and does what else has waited for its time.
  void tick(std::uint64_t now_ns);
  std::optional<std::uint64_t> next_tick_ns(std::uint64_t now_ns) const;

  /// New requests are refused from now on.
  void drain() { draining_ = true; }
  /// Answers everything that is not answered yet.
  void fail_everything(StatusCode status, const std::string& message, std::uint64_t now_ns);
  bool idle() const { return used_ == 0; }

  /// True while that attempt is leased to that lane.
  bool is_leased(RequestId request, LaneRef lane) const;
  /// Whether the worker has answered, and how much it holds.
  std::uint64_t answered_by(Incarnation incarnation) const;
  std::uint32_t held_by(Incarnation incarnation) const;

  /// The lanes that hold requests: of those that are parked, only where there are no others; and that which was probed, when it
  /// holds none.
  void busy_lanes(std::vector<BusyLane>& lanes) const;
  /// Whether there may be any.
  bool has_busy_lanes() const;

  std::vector<Action>& actions() { return actions_; }

 private:
  friend struct LedgerState;  // tests/unit/supervisor/route: what the explorer sees of it
  enum class State : std::uint8_t { kFree, kQueued, kSuspected, kLeased };
  // What decides its turn is in waiting_, at the same slot.
  struct Entry {
    std::uint32_t generation = 0;
    State state = State::kFree;
    bool answered = false;  // the terminal reply is out; only the run's end is awaited
    bool client_gone = false;
    bool suspect = false;  // to be run alone
    bool joinable = false;
    bool urgent = false;        // waits for no others to run with
    bool counts_death = false;  // when leased again, a death counts as survived
    std::uint16_t begun = 0, blamed = 0;
    std::uint16_t leases = 0;
    std::uint16_t attempt = 0;  // of the current lease
    ModelIndex model = 0;
    std::uint32_t rows = 1;
    std::uint32_t group = kNoSlot;
    std::uint64_t shape = 0, seq = 0, admitted_ns = 0, leased_ns = 0;
    LaneRef lease;
  };
  // Requests that run together: one credit of their lane.
  struct Group {
    SlotList members;  // those that are leased still, in the order they were sent
    std::uint32_t count = 0, rows = 0;
    std::uint64_t shape = 0, cost_ns = 0;
    std::uint64_t compute_ns = 0;  // as its replies say
    bool parked = false;           // waits in its lane for its program
    bool isolated = false;         // a suspect alone on its worker
  };
  struct Lane {
    std::array<std::uint32_t, kMaxCredits> held;  // groups, in the order they were sent
    std::uint32_t count = 0;
    std::uint64_t work_ns = 0;   // predicted, of those
    std::uint64_t since_ns = 0;  // when the first of them became the first
    std::vector<std::uint32_t> parked;
  };
  struct Worker {
    Incarnation incarnation = 0;
    bool routable = true;
    bool dismissed = false;
    std::uint32_t held = 0;
    std::uint64_t answered = 0;
    std::vector<Lane> lanes;
  };
  struct Quarantined {
    std::uint64_t hash = 0, expires_ns = 0;
  };
  struct Model {
    std::string name;
    ModelLimits limits;
    RequestQueue queue;
    SlotList suspects;
    std::uint32_t suspected = 0;
    Incarnation ward = 0;  // the worker that runs suspects, and nothing else; 0 = none
    bool in_use = true;    // its number
    std::string failure;   // empty while the model is well
    std::string draining;  // why new requests are refused; empty while they are not
    std::size_t live = 0;  // requests that are not forgotten
    std::uint32_t running = 0;
    std::uint32_t urgent = 0;                       // of those queued
    std::array<std::uint32_t, 64> rows_by_shape{};  // queued rows; shapes that share a place only make batches smaller
    std::uint64_t wait_until_ns = kNoDeadline;      // when those that wait for others go without
    CostEstimates costs;
    Breaker breaker;
    std::vector<Quarantined> quarantine;  // oldest first
    std::uint8_t quarantine_number = 0;
    std::vector<Worker> workers;
    ModelCounts counts;
    Histogram queue_ns, compute_ns, total_ns;
  };
  struct ClientRecord {
    ClientId id = 0;
    SlotList requests;
    std::size_t live = 0;
    bool gone = false;
  };
  struct Seat {
    Worker* worker = nullptr;
    std::uint32_t lane = 0;
    std::uint64_t free_ns = 0;  // when it will have done what it holds
  };
  struct LaneWork {  // that the lanes of a model hold
    std::uint64_t lanes = 0, least_ns = kNoDeadline, sum_ns = 0;
  };

  Entry* find(RequestId request);
  const Entry* find(RequestId request) const { return const_cast<Ledger*>(this)->find(request); }
  RequestId id_of(std::uint32_t slot) const { return std::uint64_t{entries_[slot].generation} << 32 | slot; }
  Worker* find_worker(Incarnation incarnation, ModelIndex* model = nullptr);
  const Worker* find_worker(Incarnation incarnation) const { return const_cast<Ledger*>(this)->find_worker(incarnation); }
  static Worker* find_worker(Model& model, Incarnation incarnation);

  Status check_state(const Model& model) const;
  Status check_shares(const Model& model, std::uint32_t place) const;
  Status check_deadline(Model& model, const Admission& admission, const Waiting& newcomer, std::uint64_t now_ns);
  std::uint64_t wait_ns(const Model& model, const Waiting& newcomer, std::uint64_t now_ns, bool exact) const;
  std::uint64_t left_ns(const Lane& lane, std::uint64_t now_ns) const;
  LaneWork lane_work(const Model& model, std::uint64_t now_ns, bool exact) const;
  std::uint64_t latest_start_ns(std::uint32_t slot, std::uint32_t rows) const;
  bool can_finish(std::uint32_t slot, std::uint32_t rows, std::uint64_t start_ns) const {
    return start_ns <= latest_start_ns(slot, rows);
  }

  std::uint32_t new_client(ClientId client);
  void drop_client_if_over(std::uint32_t place);
  std::uint32_t new_slot();
  std::uint32_t new_group();
  void enqueue(std::uint32_t slot);
  void unqueue(std::uint32_t slot);
  void left_queue(std::uint32_t slot);
  bool joins(const Model& model, const Entry& entry) const { return entry.joinable && entry.rows < model.limits.max_batch; }
  static std::uint32_t& rows_like(Model& model, const Entry& entry) {
    return model.rows_by_shape[entry.shape % model.rows_by_shape.size()];
  }
  /// It gains nothing by waiting for others.
  bool is_whole(Model& model, const Entry& entry) const {
    return !joins(model, entry) || rows_like(model, entry) >= model.limits.max_batch;
  }
  static bool has_room(const Lane& lane) {
    return lane.count < kMinCredits || (lane.work_ns < kCreditNs && lane.count < kMaxCredits);
  }
  Seat choose_lane(Model& model, bool idle_only, std::uint64_t now_ns);
  void dispatch_suspects(Model& model, std::uint64_t now_ns);
  void lease_group(Model& model, std::uint32_t leader, const Seat& seat, std::uint64_t now_ns);
  void add_to_group(std::uint32_t at, std::uint32_t slot);
  void end_lease(std::uint32_t slot, Worker& worker, std::uint64_t now_ns);
  void take_from_credit(Lane& lane, std::uint32_t group, std::uint64_t now_ns);
  std::vector<std::uint32_t> members_of(const Group& group, std::uint32_t first) const;

  Action& act(Action::Kind kind, std::uint32_t slot);
  void reply(std::uint32_t slot, StatusCode status, std::string message, bool released, std::uint64_t now_ns);
  void give_up(std::uint32_t slot, StatusCode status, std::string message, std::uint64_t now_ns);
  void run_ended_answered(std::uint32_t slot);
  void forget(std::uint32_t slot);

  struct Verdicts;
  void judge(const Worker& worker, std::span<const LaneEvidence> evidence, Verdicts& verdicts) const;
  DeathOutcome::Fate after_death(std::uint32_t slot, const Verdicts& verdicts, std::uint64_t now_ns);
  void quarantine(ModelIndex model, std::uint64_t hash, std::uint64_t now_ns);
  void quarantine_changed(ModelIndex model);
  void tick_model(ModelIndex index, std::uint64_t now_ns);
  void probe_if_due(ModelIndex index, std::uint64_t now_ns);
  Action& act(Action::Kind kind, ModelIndex model, Incarnation incarnation);

  std::vector<Entry> entries_;
  WaitingTable waiting_;        // by slot
  SlotLinkTable lists_;         // by slot: suspects of a model, members of a group
  SlotLinkTable client_lists_;  // by slot: requests of a client
  std::vector<std::uint32_t> free_;
  std::size_t used_ = 0;
  std::uint64_t arrivals_ = 0;
  std::vector<Group> groups_;
  std::vector<std::uint32_t> free_groups_;
  std::vector<ClientRecord> clients_;
  std::vector<std::uint32_t> free_clients_;
  std::unordered_map<ClientId, std::uint32_t> places_;
  ClientShares shares_;
  DeadlineWheel wheel_;
  std::vector<std::uint32_t> due_;
  std::vector<Model> models_;
  std::vector<Action> actions_;
  bool draining_ = false;
};

}  // namespace shoal::supervisor

// The ledger knows the state of every request. It is a pure state machine: it does no I/O and reads no clock.
//
//   admitted → queued ──────────────▶ leased(lane, attempt) → done | failed
//                ▲                      ▲   │
//                │         suspected ───┘   │ alone, on a worker that holds nothing else
//                │             ▲            │
//                └─────────────┴────────────┘ the worker died: only its pidfd says so
//
// Requests are leased in groups. A group is a batch of requests that run together; most groups have one member. A group is one
// credit of its lane.
//
// Every admitted request of a living client gets exactly one terminal reply (kForward or kReply). That reply gives the request's
// slots back to the client (`released`). If the reply came before the run ended, a later kRelease gives them back.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shoal/outcome.hpp"
#include "shoal/status.hpp"
#include "supervisor/route/askers.hpp"
#include "supervisor/route/breaker.hpp"
#include "supervisor/route/cost_estimates.hpp"
#include "supervisor/route/deadline_wheel.hpp"
#include "supervisor/route/flow_statistics.hpp"
#include "supervisor/route/histogram.hpp"
#include "supervisor/route/request_queue.hpp"

namespace shoal::supervisor {

using RequestId = std::uint64_t;  // generation << 32 | slot. Never 0; an id comes back only after 2^32 - 1 requests in its slot
using ModelIndex = std::uint32_t;
using Incarnation = std::uint64_t;  // one life of a worker; never used twice

/// The slot of a request. Tables outside the ledger use it as index.
constexpr std::uint32_t slot_of(RequestId request) { return static_cast<std::uint32_t>(request); }

struct LaneRef {
  Incarnation incarnation = 0;
  std::uint32_t lane = 0;
  friend bool operator==(const LaneRef&, const LaneRef&) = default;
};

struct Admission {
  ClientId client = 0;
  std::uint64_t flow = 0;  // whom the client asks for, if it is a gateway; 0 = itself
  std::uint64_t seq = 0;
  ModelIndex model = 0;
  std::int8_t priority = 0;         // a higher one goes before other requests of the client and flow
  std::uint64_t timeout_ns = 0;     // 0 = the model's
  std::uint64_t shape = 0;          // a hash; requests with equal shape and rows cost the same
  std::uint32_t rows = 1;           // the first dimension of its inputs, which is not part of `shape`
  bool joinable = false;            // it may run in a batch with others of its shape
  std::uint64_t message_bytes = 0;  // of tensors that its message brings
};

struct LaneReply {
  LaneRef lane;
  RequestId request = 0;
  std::uint16_t attempt = 0;
  StatusCode status = StatusCode::kOk;
  std::uint64_t compute_ns = 0;
  std::uint16_t batch = 0;  // number of requests that this run answered; 0 = not known
};

/// What a dead worker left in the status line of one lane. The ledger ignores what does not match its leases.
struct LaneEvidence {
  RequestId running_request = 0;
  std::uint64_t running_attempt = 0;
  std::uint64_t running_count = 1;  // number of requests that ran together, beginning with that one
  std::uint64_t running_hash = 0;   // hash of its inputs; 0 = not known
  bool crashed = false;             // the crash record is complete
  bool out_of_memory = false;       // the crash was an allocation that the worker's memory limit refused
  bool on_lane = false;             // this lane's own thread crashed
  bool sent_by_process = false;     // another process sent the signal, so the record is no evidence
  bool by_watchdog = false;         // our watchdog sent the signal, because it saw no step
  RequestId crash_request = 0;      // what the lane ran or compiled for; 0 = it was receiving
  RequestId compiling_request = 0;  // a request that is parked on this lane and whose program was being compiled
  std::string what;                 // like "signal 11 at address 0x0 in Convolution 'conv1'"
};

/// What a worker's death meant for one of the requests that the worker held.
struct DeathOutcome {
  enum class Fate { kRunsAgain, kRunsAlone, kAnsweredPoison, kAnsweredAborted, kAnsweredUnavailable, kWasAnswered };
  RequestId request = 0;
  ClientId client = 0;
  std::uint64_t flow = 0;
  std::uint64_t seq = 0;
  std::uint16_t begun = 0;   // runs begun so far, including the one that ended with the worker
  std::uint16_t blamed = 0;  // how many of those runs crashed because of this request
  bool was_running = false;
  Fate fate{};
};

/// Names the breaker's probe where a request id is expected.
inline constexpr RequestId kProbe = ~RequestId{0};

/// A lane that holds requests or owes the breaker an answer, with the request that it has held for longest.
struct BusyLane {
  ModelIndex model = 0;
  LaneRef lane;
  RequestId oldest = 0;
  std::uint64_t leased_ns = 0;
  bool parked = false;  // all its requests are parked
};

/// A decision of the ledger. Actions are carried out in their order; the kSend actions of a group follow each other.
struct Action {
  enum class Kind {
    kSend,        // send the request to its lane
    kForward,     // send the lane's reply, the one just received, to the client
    kReply,       // send the client a reply that the ledger made
    kRelease,     // tell the client that the request's slots are free
    kCancelRun,   // tell the worker that nobody waits for the request
    kForget,      // the request is over: free its payload
    kQuarantine,  // send quarantined(model) to the model's workers, or to the one named
    kProbe,       // let the worker answer the stored input of its model, then call probed()
  };
  Kind kind{};
  RequestId request = 0;
  ClientId client = 0;
  std::uint64_t flow = 0;
  std::uint64_t seq = 0;
  ModelIndex model = 0;
  LaneRef lane;                   // kSend, kCancelRun; kProbe and kQuarantine use its incarnation (0 = all workers)
  std::uint16_t attempt = 0;      // kSend
  std::uint16_t batch_size = 1;   // kSend: number of requests in the group
  std::uint16_t batch_index = 0;  // kSend: place of this request in the group
  bool alone = false;             // kSend: the request is a suspect
  bool hash_inputs = false;       // kSend: it was accused, and not only of taking too much memory: the hash is that of a copy
  std::uint8_t quarantine = 0;    // kSend: number of the quarantine list in force; 0 = the list is empty
  std::uint16_t attempts = 0;     // replies: number of runs begun
  StatusCode status = StatusCode::kOk;
  Ran ran = Ran::kNo;
  bool released = true;
  std::uint64_t queue_ns = 0;
  std::uint64_t compute_ns = 0;  // kForward: what the lane says, but no more than the time that it had
  std::string message;           // kReply
};

struct ModelLimits {
  std::size_t queue_limit = 1024;
  std::uint64_t timeout_ns = 0;    // 0 = none
  std::uint32_t max_batch = 1;     // rows that may run together
  std::uint64_t max_delay_ns = 0;  // how long a request waits for others to join it while a lane is idle
  std::uint64_t quarantine_ns = 600'000'000'000;
  /// What the messages of one group may bring at most: the caller sees to it. A lane holds no more than twice as much.
  std::uint64_t lane_message_bytes = ~std::uint64_t{0};
};

/// Limits for each client; for each flow, if the client is a gateway.
struct ClientShares {
  std::size_t in_flight = 0;  // requests that are not over; 0 = no limit
  double of_queue = 1;        // its share of a model's queue that is more than half full; if several flood it, each gets less
};

struct ModelCounts {
  std::uint64_t admitted = 0, refused = 0, rerun = 0, late = 0, worker_deaths = 0, orphaned = 0;
  std::uint64_t groups = 0, grouped = 0;     // batches of two or more requests, and the number of requests in them
  std::uint64_t too_late = 0;                // requests refused or given up because they could not finish in time
  std::uint64_t deaths_rerun = 0;            // deaths whose lane named a running request that then ran again
  std::array<std::uint64_t, 14> answered{};  // by StatusCode, including kOk
};

struct ModelView {
  const ModelCounts& counts;
  const Histogram& queue_ns;
  const Histogram& compute_ns;
  const Histogram& total_ns;
  const FlowStatistics& flows;
  std::size_t queued, running, suspected, quarantined;
  const Breaker& breaker;
};

/// The ledger of the requests of all models.
///   Threads  thread-bound
class Ledger {
 public:
  static constexpr int kMaxUnexplainedDeaths = 10;  // of workers that ran the request; then it is ABORTED
  static constexpr int kMaxDeathsBesideOthers = 3;  // by the crash of another request; then it runs alone
  static constexpr std::uint64_t kCreditNs = 200'000;
  static constexpr std::uint64_t kTimerNs = 4'000'000;  // tick() may be called this much late
  static constexpr std::uint32_t kMinCredits = 2, kMaxCredits = 64;
  static constexpr std::uint32_t kMaxParked = 64;             // groups of one asker, in all lanes of a model
  static constexpr std::uint64_t kHeldRetryNs = 100'000'000;  // retry_after_ms() of an asker that waits for its programs
  static constexpr std::size_t kMaxQuarantined = 1024;

  void set_client_shares(ClientShares shares) { shares_ = shares; }

  /// Returns the number of the new model: the lowest one that no model has.
  ModelIndex add_model(std::string name, ModelLimits limits);
  /// Refuses new requests with the reason from now on. Admitted requests go on, and run again after a death.
  void drain_model(ModelIndex model, std::string reason);
  /// Returns true when no request of the model is left: none waits, none runs, and all slots are released.
  bool model_idle(ModelIndex model) const { return models_[model].live == 0; }
  /// The model must be idle. Its number goes to the next model that is added. What its workers still say is ignored.
  void remove_model(ModelIndex model);
  /// Refuses new requests, and answers waiting ones with kUnavailable and the reason. Running requests go on, but do not run
  /// again after a death.
  void fail_model(ModelIndex model, const std::string& reason);
  ModelView model(ModelIndex model) const;

  /// Queues a request, and makes no action. Store its payload, then call dispatch(). Each kForget must have been performed
  /// before, because its slot may be used again.
  ///   Errors  kOverloaded (see retry_after_ms); kUnavailable: draining, the model failed, or its breaker is open (see
  ///           retry_after_ms); kDeadlineExceeded: the request cannot finish in time, because of what runs and waits before it
  Result<RequestId> admit(const Admission& admission, std::uint64_t now_ns);
  /// Gives waiting requests to lanes with credit.
  void dispatch(ModelIndex model, std::uint64_t now_ns);
  /// Between these two, dispatch() only notes the model, also when this class calls it. So requests are given to lanes when all
  /// events of a turn of the loop are known, once for each model that they touched. Only while more than half of a model's queue
  /// is full it gives them at once.
  void begin_turn() { in_turn_ = true; }
  void end_turn(std::uint64_t now_ns);
  /// After what time a request of the client and flow that was refused with kOverloaded or kUnavailable may succeed.
  std::uint32_t retry_after_ms(ModelIndex model, ClientId client, std::uint64_t flow, std::uint64_t now_ns) const;

  void worker_ready(ModelIndex model, Incarnation incarnation, std::uint32_t lanes, std::uint64_t now_ns);
  /// The worker is being ended: it gets no new requests anymore.
  void condemn(Incarnation incarnation);
  /// The worker gets no new requests anymore, and its end does not count as a death.
  void dismiss(Incarnation incarnation);
  /// The request could not be sent to its lane. Its whole group waits again, and its worker gets no new requests until retry().
  void undelivered(RequestId request);
  /// The worker gets requests again, unless it was condemned or dismissed.
  void retry(Incarnation incarnation, std::uint64_t now_ns);
  /// Returns false when the reply matches no lease. It is then counted as late, and nothing else happens.
  bool lane_replied(const LaneReply& reply, std::uint64_t now_ns);
  /// The request's group waits in its lane until its program is compiled. It takes no credit of the lane until it is answered.
  /// While an asker has kMaxParked such groups of a model, it has no turns there. A group counts for the asker of `request`, for
  /// as long as one of its requests is in it. Returns false, and nothing happens, when the request matches no lease, or was
  /// parked in this lease before.
  bool lane_parked(LaneRef lane, RequestId request, std::uint16_t attempt, std::uint64_t now_ns);
  /// The worker's pidfd reported, so no thread of the worker runs anymore. `evidence` has one entry per lane. Returns what
  /// happened to each request that the worker held, oldest first.
  std::vector<DeathOutcome> worker_died(Incarnation incarnation, std::span<const LaneEvidence> evidence, std::uint64_t now_ns);
  /// The result of a kProbe. A result that was not asked for is ignored.
  void probed(Incarnation incarnation, bool answered, std::uint64_t now_ns);
  /// The hashes of the inputs that the model's workers answer with kPoison.
  std::vector<std::uint64_t> quarantined(ModelIndex model) const;
  /// The number of that list, 1 to 255. It changes whenever the list does.
  std::uint8_t quarantine_number(ModelIndex model) const { return models_[model].quarantine_number; }

  /// Ends the requests of all its flows.
  void client_gone(ClientId client);
  /// Finds the request in whatever flow, and takes O(number of the client's requests).
  void cancel(ClientId client, std::uint64_t seq, std::uint64_t now_ns);
  /// Answers requests that are past their deadline, and does everything else that is due.
  void tick(std::uint64_t now_ns);
  std::optional<std::uint64_t> next_tick_ns(std::uint64_t now_ns) const;

  /// Refuses new requests from now on.
  void drain() { draining_ = true; }
  /// Answers all requests that are not answered yet.
  void fail_everything(StatusCode status, const std::string& message, std::uint64_t now_ns);
  bool idle() const { return used_ == 0; }

  /// Returns true while the request is leased to that lane.
  bool is_leased(RequestId request, LaneRef lane) const;
  /// How many requests the worker has answered, and how many it holds.
  std::uint64_t answered_by(Incarnation incarnation) const;
  std::uint32_t held_by(Incarnation incarnation) const;

  /// Lists the lanes that hold requests, and the lane that was probed. A parked request or a probe is named only if the lane
  /// holds nothing else.
  void busy_lanes(std::vector<BusyLane>& lanes) const;
  /// Returns false if busy_lanes() finds none for sure.
  bool has_busy_lanes() const;

  std::vector<Action>& actions() { return actions_; }

 private:
  friend struct LedgerState;  // tests/unit/supervisor/route: lets the explorer see the state
  enum class State : std::uint8_t { kFree, kQueued, kSuspected, kLeased };
  // What decides the request's turn is in waiting_, at the same slot.
  struct Entry {
    std::uint32_t generation = 0;  // of the slot's last request; 0 = it had none
    State state = State::kFree;
    bool answered = false;  // the terminal reply is sent; the entry only waits for the end of the run
    bool client_gone = false;
    bool is_hashed = false;  // when it runs alone: it was accused, and not of having taken too much memory
    bool suspect = false;    // must run alone, because it may be guilty, or because others crash beside it
    bool joinable = false;
    bool urgent = false;        // does not wait for others to join it
    bool was_leased = false;    // it is leased, or was
    bool is_parked = false;     // its lane has said so in this lease
    bool counts_death = false;  // when it is leased again, a death counts as survived
    std::uint16_t begun = 0, blamed = 0;
    std::uint8_t unexplained = 0, beside = 0;  // of the deaths while it ran: nobody was accused; only others were
    std::uint16_t attempt = 0;                 // of the current lease
    ModelIndex model = 0;
    std::uint32_t rows = 1;
    std::uint32_t group = kNoSlot;
    std::uint64_t shape = 0, seq = 0, admitted_ns = 0, leased_ns = 0, message_bytes = 0;
    LaneRef lease;
  };
  // Requests that run together. A group is one credit of its lane.
  struct Group {
    SlotList members;  // only those that are still leased, in the order they were sent
    std::uint32_t count = 0, rows = 0;
    std::uint32_t parked_for = kNoSlot;  // the asker that it counts for while it is parked and has requests of that asker
    std::uint64_t shape = 0, cost_ns = 0, message_bytes = 0;
    std::uint64_t compute_ns = 0;  // of the members that ended with kOk, from their replies
    std::uint32_t ran_rows = 0;    // rows of those members
    std::uint64_t cut_ns = 0;      // the longest time of a run that was stopped
    bool parked = false;           // waits in its lane for its program
    bool isolated = false;         // a suspect, alone on its worker
  };
  struct Lane {
    std::array<std::uint32_t, kMaxCredits> held;  // groups, in the order they were sent
    std::uint32_t count = 0;
    std::uint64_t work_ns = 0;        // predicted time of those groups
    std::uint64_t message_bytes = 0;  // and what their messages bring
    std::uint64_t since_ns = 0;       // when held[0] became the first
    std::uint64_t replied_ns = 0;     // time of the last reply: the next run began later
    SlotList parked;                  // groups, in the order they were parked
    std::uint32_t parked_count = 0;
  };
  struct Worker {
    Incarnation incarnation = 0;
    bool routable = true;
    bool condemned = false;  // never routable again
    bool dismissed = false;  // its end does not count as a death
    std::uint32_t held = 0;
    std::uint64_t answered = 0;
    std::vector<Lane> lanes;
  };
  struct Quarantined {
    std::uint64_t hash = 0, expires_ns = 0;
  };
  struct ModelRecord {
    std::string name;
    ModelLimits limits;
    RequestQueue queue;
    SlotList suspects;
    std::uint32_t suspected = 0;
    Incarnation ward = 0;  // the worker that runs only suspects; 0 = none
    bool in_use = true;    // false: no model has this number
    std::string failure;   // why the model failed; empty while it has not
    std::string draining;  // why new requests are refused; empty while they are not
    std::size_t live = 0;  // requests that are not forgotten yet
    std::uint32_t running = 0;
    std::uint32_t urgent = 0;           // number of urgent requests in the queue
    bool is_touched = false;            // end_turn() gives its requests to lanes
    std::vector<std::uint32_t> parked;  // by askers' places: how many parked groups they have
    // Queued rows that may join others. If two shapes share a place, or an asker has no turns, batches only get smaller.
    std::array<std::uint32_t, 64> rows_by_shape{};
    std::uint64_t wait_until_ns = kNoDeadline;  // when requests stop waiting for others to join them
    CostEstimates costs;
    Breaker breaker;
    std::vector<Quarantined> quarantine;  // oldest first
    std::uint8_t quarantine_number = 0;
    std::vector<Worker> workers;
    ModelCounts counts;
    Histogram queue_ns, compute_ns, total_ns;
    FlowStatistics flows;
  };
  struct Seat {
    Worker* worker = nullptr;
    std::uint32_t lane = 0;
    std::uint64_t free_ns = 0;  // when the lane will have finished what it holds
  };
  struct LaneWork {  // predicted work in the lanes of a model
    std::uint64_t lanes = 0, least_ns = kNoDeadline, sum_ns = 0;
    std::size_t idle = 0;  // of those lanes
  };

  Entry* find(RequestId request);
  const Entry* find(RequestId request) const { return const_cast<Ledger*>(this)->find(request); }
  RequestId id_of(std::uint32_t slot) const { return std::uint64_t{entries_[slot].generation} << 32 | slot; }
  Worker* find_worker(Incarnation incarnation, ModelIndex* model = nullptr);
  const Worker* find_worker(Incarnation incarnation) const { return const_cast<Ledger*>(this)->find_worker(incarnation); }
  static Worker* find_worker(ModelRecord& model, Incarnation incarnation);

  Waiting newcomer(const ModelRecord& model, const Admission& admission, std::uint64_t now_ns);
  Status check_admission(const ModelRecord& model, const Admission& admission, const Waiting& waiting,
                         std::uint64_t now_ns) const;
  static void count_refusal(ModelRecord& model, const Admission& admission, StatusCode code);
  void settle_run(std::uint32_t slot, const LaneReply& reply, std::uint64_t compute_ns);
  static void count_answer(ModelRecord& model, const Action& forward, std::uint64_t compute_ns, std::uint64_t total_ns);
  Status check_state(const ModelRecord& model) const;
  Status check_shares(const ModelRecord& model, std::uint32_t place) const;
  Status check_deadline(const ModelRecord& model, const Admission& admission, const Waiting& newcomer,
                        std::uint64_t now_ns) const;
  std::uint64_t wait_ns(const ModelRecord& model, const Waiting& newcomer, std::uint64_t now_ns, bool exact) const;
  std::uint64_t left_ns(const Lane& lane, std::uint64_t now_ns) const;
  LaneWork lane_work(const ModelRecord& model, std::uint64_t now_ns, bool exact) const;
  /// The latest start at which a run of so many rows ends in time. This may be a guess, so it only serves plans; is_too_late()
  /// decides whether a request is given up.
  std::uint64_t latest_start_ns(std::uint32_t slot, std::uint32_t rows) const;
  bool can_finish(std::uint32_t slot, std::uint32_t rows, std::uint64_t start_ns) const {
    return start_ns <= latest_start_ns(slot, rows);
  }
  bool is_too_late(std::uint32_t slot, std::uint64_t start_ns, std::uint64_t now_ns) const;

  std::uint32_t new_asker(ClientId client, std::uint64_t flow);
  std::uint32_t new_slot();
  std::uint32_t new_group();
  void enqueue(std::uint32_t slot);
  void unqueue(std::uint32_t slot);
  void left_queue(std::uint32_t slot);
  static bool joins(const ModelRecord& model, const Entry& entry) {
    return entry.joinable && entry.rows < model.limits.max_batch;
  }
  static std::uint32_t joining_rows(const ModelRecord& model, const Entry& entry) { return joins(model, entry) ? entry.rows : 0; }
  static std::uint32_t& rows_like(ModelRecord& model, const Entry& entry) {
    return model.rows_by_shape[entry.shape % model.rows_by_shape.size()];
  }
  /// Returns true if the request need not wait for others to join it.
  static bool is_whole(ModelRecord& model, const Entry& entry) {
    return !joins(model, entry) || rows_like(model, entry) >= model.limits.max_batch;
  }
  void count_parked(ModelRecord& model, Group& group, bool is_parked);
  bool has_member_of(const Group& group, std::uint32_t asker) const;
  std::string text_of(std::uint32_t asker) const;
  static std::size_t places_apart(const ModelRecord& model);
  static Status waits_for_shapes(const ModelRecord& model);
  static bool serves_all(const ModelRecord& model, const Worker& worker) {
    return worker.routable && worker.incarnation != model.ward;  // the ward runs suspects
  }
  static bool has_room(const ModelRecord& model, const Lane& lane) {
    if (lane.count < kMinCredits) return true;
    return lane.count < kMaxCredits && lane.work_ns < kCreditNs && lane.message_bytes <= model.limits.lane_message_bytes;
  }
  void give_to_lanes(ModelIndex model, std::uint64_t now_ns);
  Seat choose_lane(ModelRecord& model, std::uint64_t now_ns);
  void touch(ModelIndex index);
  void dispatch_suspects(ModelRecord& model, std::uint64_t now_ns);
  void give_up_late(std::uint32_t slot, std::uint64_t now_ns);
  bool waits_for_members(ModelRecord& model, std::uint32_t slot, std::uint64_t now_ns);
  std::uint32_t next_whole(ModelRecord& model, const Seat& seat);
  std::uint32_t form_group(ModelRecord& model, std::uint32_t leader, const Seat& seat);
  void give_credit(ModelRecord& model, std::uint32_t group, const Seat& seat, std::uint64_t now_ns);
  void lease_group(ModelRecord& model, std::uint32_t leader, const Seat& seat, std::uint64_t now_ns);
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
  struct Bill;
  std::vector<Bill> bills_of(const Worker& worker, const std::vector<std::uint32_t>& held, const Verdicts& verdicts,
                             std::uint64_t now_ns) const;
  void judge(const Worker& worker, std::span<const LaneEvidence> evidence, Verdicts& verdicts) const;
  std::vector<std::uint32_t> take_held(ModelRecord& model, const Worker& worker);
  void note_death(ModelIndex index, Incarnation incarnation, const Verdicts& verdicts, std::uint64_t now_ns);
  DeathOutcome after_death(std::uint32_t slot, const Verdicts& verdicts, std::uint64_t now_ns);
  Status why_not_again(std::uint32_t slot, const Verdicts& verdicts) const;
  void quarantine(ModelIndex model, std::uint64_t hash, std::uint64_t now_ns);
  void quarantine_changed(ModelIndex model);
  void tick_model(ModelIndex index, std::uint64_t now_ns);
  void probe_if_due(ModelIndex index, std::uint64_t now_ns);
  Action& act(Action::Kind kind, ModelIndex model, Incarnation incarnation);

  std::vector<Entry> entries_;  // by slot
  WaitingTable waiting_;        // by slot
  SlotLinkTable lists_;         // by slot: the suspects of a model, the members of a group
  std::vector<std::uint32_t> free_;
  std::size_t used_ = 0;
  std::uint64_t arrivals_ = 0;
  std::vector<Group> groups_;
  std::vector<std::uint32_t> free_groups_;
  SlotLinkTable group_links_;  // by group: the parked ones of a lane
  Askers askers_;
  ClientShares shares_;
  DeadlineWheel wheel_;
  std::vector<std::uint32_t> due_;
  std::vector<ModelRecord> models_;
  std::vector<Action> actions_;
  std::vector<ModelIndex> touched_;
  bool in_turn_ = false;
  bool draining_ = false;
};

}  // namespace shoal::supervisor

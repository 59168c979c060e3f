// The data plane: requests from clients to lanes, and replies back. It checks everything that they send.
//
//   clients ──ROUTER──▶ admission ──▶ ledger ──▶ actions ──ROUTER──▶ lanes of workers
//      ▲                                ▲                               │
//      └──────────── replies ───────────┴───── replies, deaths ◀────────┘
//
// It knows neither why a version serves nor how its processes are started: who owns them adds versions and routes, and reports
// what its workers do.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "shm/base/clock.hpp"
#include "shm/log/log.hpp"
#include "shm/wire/messages.hpp"
#include "shm/wire/transport.hpp"
#include "supervisor/catalog/catalog.hpp"
#include "supervisor/plane/clients.hpp"
#include "supervisor/plane/death_log.hpp"
#include "supervisor/plane/flight_archive.hpp"
#include "supervisor/plane/memory_shortage.hpp"
#include "supervisor/plane/message_memory.hpp"
#include "supervisor/process/event_loop.hpp"
#include "supervisor/process/processes.hpp"
#include "supervisor/process/socket_directory.hpp"
#include "supervisor/process/timers.hpp"
#include "supervisor/process/watchdog.hpp"
#include "supervisor/route/ledger.hpp"

namespace shoal::supervisor {

/// The names of lanes on the socket for messages.
constexpr wire::PeerId peer_of(LaneRef lane) { return lane.incarnation * wire::kMaxLanes + lane.lane; }
constexpr LaneRef lane_of(wire::PeerId peer) {
  return {peer / wire::kMaxLanes, static_cast<std::uint32_t>(peer % wire::kMaxLanes)};
}

/// A version whose requests the data plane routes.
struct RoutedVersion {
  VersionId id = 0;
  ModelIndex index = 0;  ///< its number in the ledger
  const ServedModel& served;
  Processes& processes;
  bool is_loaded = false;
  std::uint32_t signature = 0;  ///< of its inputs and outputs, once it has loaded
  bool awaits_idle = false;     ///< its owner wants to know when none of its requests is left
  /// Times since the pidfd of a dead worker was readable: until no request can go to the worker any more, and until a request
  /// that it held was sent again.
  Histogram unrouted_ns, sent_again_ns;
  /// Admitted requests with inputs, and answers with outputs, that travelled as frames.
  Copied copied_requests, copied_answers;

  std::uint64_t number() const { return served.files.version; }
  bool has_failed() const { return processes.state() == ModelState::kFailed; }
};

/// Bytes and messages that this process received, without tensors in arenas.
struct Traffic {
  std::uint64_t client_messages = 0, client_bytes = 0, lane_messages = 0, lane_bytes = 0, bad_messages = 0;
};

/// Is called from within receive_from_clients(), receive_from_lanes(), flush(), timers and the event loop.
class PlaneObserver {
 public:
  virtual ~PlaneObserver() = default;
  /// A control request. It may disconnect the client.
  virtual void control_received(Client& client, std::uint64_t seq, std::span<const std::byte> json) = 0;
  virtual void client_left(Client& client) = 0;
  /// Of the models that a new client can use. Valid until the next call of any function.
  virtual std::vector<std::string_view> descriptions() = 0;
  /// None of its requests is left.
  virtual void became_idle(const RoutedVersion& version) = 0;
};

///   Threads  thread-bound
class DataPlane final : public ClientObserver {
 public:
  static constexpr std::uint64_t kUnroutableRetryNs = 100'000'000;
  static constexpr std::uint64_t kFirstLookNs = 250'000'000, kLookEveryNs = 50'000'000;  // at lanes, by the watchdog
  static constexpr std::uint64_t kQuietP99s = 5;  // a lane without progress for so many p99s of its model is hung
  static constexpr std::uint64_t kSurplusLimitNs = 30'000'000'000;  // for a surplus worker to answer its requests
  static constexpr std::uint64_t kExitLimitNs = 2'000'000'000;      // from there to its end
  static constexpr std::size_t kLongestControl = 64 * 1024;

  /// What all requests and replies go through. All of these outlive the data plane.
  struct Means {
    const Clock& clock;
    wire::Transport& clients;
    wire::Transport& lanes;
    const SocketDirectory& directory;
    EventLoop& loop;
    Timers& timers;
    Logger& log;
    ReadThreads read_threads = supervisor::read_threads;
  };
  DataPlane(const Means& means, PlaneObserver& observer);
  ~DataPlane() override;

  /// Makes clients(), whose listen() opens the attach socket. The transports must be open.
  Status open();
  void apply_limits(const ClientLimits& limits);

  // ---- what is served ----

  RoutedVersion& add_version(VersionId id, const std::string& model, const ServedModel& served, Processes& processes);
  /// Its requests must be over (Ledger::model_idle).
  void remove_version(VersionId id);
  RoutedVersion& version(VersionId id) { return *versions_.at(id); }
  const RoutedVersion& version(VersionId id) const { return *versions_.at(id); }
  void set_route(std::uint32_t wire_id, ModelRoute route);
  void remove_route(std::uint32_t wire_id) { routes_.erase(wire_id); }
  bool serves_anything() const;
  /// A version has loaded. Then the heap is larger for good.
  void version_loaded(RoutedVersion& version, std::uint32_t signature);
  /// Refuses new requests of the version; the admitted ones go on.
  void retire(VersionId id, std::string reason) { ledger_.drain_model(version(id).index, std::move(reason)); }
  /// Ends the requests of the version that wait. Those that run go on.
  void end_requests(VersionId id, const std::string& reason);

  // ---- its workers ----

  void worker_ready(RoutedVersion& version, const WorkerProcess& worker);
  /// A surplus worker gets no new requests. It is told to end when it holds none.
  void worker_leaving(const WorkerProcess& worker);
  /// A worker that is being killed gets no new requests.
  void worker_ending(const WorkerProcess& worker) { ledger_.condemn(worker.incarnation); }
  void worker_probed(const WorkerProcess& worker, bool is_answered);
  /// Its requests run again elsewhere. `what` tells how it died.
  void worker_died(RoutedVersion& version, WorkerProcess& worker, std::string& what);

  // ---- a turn of the loop ----

  void begin_turn(std::uint64_t now_ns) {
    now_ns_ = now_ns;
    ledger_.begin_turn();
  }
  void receive_from_clients();
  void receive_from_lanes();
  /// The end of a turn: gives requests to lanes, sends what it has to send, and sets the timers that depend on what the requests
  /// do.
  void flush();
  /// This process did not run for some time: the watchdog forgets what it saw before.
  void stood_still();

  // ---- the end ----

  /// Refuses new requests and new clients from now on.
  void drain(const std::string& why);
  bool is_idle() const { return ledger_.idle(); }
  /// Answers what is not answered yet.
  void fail_everything(const std::string& why);

  // ---- for those who answer control requests ----

  /// Sends an answer. A client that does not read its answers is disconnected.
  void send_to_client(ClientId client, wire::Frames frames, const wire::Payload& payload = {});
  /// Whether an answer with that much beside its header may be sent. Errors: kOverloaded, naming the limit.
  Status check_answer(ClientId client, std::uint64_t bytes) const;

  /// Counts a control request like any other. Errors: kOverloaded, naming the limit.
  Status take_turn(Client& client) { return client.allowance.take_turn(limits_, now_ns_); }
  /// The key of the client's process; 0 for a client that is gone.
  std::int64_t process_of(ClientId client) const;

  Clients& clients() { return *clients_; }
  const Clients& clients() const { return *clients_; }
  const Ledger& ledger() const { return ledger_; }
  DeathLog& deaths() { return deaths_; }
  const DeathLog& deaths() const { return deaths_; }
  FlightArchive& flights() { return flights_; }
  const FlightArchive& flights() const { return flights_; }
  const Traffic& traffic() const { return traffic_; }
  std::uint64_t message_bytes() const { return memory_.bytes(); }
  /// The outputs that a lane may send in one message. 0 = no limit.
  std::uint64_t longest_reply_bytes() const;
  std::uint64_t now_ns() const { return now_ns_; }  ///< when this turn of the loop began

 private:
  struct RoutedLane {
    std::uint64_t last_message_ns = 0;  // when its last whole message was received, or when it was connected
    int socket_fd = -1;                 // libzmq's, as of its first message
  };
  struct RoutedWorker {
    RoutedVersion* version = nullptr;
    std::vector<RoutedLane> lanes;
    std::vector<std::uint64_t> attached;   // client ids, by the clients' places; 0 = none
    std::vector<std::uint64_t> to_detach;  // clients that are gone, but the worker's socket was full
    std::uint32_t unmatched = 0;           // replies and PARKEDs that belong to no request that it holds
    bool has_lost = false;                 // requests did not reach it: it is being killed, and what it says does not count
    RateLimit cancels{12'800'000};         // CANCEL_RUNs: 128 at once
    std::unique_ptr<Timer> leave;          // its limit, if it is surplus
  };

  // Clients.
  Status client_bound(Client& client) override;
  void client_gone(Client& client) override;
  void client_forgotten(Client& client) override;
  void handle_client_message(Client& client, wire::Parcel& parcel);
  void handle_request(Client& client, wire::Parcel& parcel);
  void handle_control(Client& client, const wire::Parcel& parcel);
  void handle_bad_message(Client& client, const wire::Parcel& parcel, const Status& why);
  static Status check_roles(const Client& client, const wire::RequestHeader& header);
  std::uint32_t retry_after_ms(ModelIndex model, ClientId client, std::uint64_t flow, StatusCode refusal) const;
  Result<RoutedVersion*> find_version(const wire::RequestHeader& header) const;
  Result<RoutedVersion*> check_request(Client& client, const wire::Parcel& parcel, std::uint32_t& wait_ms);
  Status check_tensors(Client& client, const wire::Parcel& parcel, const RoutedVersion& version);
  Result<RequestId> admit_request(const Client& client, const wire::Parcel& parcel, ModelIndex model);
  void keep_request(Client& client, wire::Parcel& parcel, RoutedVersion& version, std::uint32_t slot);
  void refuse_request(ClientId client, std::uint64_t seq, const Status& status, std::uint32_t retry_after_ms);
  void lost_answer(Client& client, const Status& why);
  void write_reply(wire::ReplyHeader header, ClientId client, const std::string& text);

  // Memory.
  void note_heap_at_start();
  void measure_heap();
  void watch_memory(std::uint64_t now_ns);
  struct Sender;
  std::vector<Sender> all_senders();
  void put_out_hoarder(std::uint64_t unfinished, std::uint64_t now_ns);
  /// While there are neither clients nor workers, nobody can fill the memory.
  bool may_be_filled() const { return memory_.is_limited() && (clients_->count() > 0 || !workers_.empty()); }

  // Lanes.
  void handle_lane_message(wire::PeerId peer, wire::Parcel& parcel);
  void count_unmatched(std::uint64_t incarnation);
  void report_death(const RoutedVersion& version, const WorkerProcess& worker, std::uint64_t answered,
                    std::vector<DeathOutcome> requests);
  Status attach_client(RoutedWorker& routed, const WorkerProcess& worker, const Client& client);
  static Status send_detaches(RoutedWorker& routed, const WorkerProcess& worker);
  void let_go_who_are_done();
  void retry_unroutable(std::uint64_t now_ns);

  // The watchdog.
  void watch_lanes(std::uint64_t now_ns);
  void judge_lane(const BusyLane& busy, RoutedVersion& version, const WorkerProcess& worker,
                  const std::vector<ThreadTimes>& threads, std::uint64_t starved_ns, LaneWatch& watch);

  // What the ledger decides.
  void set_timers();
  void perform();
  void perform(const Action& action);
  void send_group(std::span<const Action> group);
  Status send_to_lane(const Action& action);
  void undelivered(const Action& action, const WorkerProcess* worker, const Status& why);
  void send_quarantine(const Action& action);
  void send_probe(const Action& action);
  void forward_reply(const Action& action);
  void send_reply(const Action& action);
  void send_release(const Action& action);
  void cancel_run(const Action& action);
  void forget_request(const Action& action);

  const Clock& clock_;
  wire::Transport& client_transport_;
  wire::Transport& lane_transport_;
  const SocketDirectory& directory_;
  EventLoop& loop_;
  Timers& timers_;
  PlaneObserver& observer_;
  Logger& log_;
  const ReadThreads read_threads_;
  Ledger ledger_;
  std::unique_ptr<Clients> clients_;
  std::unordered_map<VersionId, std::unique_ptr<RoutedVersion>> versions_;
  std::vector<RoutedVersion*> models_;                    // by the ledger's numbers; null = a number without a model
  std::unordered_map<std::uint32_t, ModelRoute> routes_;  // by wire_id
  std::uint32_t last_wire_id_ = 0;
  std::unordered_map<Incarnation, RoutedWorker> workers_;
  std::vector<Incarnation> unroutable_;
  std::vector<Incarnation> leaving_;  // surplus workers that may still hold requests
  DeathLog deaths_;
  FlightArchive flights_;
  std::vector<wire::Parcel> requests_;  // by the ledger's slots
  std::vector<std::uint64_t> died_ns_;  // likewise: when the worker's pidfd reported, until it is sent again; 0 = it did not
  std::unordered_map<wire::PeerId, LaneWatch> watches_;                // of the lanes that have held a request for long
  std::unordered_map<Incarnation, std::vector<ThreadTimes>> threads_;  // as of its last round
  std::vector<BusyLane> busy_lanes_;

  // Reused from message to message.
  wire::Parcel incoming_;
  int turn_left_ = 0;                       // messages of clients, until the other sockets have their turn
  std::uint64_t control_answer_bytes_ = 0;  // of the answer to the control request that is handled
  wire::Request request_;
  wire::Reply reply_;
  std::vector<Action> actions_;
  std::vector<std::pair<ModelIndex, std::uint64_t>> sent_again_;  // in this turn: of what model, and when the worker had died
  wire::Parcel* reply_in_hand_ = nullptr;

  std::uint64_t now_ns_ = 0;
  Traffic traffic_;
  ClientLimits limits_;
  MessageMemory memory_;
  std::uint64_t heap_baseline_ = 0;  // what the daemon itself has of the heap
  std::uint64_t heap_at_start_ = 0;  // before clients could send anything
  std::uint64_t cut_off_bytes_ = 0;  // that libzmq keeps of peers which it cut off
  bool versions_changed_ = true;     // one has loaded, serves or is gone since the baseline was measured
  std::uint64_t lane_bytes_seen_ = 0;
  MemoryShortage shortage_;
  Timer ledger_tick_;       // when the ledger has something to do, or earlier
  Timer retry_unroutable_;  // when those workers get requests again, or what did not fit into their control sockets
  Timer lane_look_;         // of the watchdog, while something runs
  Timer memory_look_;
};

}  // namespace shoal::supervisor

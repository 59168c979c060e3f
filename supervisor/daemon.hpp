// The daemon: the loop that connects clients, ledger and processes. It checks everything that they send.
//
//   clients ──ROUTER──▶ ledger ──ROUTER──▶ lanes        zmq_poll over both ROUTERs and one epoll descriptor
//                          ▲                            (pidfds, control sockets, attach socket, signals)
//                          ├── deaths, from pidfds
//   wishes ────────────▶ catalog ──▶ processes of versions
#pragma once

#include <signal.h>

#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "shm/log/log.hpp"
#include "shm/model/version_entry.hpp"
#include "shm/wire/messages.hpp"
#include "shm/wire/socket.hpp"
#include "supervisor/catalog/catalog.hpp"
#include "supervisor/clients.hpp"
#include "supervisor/death_log.hpp"
#include "supervisor/flight_archive.hpp"
#include "supervisor/memory_shortage.hpp"
#include "supervisor/message_memory.hpp"
#include "supervisor/process/event_loop.hpp"
#include "supervisor/process/file_finder.hpp"
#include "supervisor/process/lateness.hpp"
#include "supervisor/process/model_processes.hpp"
#include "supervisor/process/watchdog.hpp"
#include "supervisor/repository/model_text.hpp"
#include "supervisor/route/ledger.hpp"
#include "supervisor/service_manager.hpp"
#include "supervisor/socket_directory.hpp"

namespace shoal::supervisor {

/// The names of lanes on the socket for messages.
constexpr wire::PeerId peer_of(LaneRef lane) { return lane.incarnation * wire::kMaxLanes + lane.lane; }
constexpr LaneRef lane_of(wire::PeerId peer) {
  return {peer / wire::kMaxLanes, static_cast<std::uint32_t>(peer % wire::kMaxLanes)};
}

/// The signals that a daemon takes by descriptor.
sigset_t daemon_signals();

struct DaemonOptions {
  std::vector<ModelRequest> models;          // of the command line
  std::filesystem::path configuration_file;  // absolute; empty: there is none
  std::filesystem::path worker_file;
  ServiceManager manager;
};

/// Bytes and messages that the daemon itself received, without tensors in arenas.
struct Traffic {
  std::uint64_t client_messages = 0, client_bytes = 0, lane_messages = 0, lane_bytes = 0, bad_messages = 0;
};

/// Threads: thread-bound
class Daemon final : public ClientObserver {
 public:
  static constexpr std::uint64_t kDrainLimitNs = 10'000'000'000;
  static constexpr std::uint64_t kExitLimitNs = 2'000'000'000;
  static constexpr std::uint64_t kUnroutableRetryNs = 100'000'000;
  static constexpr std::uint64_t kFirstLookNs = 250'000'000, kLookEveryNs = 50'000'000;  // at lanes, by the watchdog
  static constexpr std::uint64_t kQuietP99s = 5;  // a lane without progress for so many p99s of its model is hung
  static constexpr std::uint64_t kReportAgainNs = 100'000'000;
  static constexpr std::uint64_t kSurplusLimitNs = 30'000'000'000;  // for a surplus worker to answer its requests
  static constexpr std::uint64_t kReapDelayNs = 100'000'000;        // before that, pidfds report the ends of our own children

  /// The signals of daemon_signals() must be blocked in every thread before. Waits while the configuration is read.
  ///   Errors  those of the configuration; kUnavailable, kOverloaded, kDeadlineExceeded: it could not be read in time;
  ///           kCancelled: SIGTERM or SIGINT came meanwhile
  static Result<std::unique_ptr<Daemon>> start(DaemonOptions options, SocketDirectory directory, Logger& log);
  ~Daemon() override;

  /// Serves until a signal or a client stops it. Then answers the admitted requests, until the time limit is over.
  void run();

 private:
  class ModelVersion;
  struct RoutedLane {
    std::uint64_t last_message_ns = 0;  // when its last whole message was received, or when it was connected
    int socket_fd = -1;                 // libzmq's, as of its first message
  };
  struct RoutedWorker {
    ModelVersion* model = nullptr;
    std::vector<RoutedLane> lanes;
    std::vector<std::uint64_t> attached;   // client ids, by the clients' places; 0 = none
    std::vector<std::uint64_t> to_detach;  // clients that are gone, but the worker's socket was full
  };
  enum class Phase { kServing, kDraining, kStopping, kStopped };

  struct LeavingWorker {
    Incarnation incarnation = 0;
    ModelVersion* model = nullptr;
    std::uint64_t limit_ns = 0;
    bool is_told = false;
  };

  Daemon(DaemonOptions options, SocketDirectory directory, Logger& log);
  Status open_sockets();
  Status watch_signals();
  void handle_signal();
  Result<DaemonConfig> read_configuration();
  std::unique_ptr<FileSearch> find_configuration();
  Result<DaemonConfig> check_configuration(FileSearch& search) const;

  // The loop.
  std::chrono::milliseconds next_timeout(std::uint64_t now_ns) const;
  void postpone(std::uint64_t by_ns);
  void tick(std::uint64_t now_ns);
  void begin_drain(const std::string& why);
  void advance_shutdown(std::uint64_t now_ns);

  // Clients.
  Status client_bound(Client& client) override;
  void client_gone(Client& client) override;
  void client_forgotten(Client& client) override;
  bool receive_from_clients();
  void handle_client_message(Client& client, wire::Message& message);
  void handle_request(Client& client, wire::Message& message);
  std::uint32_t retry_after_ms(ModelIndex model, ClientId client, StatusCode refusal) const;
  Result<ModelVersion*> find_version(const wire::RequestHeader& header) const;
  Status check_request(const Client& client, const wire::Message& message, const ModelVersion& model) const;
  void handle_control(Client& client, const wire::Message& message);
  void handle_bad_message(Client& client, const wire::Message& message, const Status& why);
  ModelVersion* find_described(const Service* service, std::uint64_t version) const;
  void describe(ClientId client, std::uint64_t seq, const std::string& name, std::uint64_t version);
  void answer_waiting_describes();
  void send_trace(ClientId client, std::uint64_t seq, const std::string& model, std::uint64_t pid);
  Status check_control_rate(const Client& client) const;
  void charge_control_answer(ClientId client, std::uint64_t bytes);
  void send_control_reply(ClientId client, std::uint64_t seq, const Status& status, const std::string& json,
                          std::uint32_t retry_after_ms = 0);
  void send_to_client(ClientId client, wire::Frames head, const wire::Message* tail, std::size_t tail_first);
  /// Whether an answer with that much beside its header may be sent. Errors: kOverloaded, naming the limit.
  Status check_answer(ClientId client, std::uint64_t bytes);

  // Memory.
  void measure_heap();
  void watch_memory(std::uint64_t now_ns);
  std::uint64_t longest_reply_bytes() const;
  struct Sender;
  std::vector<Sender> all_senders();
  void put_out_hoarder(std::uint64_t unfinished, std::uint64_t now_ns);
  std::optional<std::uint64_t> next_memory_look_ns() const;

  // Lanes.
  bool receive_from_lanes();
  void handle_lane_message(wire::PeerId peer, const wire::Message& message);
  void worker_ready(ModelVersion& model, const WorkerProcess& worker);
  void worker_died(ModelVersion& model, WorkerProcess& worker);
  void report_death(const ModelVersion& model, const WorkerProcess& worker, std::uint64_t answered,
                    std::vector<DeathOutcome> requests);
  Status attach_client(RoutedWorker& routed, WorkerProcess& worker, const Client& client);

  // The watchdog.
  void watch_lanes(std::uint64_t now_ns);
  void judge_lane(const BusyLane& busy, ModelVersion& model, const WorkerProcess& worker, const std::vector<ThreadTimes>& threads,
                  std::uint64_t starved_ns, LaneWatch& watch);

  // What the ledger decides.
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
  void refuse_request(ClientId client, std::uint64_t seq, const Status& status, std::uint32_t retry_after_ms);
  void cancel_run(const Action& action);
  void write_reply(wire::ReplyHeader header, ClientId client, const std::string& text);

  // What is served: wishes, what the catalog decides, and facts for it.
  void handle_wish(Caller caller, const std::string& what, const nlohmann::json& asked);
  Status check_room(const ModelRequest& request, ClientId client) const;
  std::int64_t process_of(ClientId client) const;
  void reload_configuration();
  void advance_configuration();
  void take_configuration(DaemonConfig config);
  void apply_limits(const ClientLimits& limits);
  void advance_catalog(std::uint64_t now_ns);
  void take_found_files();
  void perform_catalog();
  void perform(FindFiles& action);
  void perform(const StopFinding& action);
  void perform(AddVersion& action);
  void perform(const SetWorkers& action);
  void perform(const SendProbe& action);
  void perform(const FailVersion& action);
  void perform(const RetireVersion& action);
  void perform(const EndRequests& action);
  void perform(const EndProcesses& action);
  void perform(const FreeVersion& action);
  void perform(SetRoute& action);
  void perform(const RemoveRoute& action);
  void perform(const ForgetModel& action);
  void perform(const AnswerCaller& action);
  void note_who_awaits_idle();
  ModelVersion* current_of(const std::string& model) const;
  std::uint64_t promised_bytes() const;
  void worker_leaving(ModelVersion& model, const WorkerProcess& worker);
  void advance_leaving_workers(std::uint64_t now_ns);
  void report_state();

  std::string list_json() const;
  std::string_view service_state(const Service& service) const;
  /// Whether a request is admitted that names this version, or none if it is the current one.
  bool lets_in(const Service& service, const CatalogVersion& version) const;
  static nlohmann::json finding_json(const Service& service, std::uint64_t now_ns);
  nlohmann::json version_json(const Service& service, const CatalogVersion& version, std::uint64_t now_ns) const;
  std::string stats_json() const;

  Logger& log_;
  SocketDirectory directory_;
  EventLoop loop_;
  wire::MessageContext context_;
  wire::Router client_router_, lane_router_;
  UniqueFd signals_;
  Ledger ledger_;
  std::unique_ptr<Clients> clients_;
  FileFinder files_;
  std::unique_ptr<FileSearch> reading_configuration_;  // after a SIGHUP
  struct Search {
    SearchId id = 0;
    ModelRequest request;
    std::unique_ptr<FileSearch> files;
  };
  std::vector<Search> searches_;
  Catalog catalog_;
  std::vector<std::unique_ptr<ModelVersion>> models_;  // by the ledger's numbers; null = a number without a model
  std::unordered_map<VersionId, ModelVersion*> versions_;
  std::unordered_map<std::uint32_t, ModelRoute> routes_;  // by wire_id
  std::unordered_map<Incarnation, RoutedWorker> workers_;
  std::vector<Incarnation> unroutable_;
  DeathLog deaths_;
  FlightArchive flights_;
  std::vector<wire::Message> payloads_;  // by the ledger's slots
  std::vector<std::uint64_t> died_ns_;   // likewise: when the worker's pidfd reported, until it is sent again; 0 = it did not
  std::unordered_map<wire::PeerId, LaneWatch> watches_;                // of the lanes that have held a request for long
  std::unordered_map<Incarnation, std::vector<ThreadTimes>> threads_;  // as of its last round
  std::vector<BusyLane> busy_lanes_;
  struct WaitingDescribe {
    ClientId client;
    std::uint64_t seq;
    std::string model;
    std::uint64_t version;
  };
  std::deque<WaitingDescribe> waiting_describes_;
  std::size_t describes_due_ = 0;  // so many of the first ones may have their answer now
  std::vector<LeavingWorker> leaving_workers_;
  Births births_;
  StuckZygotes stuck_zygotes_{loop_, log_};

  std::filesystem::path worker_file_, configuration_file_;
  std::vector<std::string> given_;  // models of the command line
  ServiceManager manager_;
  bool is_catalog_due_ = false;                   // something happened that it may wait for
  bool is_catalog_busy_ = false;                  // it waits for something
  std::optional<std::uint64_t> catalog_tick_ns_;  // when it does something without an event
  bool awaits_ready_ = true;                      // the service manager must still be told that all models are done
  std::string reported_;                          // to the service manager
  std::optional<std::uint64_t> report_again_ns_;  // when to send the report again for which its socket had no room
  std::uint64_t next_ping_ns_ = 0;

  // Reused from message to message.
  wire::Message incoming_;
  int turn_left_ = 0;  // messages of clients, until the other sockets have their turn
  wire::Request request_;
  wire::Reply reply_;
  std::vector<std::byte> frame_;
  std::vector<Action> actions_;
  const wire::Message* reply_in_hand_ = nullptr;

  std::uint64_t now_ns_ = 0;  // when this turn of the loop began
  Lateness lateness_;
  std::uint64_t started_ns_ = 0;
  std::uint64_t retry_unroutable_ns_ = 0;
  std::optional<std::uint64_t> look_ns_;  // when the watchdog looks at the lanes; none while nothing runs
  std::optional<std::uint64_t> reap_ns_;  // when children that nobody watches are reaped
  Phase phase_ = Phase::kServing;
  std::uint64_t phase_limit_ns_ = 0;
  Traffic traffic_;
  ClientLimits limits_;
  MessageMemory memory_;
  std::uint64_t heap_baseline_ = 0;  // what the daemon itself has of the heap
  std::uint64_t heap_at_start_ = 0;  // before clients could send anything
  bool versions_changed_ = false;    // one has loaded, serves or is gone since the baseline was measured
  std::uint64_t memory_look_ns_ = 0, lane_bytes_seen_ = 0;
  MemoryShortage shortage_;
};

}  // namespace shoal::supervisor

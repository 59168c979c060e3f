// The world around the supervisor: clients, zygotes, workers, operators and time, all simulated; DataPlane, Fleet, Catalog and
// Ledger are the real ones. One event happens at a time. After each of them the promises are checked.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "shm/base/clock.hpp"
#include "supervisor/fleet/fleet.hpp"
#include "supervisor/plane/data_plane.hpp"
#include "supervisor/process/lateness.hpp"
#include "tests/sim/event.hpp"
#include "tests/sim/processes.hpp"
#include "tests/sim/transport.hpp"

namespace shoal::test {

inline constexpr std::uint64_t kMs = 1'000'000;
inline constexpr std::uint64_t kArenaBytes = 1 << 20;  // of each arena of a client
inline constexpr std::string_view kLoaded = R"({"inputs": [], "outputs": [], "hash": "0"})";

/// What kind of world it is.
struct WorldRules {
  bool is_even = false;           ///< all requests are alike and take 1 ms: then nobody may be served more than its share
  bool is_hurried = false;        ///< each request has a deadline of 4 to 32 ms, about as long as some runs take
  std::set<std::uint64_t> muted;  ///< requests, by their number in the history: they are not sent
};

///   Threads  thread-bound
class World final : public supervisor::PlaneObserver, public supervisor::FleetObserver {
 public:
  /// `model` is a directory with a checkpoint. `directory` is the daemon's; its configuration is written there, too.
  World(const std::string& directory, std::string model, WorldRules rules = {});
  ~World() override;

  /// Lets it happen. Returns whether it could.
  bool happen(const Event& event);
  /// Lets everything end well: whatever is under way goes on until nothing is left to do. Then all promises must be kept.
  void settle();
  /// The first promise that was broken; empty: none.
  const std::string& broken() const { return processes_.broken; }
  /// What the last event meant, in words.
  const std::string& words() const { return words_; }
  /// The requests that were refused at once, by their number.
  const std::set<std::uint64_t>& refused() const { return refused_; }
  /// A hash of all that happened, without those requests.
  std::uint64_t trace() const { return trace_; }
  /// Is told what happens while everything ends. May be empty.
  std::function<void(EventKind kind, const std::string& words)> narrate;

 private:
  struct Asked {
    std::uint64_t number = 0;  // of all requests
    bool is_answered = false, is_guilty = false, is_cancelled = false;
    bool is_muted = false;  // it is not sent, and its client waits for the answer until the end of the turn
    std::optional<std::uint64_t> deadline_ns;
    std::uint64_t asked_ns = 0;
    Bytes content;
    supervisor::VersionId version = 0;  // that it reached; 0 = it may be refused
    int begun = 0;                      // runs that ended with their worker: it was accused, only others were, or nobody
    int accused = 0, beside = 0, unexplained = 0;
    bool is_hashed = false;          // when it runs alone: it was accused, and not only of having taken too much memory
    std::optional<StatusCode> said;  // by its lane
    std::optional<StatusCode> due;   // what the supervisor must answer now, because of a death
    std::uint64_t own_before = 0, others_sent = 0;  // its client's before it; others' that were sent to lanes while it waited
    bool is_sent = false;
  };
  struct SimClient {
    std::uint64_t id = 0;
    UniqueFd attach;
    std::uint64_t last_seq = 0;
    std::map<std::uint64_t, Asked> asked;  // by seq; gone when it is answered and released
    bool has_arenas = false, is_hostile = false;
  };
  struct Handshake {  // of a client that takes its time
    SimClient client;
    int steps = 0;               // 1: connected, 2: has sent ATTACH, 3: BOUND
    std::uint64_t lived_ns = 0;  // at its last step
  };
  struct Search {  // the process that looks for files
    UniqueFd control, pidfd;
    std::uint64_t lived_ns = 0;
  };
  struct LaneAt {
    SimWorker* worker = nullptr;
    std::size_t lane = 0;
    SimLane& operator*() const { return worker->lanes()[lane]; }
    SimLane* operator->() const { return &worker->lanes()[lane]; }
    wire::PeerId peer() const { return supervisor::peer_of({worker->incarnation(), static_cast<std::uint32_t>(lane)}); }
    explicit operator bool() const { return worker != nullptr; }
  };
  // What a lane holds, also what it has not read yet, as the ledger must see it.
  struct Leased {
    std::uint64_t request = 0, client = 0, seq = 0, group = 0;
    Held::State state{};
  };
  enum class Death { kKilled, kExited, kTorn, kSignalled, kScribbled, kCrashed };
  struct Crash {                      // of kCrashed, kTorn, kSignalled
    std::optional<std::size_t> lane;  // none: another thread
    bool compiles = false;            // the thread compiles for a request of that lane
    bool by_watchdog = false, out_of_memory = false;
  };
  struct Serving {                         // what is known of a version
    std::deque<std::uint64_t> crashes_ns;  // that no request is to blame for, while the breaker was closed
    bool was_closed = true;
    std::map<std::uint64_t, std::uint64_t> quarantined;  // hash of an input, until when
    std::optional<std::uint64_t> stuck_lived_ns;         // no worker can answer since
  };

  // supervisor::PlaneObserver, FleetObserver
  void control_received(supervisor::Client&, std::uint64_t, std::span<const std::byte>) override {}
  void client_left(supervisor::Client& client) override { fleet_.client_left(client.id); }
  std::vector<std::string_view> descriptions() override { return {}; }
  void became_idle(const supervisor::RoutedVersion&) override { fleet_.wake(); }
  void wish_answered(const supervisor::AnswerCaller& answer) override;
  void services_changed() override {}
  void fleet_advanced() override {}
  void limits_changed(const ClientLimits& limits) override;
  void access_changed(const AccessRules&) override {}

  bool happens(const Event& event);

  // Clients (world_clients.cpp).
  bool client_comes(std::uint64_t draw);
  bool handshake_goes_on(std::uint64_t draw);
  bool goes_on(Handshake& handshake);
  void check_handshakes();
  bool request(std::uint64_t draw);
  wire::Request make_request(SimClient& client, const supervisor::Service& service, std::uint64_t& draw, Bytes& content);
  bool cancel(std::uint64_t draw);
  bool client_dies(std::uint64_t draw);
  bool client_lies(std::uint64_t draw);
  bool lies_at_the_door(std::uint64_t draw);
  void read_answers();
  void read_answer(SimClient& client, const SimMessage& message);
  SimClient* some_client(std::uint64_t draw, bool is_hostile = false);
  Asked* find_asked(std::uint64_t client, std::uint64_t seq);

  // Lanes (world_lanes.cpp).
  LaneAt some_lane(std::uint64_t draw, const std::function<bool(LaneAt)>& fits);
  bool lane_takes(std::uint64_t draw);
  void check_taken(LaneAt lane, const wire::Request& request, const SimMessage& message);
  bool lane_begins(std::uint64_t draw);
  bool begin(LaneAt lane, std::uint64_t draw);
  void check_quarantine(LaneAt lane, const Held& held);
  bool lane_answers(std::uint64_t draw, StatusCode status);
  void answer(LaneAt lane, const Held& held, StatusCode status, std::uint64_t compute_ns, std::uint16_t batch);
  void say(LaneAt lane, const Held& held, StatusCode status, std::uint64_t compute_ns, std::uint16_t batch);
  bool lane_parks(std::uint64_t draw);
  bool lane_lies(std::uint64_t draw);
  bool lane_is_full(std::uint64_t draw);
  bool pace_changes(std::uint64_t draw);
  bool control_is_full(std::uint64_t draw);
  void read_control(SimWorker& worker) { note(worker.read_control()); }
  std::optional<std::vector<supervisor::ThreadTimes>> read_threads(pid_t process);

  // Deaths (world_deaths.cpp).
  std::vector<Leased> leased_by(SimWorker& worker, std::size_t lane);
  bool worker_ends(SimProcesses& model, std::uint64_t incarnation);
  bool worker_killed(std::uint64_t draw);
  bool worker_crashes(std::uint64_t draw);
  bool accident(std::uint64_t draw);
  bool worker_vanishes(std::uint64_t draw);
  bool dies(SimProcesses& model, std::uint64_t incarnation, Death death, Crash crash, std::uint64_t draw);
  bool note_lane(SimWorker& worker, std::size_t lane, Death death, const Crash& crash, std::vector<Leased>& begun,
                 std::vector<Leased>& accused);
  void say_last_words(SimWorker& worker);
  void write_record(SimWorker& worker, Death death, const Crash& crash, std::uint64_t draw);
  bool would_blame_again(const std::vector<Leased>& accused);
  void blame(SimWorker& worker, const std::vector<Leased>& begun, const std::vector<Leased>& accused, const Crash& crash);
  void check_blame();

  // Processes, searches, wishes (world_fleet.cpp).
  bool for_some_model(std::uint64_t draw, const std::function<bool(SimProcesses&)>& can);
  bool for_some_worker(std::uint64_t draw, const std::function<bool(SimProcesses&, std::uint64_t incarnation)>& can);
  bool load_lies(SimProcesses& model, std::uint64_t draw);
  Result<supervisor::Child> begin_search(const supervisor::SpawnOptions& options);
  enum class SearchEnd { kAnswers, kDies, kLies };
  bool search_ends(std::uint64_t draw, SearchEnd how);
  bool wish(supervisor::WishKind kind, std::uint64_t draw);
  std::string drawn_keys(std::uint64_t& draw, bool is_toml);
  bool hangup(std::uint64_t draw);

  // Promises (world_promises.cpp).
  void check_deadlines();
  void check_versions();
  void check_sent(const wire::RequestHeader& header);
  void check_share(const wire::RequestHeader& header);
  void check_refusal(const std::string& name, const Asked& asked, StatusCode status);
  const supervisor::ModelVersion* find_version(supervisor::VersionId id) const;  ///< null: it is gone
  Serving* serving_of(const SimProcesses& model, const supervisor::ModelVersion** version = nullptr);
  std::string unquiet() const;
  bool go_on();
  bool slow_lane_begins();

  void send(wire::PeerId from, SimMessage message, bool is_lane);
  void turn();
  /// Adds to what must be the same without the requests that are refused.
  void trace(const std::string& text);
  void wait(std::uint64_t ns);
  std::uint64_t next_timeout_ns() const;
  void breaks(const std::string& what) { processes_.breaks(what); }
  void note(const std::string& broken) {
    if (!broken.empty()) breaks(broken);
  }

  static Logger& log();
  const WorldRules rules_;
  supervisor::SocketDirectory directory_;
  const std::string model_, configuration_;
  ManualClock clock_;
  supervisor::EventLoop loop_;
  supervisor::Timers timers_;
  SimTransport client_transport_, lane_transport_;
  supervisor::DataPlane plane_;
  SimFleet processes_;
  std::vector<Search> searches_;
  supervisor::Fleet fleet_;
  supervisor::Lateness lateness_;
  std::uint64_t waits_from_ns_ = 0, turned_ns_ = 0;
  std::optional<std::uint64_t> waited_ns_;
  std::vector<SimClient> clients_;
  std::vector<Handshake> handshakes_;
  std::map<supervisor::VersionId, Serving> serving_;
  std::set<supervisor::VersionId> served_;
  std::set<std::uint64_t> wishes_;  // that wait for an answer
  std::set<std::uint64_t> refused_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> due_;  // client and seq: a death has decided what they hear
  std::uint64_t last_wish_ = 0, last_content_ = 0, longest_search_ns_ = 0, happened_ = 0, trace_ = 0;
  bool has_news_ = false;  // since the last turn
  std::string words_;
};

}  // namespace shoal::test

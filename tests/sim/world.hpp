// The world around the supervisor: clients, zygotes, workers, operators and time, all simulated; DataPlane, Fleet, Catalog and
// Ledger are the real ones. One event happens at a time. After each of them the promises are checked.
#pragma once

#include <cstdint>
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
#include "tests/sim/processes.hpp"
#include "tests/sim/transport.hpp"

namespace shoal::test {

enum class EventKind : std::uint8_t {
  kClientComes,
  kRequest,
  kCancel,
  kClientDies,
  kLaneTakes,
  kLaneAnswers,
  kLaneParks,
  kLaneFails,
  kLaneLies,
  kLaneFull,
  kSearchAnswers,
  kSearchDies,
  kLoads,
  kLoadFails,
  kWorkerReady,
  kWorkerFails,
  kWorkerDies,
  kProbeAnswered,
  kProbeFails,
  kZygoteExits,
  kLoad,
  kReload,
  kScale,
  kDrain,
  kUnload,
  kTime,
  kLongTime,
  kCount
};
std::string_view event_name(EventKind kind);

/// Something that happens. `draw` chooses to whom, and how.
struct Event {
  EventKind kind{};
  std::uint64_t draw = 0;
};

///   Threads  thread-bound
class World final : public supervisor::PlaneObserver, public supervisor::FleetObserver {
 public:
  /// `model` is a directory with a checkpoint.
  World(const std::string& directory, std::string model);
  ~World() override;

  /// Lets it happen. Returns whether it could.
  bool happen(const Event& event);
  /// Lets everything end well: whatever is under way goes on until nothing is left to do. Then all promises must be kept.
  void settle();
  /// The first promise that was broken; empty: none.
  const std::string& broken() const { return broken_; }
  /// What the last event meant, in words.
  const std::string& words() const { return words_; }

 private:
  struct Asked {
    bool is_answered = false;
    std::optional<std::uint64_t> deadline_ns;
    Bytes content;
  };
  struct SimClient {
    std::uint64_t id = 0;
    UniqueFd attach;
    std::uint64_t last_seq = 0;
    std::map<std::uint64_t, Asked> asked;  // by seq; gone when it is answered and released
  };
  struct Search {  // the process that looks for files
    UniqueFd control, pidfd;
  };
  struct Held {  // by a lane
    wire::RequestHeader header{};
    Bytes content;
    bool is_parked = false;
  };

  // supervisor::PlaneObserver, FleetObserver
  void control_received(supervisor::Client&, std::uint64_t, std::span<const std::byte>) override {}
  void client_left(supervisor::Client& client) override { fleet_.client_left(client.id); }
  void became_idle(const supervisor::RoutedVersion&) override { fleet_.wake(); }
  void wish_answered(const supervisor::AnswerCaller& answer) override;
  void services_changed() override {}
  void limits_changed(const ClientLimits&) override {}

  bool client_comes();
  bool request(std::uint64_t draw);
  bool cancel(std::uint64_t draw);
  bool client_dies(std::uint64_t draw);
  void read_answers();
  void read_answer(SimClient& client, const SimMessage& message);
  void check_deadlines();
  void check_routes();
  bool lane_takes(std::uint64_t draw);
  bool lane_answers(std::uint64_t draw, StatusCode status);
  bool lane_parks(std::uint64_t draw);
  bool lane_lies(std::uint64_t draw);
  bool lane_is_full(std::uint64_t draw);
  Result<supervisor::Child> begin_search(const supervisor::SpawnOptions& options);
  bool search_ends(std::uint64_t draw, bool with_answer);
  bool wish(supervisor::WishKind kind, std::uint64_t draw);
  void send(wire::PeerId from, SimMessage message, bool is_lane);
  void turn();
  void pass(std::uint64_t ns);
  void breaks(const std::string& what);
  bool for_some_model(std::uint64_t draw, const std::function<bool(SimProcesses&)>& can);
  bool for_some_worker(std::uint64_t draw, const std::function<bool(SimProcesses&, std::uint64_t incarnation)>& can);
  std::vector<Held>* some_lane(std::uint64_t draw, wire::PeerId& lane, const std::function<bool(const std::vector<Held>&)>& fits);
  bool worker_ready(SimProcesses& processes, std::uint64_t incarnation);
  bool worker_died(SimProcesses& processes, std::uint64_t incarnation);
  SimClient* some_client(std::uint64_t draw);
  bool is_quiet() const;
  std::string unquiet() const;
  bool go_on();

  static Logger& log();

  ManualClock clock_;
  SimTransport client_transport_, lane_transport_;
  supervisor::SocketDirectory directory_;
  supervisor::EventLoop loop_;
  SimFleet processes_;
  const std::string model_;
  std::vector<Search> searches_;
  supervisor::DataPlane plane_;
  supervisor::Fleet fleet_;
  std::vector<SimClient> clients_;
  std::map<wire::PeerId, std::vector<Held>> lanes_;  // of living workers that have been ready
  std::set<supervisor::VersionId> serving_;
  std::set<std::uint64_t> wishes_;  // that wait for an answer
  std::uint64_t last_wish_ = 0, last_content_ = 0;
  std::string broken_, words_;
};

}  // namespace shoal::test

// The catalog knows which models are to be served, and leads each of them there. It is a pure state machine, like the ledger: it
// does no I/O, reads no clock, and touches no process. Wishes and facts go in, actions come out.
//
//   a service      wish: load            files found            all of its new versions ready
//      (absent) ──────────────▶ finding ─────────────▶ preparing ────────────────────────────▶ settling ───▶ settled
//                                  ▲                       │ one failed: as it was before        │ old ones     │
//                                  └───── wish: reload ────┴─────────────────────────────────────┴ gone, or ────┘
//                                                                                                  30 s
//      any ──wish: unload──▶ its name is free; its versions leave ──▶ (absent)
//
//   a version      kComing ──(the flip)──▶ kServing ──(replaced, unloaded)──▶ kLeaving ──▶ freed
//                     └──────(it or another of its change failed, or it is no longer wanted)──▶ kLeaving
//
// A change is made as a whole or not at all: the new versions serve when all of them are ready, and only then the old ones leave.
// A reload with other keys that comes while a change is under way replaces it, and takes over what that one has prepared. One
// with the same keys has its turn after it. `scale` and `drain` go on beside a load or reload.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "shm/log/log.hpp"
#include "shm/model/version_entry.hpp"
#include "shoal/result.hpp"
#include "supervisor/route/ledger.hpp"

namespace shoal::supervisor {

using VersionId = std::uint64_t;  // never used twice
using SearchId = std::uint64_t;   // likewise

/// A client's control request that is answered when its wish has come true.
struct Caller {
  ClientId client = 0;
  std::uint64_t seq = 0;
  friend bool operator==(const Caller&, const Caller&) = default;
};

enum class WishKind : std::uint8_t { kLoad, kReload, kScale, kDrain, kUnload };
std::string_view wish_name(WishKind kind);

/// What a client asks for.
struct Wish {
  WishKind kind{};
  std::string model;
  std::optional<ModelRequest> request;  ///< kLoad; kReload, if the model is to be loaded with other keys than before
  int workers = 0;                      ///< kScale
  bool force = false;                   ///< kReload: versions that have not changed, too
  Caller caller;
};

/// What the processes and requests of a version are like.
struct VersionFacts {
  int ready = 0, alive = 0;      ///< workers
  bool has_failed = false;       ///< it will never serve
  bool is_stalled = false;       ///< starts of its processes fail again and again
  bool lacks_resources = false;  ///< because descriptors, memory or process ids are missing
  bool can_answer = false;       ///< a worker is ready, the breaker lets requests through, and not all are held by stuck workers
  bool is_idle = true;           ///< none of its requests is left
  std::size_t requests = 0;      ///< that wait or run
  bool is_gone = false;          ///< none of its processes is left
  std::string reason;            ///< why it has failed, or is stalled
  StatusCode failure = StatusCode::kFailedPrecondition;
};

/// How a wish ended.
struct WishResult {
  std::string model, outcome;
  std::optional<std::uint64_t> version;  ///< the current one
  std::vector<std::uint64_t> versions;   ///< those that serve
  int workers = 0;                       ///< of the current version
  std::uint64_t took_ns = 0;
};

/// What requests for a model reach.
struct ModelRoute {
  struct Target {
    std::uint64_t number = 0;
    VersionId version = 0;
    friend bool operator==(const Target&, const Target&) = default;
  };
  std::string name;
  bool is_drained = false;      ///< it takes no new requests
  std::vector<Target> targets;  ///< the versions that serve, the lowest first; also those that have failed
  VersionId current = 0;        ///< for requests that name no version; 0 = none
  std::string reason;           ///< why there is none
  std::string served;           ///< "1, 3", or "none": the versions that have not failed
  Status no_such_version(std::uint64_t number) const;
  friend bool operator==(const ModelRoute&, const ModelRoute&) = default;
};

// ---- actions, in the order in which they must be carried out ----

/// Look for the files of a model; the answer goes to found(). Without a client the daemon itself asks.
struct FindFiles {
  SearchId search = 0;
  ModelRequest request;
  ClientId client = 0;
};
struct StopFinding {
  SearchId search = 0;
};
/// Add the version and start its processes. If there is too little memory, it is waited for so long.
struct AddVersion {
  VersionId version = 0;
  std::string model;
  VersionEntry entry;
  std::uint64_t patience_ns = 0;
};
struct SetWorkers {
  VersionId version = 0;
  int workers = 0;
};
/// Have one of its workers answer the model's stored input; the answer goes to probed().
struct SendProbe {
  VersionId version = 0;
};
struct FailVersion {
  VersionId version = 0;
  std::string reason;
};
/// It gets no new requests. Those that it has go on.
struct RetireVersion {
  VersionId version = 0;
  std::string reason;
};
/// End the requests that it still has.
struct EndRequests {
  VersionId version = 0;
  std::string reason;
};
/// End its processes; `kill`: they were asked before and did not end.
struct EndProcesses {
  VersionId version = 0;
  bool kill = false;
};
/// Nothing of it is left.
struct FreeVersion {
  VersionId version = 0;
};
/// What requests reach under a model's number, from now on.
struct SetRoute {
  std::uint32_t wire_id = 0;
  ModelRoute route;
};
/// The model's number leads nowhere any more, and never will again.
struct RemoveRoute {
  std::uint32_t wire_id = 0;
};
/// Nothing of an unloaded model is left.
struct ForgetModel {
  std::string model;
};
struct AnswerCaller {
  Caller caller;
  Status status;
  WishResult result;
};

using CatalogAction = std::variant<FindFiles, StopFinding, AddVersion, SetWorkers, SendProbe, FailVersion, RetireVersion,
                                   EndRequests, EndProcesses, FreeVersion, SetRoute, RemoveRoute, ForgetModel, AnswerCaller>;

/// One version of a model.
struct CatalogVersion {
  enum class Stage : std::uint8_t { kComing, kServing, kLeaving };
  VersionId id = 0;
  VersionEntry entry;
  Stage stage = Stage::kComing;
  int workers = 1;  ///< wanted
  VersionFacts facts;
  bool is_probed = false;
  std::optional<std::uint64_t> probe_limit_ns;  ///< set while a probe is not answered
  std::optional<std::uint64_t> leave_limit_ns;  ///< first for its requests, then for its processes
  std::optional<std::uint64_t> stuck_limit_ns;  ///< for its requests; set while no worker of it can answer
  bool is_ended = false;                        ///< its processes were told to end

  std::uint64_t number() const { return entry.model.files.version; }
  bool serves() const { return stage == Stage::kServing; }
  bool is_ready() const { return is_probed && !facts.has_failed && facts.ready >= workers; }
  bool cannot() const { return facts.has_failed || facts.is_stalled; }
};

/// A load or reload that is under way. If a load fails that a client asked for, the model is removed. Models of the command line
/// and of the configuration stay, and show why they failed.
struct CatalogChange {
  /// A version that stays, and gets another number of workers. Missing ones come before the flip, surplus ones leave after it.
  struct Kept {
    CatalogVersion* version = nullptr;
    int before = 0, wanted = 0;
  };
  bool is_load = false;      ///< nothing of the model was served before
  bool ends_drain = false;   ///< a client asked for it
  bool is_forced = false;    ///< versions that have not changed are loaded again
  bool names_keys = false;   ///< false: the keys are those that are in force when it begins
  bool has_changed = false;  ///< what is served
  ModelRequest request;
  SearchId search = 0;                             ///< 0: over
  bool goes_on_without = false;                    ///< if the search fails, with what is below: the keys are the same
  std::optional<std::vector<VersionEntry>> found;  ///< not acted on yet
  // Until the files are found: as of the change before, from which this one takes over.
  std::vector<CatalogVersion*> coming;   ///< serve when all of them are ready
  std::vector<CatalogVersion*> leaving;  ///< leave then
  std::vector<Kept> kept;
  std::optional<std::uint64_t> settling_until_ns;  ///< set by the flip
  std::vector<Caller> callers;
  std::uint64_t begun_ns = 0;

  /// Null if that version is not kept, or is not known to be.
  Kept* find_kept(const CatalogVersion& version);
};

struct CatalogScaling {
  /// What the numbers of a version were, also those of the load or reload under way (Kept).
  struct Before {
    VersionId version = 0;
    int workers = 0;
    int kept_before = 0, kept_wanted = 0;
  };
  std::vector<Before> before;
  std::optional<int> override_before;         ///< of the service's request
  std::optional<int> change_override_before;  ///< of the request of the load or reload under way
  std::vector<Caller> callers;
  std::uint64_t begun_ns = 0;
};

/// While no worker can answer, its callers wait no longer than kLeaveLimitNs. The model stays closed then.
struct CatalogDrain {
  std::optional<std::uint64_t> stuck_limit_ns;
  std::vector<Caller> callers;
  std::uint64_t begun_ns = 0;
};

enum class Origin : std::uint8_t { kCommandLine, kConfiguration, kCommand };

/// One name that clients know, and its versions.
struct Service {
  std::string name;
  std::uint32_t wire_id = 0;  ///< belongs to it forever
  Origin origin = Origin::kCommand;
  ModelRequest request;                                   ///< of the last load or reload that succeeded
  std::vector<std::unique_ptr<CatalogVersion>> versions;  ///< the lowest first; also those that come and leave
  const CatalogVersion* current = nullptr;                ///< answers requests that name no version: the highest that serves
  bool is_drained = false;                                ///< takes no new requests
  std::string last_failure;                               ///< of the last change; empty when it succeeded
  std::optional<CatalogChange> change;
  std::optional<CatalogChange> next;  ///< begins after `change`; if it names keys, then the same
  std::optional<CatalogScaling> scaling;
  std::optional<CatalogDrain> drain;
  std::vector<Caller> unload_callers;
  bool is_unloading = false;
  std::uint64_t unload_begun_ns = 0;
  ModelRoute route;  ///< as of the last SetRoute

  /// Null when that version does not serve; 0 is the current one.
  const CatalogVersion* serving(std::uint64_t number) const;
  std::vector<std::uint64_t> served_versions() const;
  /// Whether a client waits for the change under way. While nothing serves, a scale waits for it, too.
  bool is_awaited() const {
    return change && (!change->callers.empty() || (scaling && !scaling->callers.empty() && served_versions().empty()));
  }
  std::string served_text() const;  ///< "1, 3", or "none"
  /// Whether that version (0: any) may serve soon.
  bool waits_for(std::uint64_t number) const;
  /// Whether it is loaded on the daemon's own account, for the first time: then each version serves as soon as it can, and
  /// nothing fails because something is missing for a while, whoever else waits for it.
  bool loads_each_alone() const { return change && change->is_load && origin != Origin::kCommand; }
  /// Why it does not serve.
  std::string reason() const;
};

/// Does this answer to a version's probe show that it can serve? Without a stored input the probe is zeros of the smallest shape,
/// and a refusal of these counts, too.
bool answers_probe(const Status& status, const ModelConfig& config);

///   Threads  thread-bound
class Catalog {
 public:
  static constexpr std::uint64_t kSettlingLimitNs = 30'000'000'000;  // a change waits so long for replaced versions to end
  static constexpr std::uint64_t kProbeLimitNs = 60'000'000'000;
  /// For an unloaded version to answer its requests; without a worker that can, also for a replaced or drained one.
  static constexpr std::uint64_t kLeaveLimitNs = 30'000'000'000;
  static constexpr std::uint64_t kExitLimitNs = 2'000'000'000;
  static constexpr std::uint64_t kMemoryPatienceNs = 5'000'000'000;  // of loads at the daemon's start
  static constexpr std::size_t kMostCallers = 1024;                  // that may wait for one model

  explicit Catalog(Logger& log) : log_(log) {}

  /// 0 = no limit. Models that are served already stay.
  void limit_services(std::size_t most) { most_services_ = most; }
  /// Takes up a wish. If it is taken up, its caller is answered when it has come true, or when it has failed or was replaced.
  ///   Errors  kNotFound, kFailedPrecondition, kOverloaded, kInvalidArgument: the wish cannot be taken up; nothing has changed
  Status ask(Wish wish, std::uint64_t now_ns);
  /// Serves a model of the command line.
  void serve(const ModelRequest& request, Origin origin, std::uint64_t now_ns);
  /// These are the models of the configuration now. Models that were loaded otherwise stay. All files are looked for again.
  void configure(std::vector<ModelRequest> models, std::uint64_t now_ns);
  /// Returns whether the client waited for anything.
  bool caller_gone(ClientId client);
  /// Nothing is taken up or looked for any more, and no version is added. Answers all callers with `why`.
  void close(const Status& why);

  /// The answer to FindFiles. An answer to a search that was stopped is ignored.
  void found(SearchId search, Result<std::vector<VersionEntry>> entries);
  /// The answer to SendProbe.
  void probed(VersionId version, const Status& status);
  /// No worker was ready for it any more, or the one that was did not take it.
  void probe_not_sent(VersionId version);

  /// Goes as far as the facts allow. Carry out the actions, and call it again if facts have changed since.
  using Facts = std::function<VersionFacts(const CatalogVersion&)>;
  void advance(const Facts& facts, std::uint64_t now_ns);
  /// Whether anything is under way, so that advance() must be called when facts change.
  bool is_busy() const;
  std::optional<std::uint64_t> next_tick_ns() const;
  /// The process did not run for so long: no limit counts that time.
  void postpone(std::uint64_t by_ns);

  std::vector<CatalogAction>& actions() { return actions_; }

  const Service* find(const std::string& name) const;
  const std::vector<std::unique_ptr<Service>>& services() const { return services_; }  ///< by wire_id
  const std::vector<std::unique_ptr<Service>>& unloading() const { return unloading_; }
  /// Whether a client waits until this version serves.
  bool is_asked(VersionId version) const;
  Status no_such_model(const std::string& name) const;  ///< names those that exist

 private:
  using Callers = std::vector<Caller>;

  Service& add_service(ModelRequest request, Origin origin);
  Service* find_mutable(const std::string& name);
  CatalogVersion* find_version(VersionId id);  // null in a service that is being unloaded
  Status take_up(Service& service, Wish wish, std::uint64_t now_ns);
  void request_change(Service& service, CatalogChange asked, std::uint64_t now_ns);
  void begin_change(Service& service, CatalogChange asked, std::uint64_t now_ns);
  void take_over(Service& service, CatalogChange& asked);
  void begin_next(Service& service, std::uint64_t now_ns);
  Status begin_scaling(Service& service, const Wish& wish, std::uint64_t now_ns);
  void begin_drain(Service& service, const Caller& caller, std::uint64_t now_ns);
  void begin_unload(Service& service, Callers callers, std::uint64_t now_ns);
  void drop_contradicted(Service& service, const ModelRequest& request);
  void undo_scaling(Service& service);
  void answer(const Service& service, Callers& callers, const Status& status, std::string_view outcome, std::uint64_t begun_ns,
              std::uint64_t now_ns);
  void cancel(const Service& service, Callers& callers, std::string_view because);
  static std::vector<Callers*> all_callers(Service& service);

  void advance_service(Service& service, const Facts& facts, std::uint64_t now_ns);
  bool advance_leaving(const Service& service, CatalogVersion& version, std::uint64_t now_ns);
  void advance_change(Service& service, std::uint64_t now_ns);
  void place(Service& service);
  CatalogVersion& add_version(Service& service, VersionEntry entry);
  void advance_probe(const Service& service, CatalogVersion& version, std::uint64_t now_ns);
  void advance_each_alone(Service& service, std::uint64_t now_ns);
  void advance_whole(Service& service, std::uint64_t now_ns);
  void advance_scaling(Service& service, std::uint64_t now_ns);
  void advance_drain(Service& service, std::uint64_t now_ns);
  static void put_in_force(Service& service, const ModelRequest& request);
  void finish_change(Service& service, std::uint64_t now_ns);
  void fail_change(Service& service, const std::string& reason, StatusCode code, std::uint64_t now_ns);
  void end_service(Service& service, std::uint64_t now_ns);
  void serve_version(const Service& service, CatalogVersion& version);
  void leave(const Service& service, CatalogVersion& version, std::optional<std::uint64_t> limit_ns);
  void set_workers(CatalogVersion& version, int workers);
  void move_unloading();
  static void choose_current(Service& service);
  void set_route(Service& service);
  bool is_leaving(const std::string& name) const;

  Logger& log_;
  std::vector<std::unique_ptr<Service>> services_;   // by wire_id
  std::vector<std::unique_ptr<Service>> unloading_;  // their names are free
  std::vector<CatalogAction> actions_;
  std::size_t most_services_ = 0;
  std::uint32_t last_wire_id_ = 0;
  VersionId last_version_ = 0;
  SearchId last_search_ = 0;
  std::optional<Status> closed_;
};

}  // namespace shoal::supervisor

// The fleet: the versions that exist, with their processes. It carries out what the catalog decides, and tells it what comes of
// that.
//
//   wishes, configuration ──▶ Catalog ──actions──▶ ModelVersion ─ ModelProcesses     (zygote and workers)
//                               ▲ ▲                     │  │
//            files found ───────┘ └──────── facts ──────┘  └──▶ DataPlane            (versions, routes, workers)
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "shm/log/log.hpp"
#include "supervisor/catalog/catalog.hpp"
#include "supervisor/fleet/model_version.hpp"
#include "supervisor/plane/data_plane.hpp"
#include "supervisor/process/event_loop.hpp"
#include "supervisor/process/file_finder.hpp"
#include "supervisor/process/model_processes.hpp"
#include "supervisor/repository/available_memory.hpp"
#include "supervisor/repository/model_text.hpp"

namespace shoal::supervisor {

struct FleetOptions {
  std::vector<ModelRequest> models;          ///< of the command line
  std::filesystem::path configuration_file;  ///< absolute; empty: there is none
  std::filesystem::path worker_file;
  std::filesystem::path fetch_directory;  ///< where that leaves models; empty: nowhere
  std::filesystem::path fetch_file;       ///< shoal-fetch
  std::uint64_t fetch_limit_ns = 0;       ///< for one fetch; it ends itself before
  MakeProcesses make_processes = {};      ///< none: ModelProcesses, which are real
  FileFinder::Spawn spawn_finder = spawn;
};

class FleetObserver {
 public:
  virtual ~FleetObserver() = default;
  virtual void wish_answered(const AnswerCaller& answer) = 0;
  /// What is served, or may be served soon, has changed.
  virtual void services_changed() = 0;
  /// The fleet has gone as far as it can: summary() and is_settled() may have changed.
  virtual void fleet_advanced() = 0;
  virtual void limits_changed(const ClientLimits& limits) = 0;
  virtual void access_changed(const AccessRules& access) = 0;
};

///   Threads  thread-bound
class Fleet {
 public:
  /// All but the options outlive this.
  Fleet(FleetOptions options, const Clock& clock, const SocketDirectory& directory, EventLoop& loop, Timers& timers,
        DataPlane& plane, FleetObserver& observer, Logger& log);
  ~Fleet();
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  /// Waits for the configuration, and then loads its models and those of the command line. Called when no client is there yet.
  ///   Errors  those of the configuration; kUnavailable, kOverloaded, kDeadlineExceeded: it could not be read in time;
  ///           kCancelled: `is_cancelled` became true meanwhile
  Result<DaemonConfig> read_configuration(const std::function<bool()>& is_cancelled);
  void start(const DaemonConfig& configured);
  /// Takes up a client's wish. wish_answered() tells when it has come true.
  ///   Errors  those of Catalog::ask(); kOverloaded: too many searches for files
  Status ask(Wish wish);
  /// Handles SIGHUP. Models of the command line stay. Models of the configuration change to its new content. All files are
  /// looked for again.
  void reload_configuration();
  bool is_reading_configuration() const { return reading_configuration_ != nullptr; }
  void client_left(ClientId client) {
    if (catalog_.caller_gone(client)) wake();
  }

  /// Something happened that a change may wait for: goes on at the end of this turn.
  void wake() {
    if (is_running_) advance_.set_earlier(0);
  }
  /// Events came from descriptors: a process may have ended.
  void events_came() {
    if (is_busy_) wake();
  }
  /// This process did not run for so long: no limit of the catalog counts that time.
  void postpone(std::uint64_t by_ns);

  /// Takes up nothing more, and starts nothing. Answers all callers with `why`.
  void close(const Status& why);
  /// Tells all processes to end.
  void end();
  void kill_all();
  bool all_gone() const;
  /// Whether this child's end will be noticed. Nobody else may reap it.
  bool watches(pid_t pid) const;

  const Catalog& catalog() const { return catalog_; }
  const ModelVersion& version(VersionId id) const { return *versions_.at(id); }
  ModelVersion& version(VersionId id) { return *versions_.at(id); }
  /// Whether a request is admitted that names this version, or none if it is the current one.
  bool lets_in(const Service& service, const CatalogVersion& version) const;
  /// How many models take requests, and why the others do not: "2 models are served; net: drained".
  std::string summary() const;
  /// Whether no load or reload is under way.
  bool is_settled() const;
  template <typename Function>
  void for_each(Function function) const {
    for (const auto& [id, version] : versions_) function(*version);
  }
  Births& births() { return births_; }
  /// What is done to find the files of a service that is loaded or reloaded: "fetching resnet-0000.params, 12 of 97 MB".
  std::string finding(const Service& service) const;

 private:
  friend class ModelVersion;
  struct Search {
    SearchId id = 0;
    ModelRequest request;
    Asker asker{};
    std::int64_t client_process = 0;
    bool is_fetch = false;  // the files are being fetched, and looked for afterwards
    std::unique_ptr<FileSearch> files;
  };

  std::unique_ptr<FileSearch> find_configuration(Asker asker);
  Result<DaemonConfig> check_configuration(FileSearch& search) const;
  void advance_configuration();
  void take_configuration(DaemonConfig config);
  /// Goes as far as processes, searches and requests allow. Only here versions are freed, because no function of one is on the
  /// stack.
  void advance();
  void take_found_files();
  FileFinder& finder_of(const ModelRequest& request);
  /// Starts a search whose files lie at `where`: at the path or URL of its request, or where they were fetched to.
  void look_for(Search search, const ModelRequest& where);
  /// Goes on with the files that were fetched.
  void look_into(Search search, std::string_view fetched);
  void note_who_awaits_idle();
  const ModelVersion* current_of(const std::string& model) const;
  std::uint64_t promised_bytes() const;

  void perform();
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

  const FleetOptions options_;
  const Clock& clock_;
  const SocketDirectory& directory_;
  EventLoop& loop_;
  Timers& timers_;
  DataPlane& plane_;
  FleetObserver& observer_;
  Logger& log_;
  FileFinder files_, fetches_;
  std::unique_ptr<FileSearch> reading_configuration_;  // after a SIGHUP
  std::vector<Search> searches_;
  Catalog catalog_;
  Births births_;
  StuckZygotes stuck_zygotes_;
  AvailableMemory memory_;  // for all versions that wait for some
  std::unordered_map<VersionId, std::unique_ptr<ModelVersion>> versions_;
  Timer advance_;            // when something happened that the catalog may wait for, or one of its limits is over
  bool is_busy_ = false;     // the catalog waits for something
  bool is_closed_ = false;   // close() was called
  bool is_running_ = false;  // from start() to end()
};

}  // namespace shoal::supervisor

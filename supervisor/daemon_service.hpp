// A service: one name that clients know, the versions of its model, and the change that is being made to them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "supervisor/model_version.hpp"

namespace shoal::supervisor {

/// A client that asked for a change and waits until it is over.
struct Daemon::Caller {
  ClientId client = 0;
  std::uint64_t seq = 0;
  Status failure = {};  // not OK: the change has failed, and the answer waits until it is undone
};

/// A change that is being made to a service. There is one at a time.
struct Daemon::Change {
  enum class Kind { kLoad, kReload, kScale, kDrain, kUnload };
  Kind kind{};
  std::string outcome;                 // the "outcome" in the answer if it succeeds
  bool each_alone = false;             // at the daemon's start: each version serves as soon as it can, even if others fail
  bool ends_drain = false;             // a reload that a client asked for
  bool is_forced = false;              // also reloads versions that have not changed
  std::vector<ModelVersion*> coming;   // serve when all of them are ready
  std::vector<ModelVersion*> leaving;  // leave when all of `coming` are ready
  struct Kept {
    ModelVersion* model = nullptr;
    int before = 0, wanted = 0;  // workers
    bool is_late() const { return wanted > before && model->processes().ready_workers() < wanted; }
    bool cannot() const { return model->has_failed() || model->processes().makes_no_progress(); }
  };
  std::vector<Kept> kept;  // missing workers come before the flip, surplus ones leave after it; undone when the change fails
  /// Set when the new versions serve: how long the change waits for the old ones to end. After that they end on their own.
  std::optional<std::uint64_t> flipped_until_ns;
  std::optional<ModelRequest> request;  // becomes the service's request if the change succeeds
  std::vector<Caller> callers;
  std::unique_ptr<FileSearch> finding;  // looks for the files of a load or reload; no version comes or leaves before
  std::uint64_t begun_ns = 0;
};

/// Threads: thread-bound
struct Daemon::Service {
  std::string name;
  std::uint32_t wire_id = 0;  // belongs to this name forever
  Origin origin = Origin::kCommandLine;
  ModelRequest request;                 // the last request for it
  std::vector<ModelVersion*> versions;  // the lowest first; also those that come and leave
  ModelVersion* current = nullptr;      // answers requests that name no version: the highest that serves
  bool drained = false;                 // takes no new requests
  std::string last_failure;             // of the last change; empty when it succeeded
  std::optional<Change> change;
  std::optional<ModelRequest> next;  // the request of a configuration that was read during the change

  /// Null when that version does not serve; 0 is the current one.
  ModelVersion* serving(std::uint64_t version) const;
  std::vector<std::uint64_t> served_versions() const;
  std::string served_text() const;  // "1, 3", or "none"
  bool waits_for(std::uint64_t version) const;
  /// Why it does not serve.
  std::string reason() const;
};

}  // namespace shoal::supervisor

// One name that clients know, the versions of its model behind it, and what is being done to them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "supervisor/daemon_model.hpp"

namespace shoal::supervisor {

/// Who asked for a change and waits for its end.
struct Daemon::Caller {
  ClientId client = 0;
  std::uint64_t seq = 0;
  Status failure = {};  // already: what it waits for is that all is undone
};

/// What is being done to a service; one at a time.
struct Daemon::Change {
  enum class Kind { kLoad, kReload, kScale, kDrain, kUnload };
  Kind kind{};
  std::string outcome;          // the word for its success
  bool each_alone = false;      // at the daemon's start: what can serve does, what cannot is shown
  bool ends_drain = false;      // a reload that somebody asked for
  std::vector<Model*> coming;   // serve when all of them are ready
  std::vector<Model*> leaving;  // leave then
  struct Kept {
    Model* model = nullptr;
    int before = 0, wanted = 0;  // workers
    bool is_late() const { return wanted > before && model->processes().ready_workers() < wanted; }
    bool cannot() const { return model->has_failed() || model->processes().makes_no_progress(); }
  };
  std::vector<Kept> kept;               // more workers come before, too many leave then; taken back when it fails
  /// What has come serves; how long what it replaces is waited for, which then goes without anybody who waits.
  std::optional<std::uint64_t> flipped_until_ns;
  std::optional<ModelRequest> request;  // the service's when this has succeeded
  std::vector<Caller> callers;
  std::uint64_t begun_ns = 0;
};

/// Threads: thread-bound
struct Daemon::Service {
  std::string name;
  std::uint32_t wire_id = 0;  // never given to another name
  Origin origin = Origin::kCommandLine;
  ModelRequest request;          // what it was asked for last
  std::vector<Model*> versions;  // the lowest first; also those that come and leave
  Model* current = nullptr;      // answers requests that name no version: the highest that serves
  bool drained = false;          // takes nothing new
  std::string last_failure;      // of the last change; empty when it succeeded
  std::optional<Change> change;
  std::optional<ModelRequest> next;  // what a configuration wants that was read while the change was under way

  /// Null when that version does not serve; 0 is the current one.
  Model* serving(std::uint64_t version) const;
  std::vector<std::uint64_t> served_versions() const;
  std::string served_text() const;  // "1, 3", or "none"
  bool waits_for(std::uint64_t version) const;
  /// Why it does not answer.
  std::string reason() const;
};

}  // namespace shoal::supervisor

#include "supervisor/process/processes.hpp"

#include <algorithm>

#include "shm/base/errors.hpp"
#include "shm/wire/local_address.hpp"
#include "supervisor/process/socket_directory.hpp"

namespace shoal::supervisor {

std::string_view model_state_name(ModelState state) {
  switch (state) {
    case ModelState::kLoading:
      return "loading";
    case ModelState::kReady:
      return "ready";
    case ModelState::kFailed:
      return "failed";
    case ModelState::kDraining:
      return "draining";
  }
  return "unknown";
}

std::string_view WorkerProcess::state_name() const {
  if (ended != EndReason::kNone) return "killed";
  switch (state) {
    case State::kForking:
      return "forking";
    case State::kStarting:
      return "starting";
    case State::kReady:
      return "ready";
    case State::kLeaving:
      return "leaving";
  }
  return "unknown";
}

Result<std::string> lane_sockets(const std::string& directory, std::uint64_t incarnation) {
  SHOAL_ASSIGN_OR_RETURN(const std::string random, random_name());
  return format("{}/w{}-{}", wire::lanes_directory(directory), incarnation, random);
}

std::string lane_path(const std::string& sockets, int lane) { return format("{}-{}", sockets, lane); }

wire::StatusPage<const std::byte> WorkerProcess::page(std::size_t lanes) const {
  return {status_page ? status_page->bytes() : std::span<const std::byte>(), lanes};
}

namespace {
WorkerProcess* find_in(const std::vector<std::unique_ptr<WorkerProcess>>& workers, std::uint64_t incarnation) {
  const auto found = std::ranges::find(workers, incarnation, [](const auto& worker) { return worker->incarnation; });
  return found == workers.end() ? nullptr : found->get();
}
}  // namespace

WorkerProcess* Processes::find_worker(std::uint64_t incarnation) { return find_in(workers_, incarnation); }

WorkerProcess* Processes::find_watched(std::uint64_t incarnation) {
  WorkerProcess* worker = find_worker(incarnation);
  return worker ? worker : find_in(stuck_workers_, incarnation);
}

bool Processes::watches(pid_t pid) const {
  const auto is_it = [&](const auto& worker) { return worker->pidfd && worker->pid == pid; };
  return zygote_pid() == pid || std::ranges::any_of(workers_, is_it) || std::ranges::any_of(stuck_workers_, is_it);
}

int Processes::ready_workers() const {
  return static_cast<int>(std::ranges::count_if(workers_, [](const auto& worker) { return worker->is_ready(); }));
}

int Processes::count(WorkerProcess::State state) const {
  return static_cast<int>(std::ranges::count(workers_, state, [](const auto& worker) { return worker->state; }));
}

}  // namespace shoal::supervisor

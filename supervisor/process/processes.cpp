#include "supervisor/process/processes.hpp"

#include <algorithm>

#include "shm/base/format.hpp"

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

std::string_view worker_state_name(WorkerProcess::State state) {
  switch (state) {
    case WorkerProcess::State::kForking:
      return "forking";
    case WorkerProcess::State::kStarting:
      return "starting";
    case WorkerProcess::State::kReady:
      return "ready";
    case WorkerProcess::State::kLeaving:
      return "leaving";
  }
  return "unknown";
}

std::string lane_path(const std::string& directory, std::uint64_t incarnation, int lane) {
  return format("{}/w{}-{}", directory, incarnation, lane);
}

std::span<const wire::LaneLine> WorkerProcess::lines(std::size_t lanes) const {
  if (!status_page || status_page->size_bytes() < wire::status_page_bytes(lanes)) return {};
  return {reinterpret_cast<const wire::LaneLine*>(status_page->bytes().data()), lanes};
}

const wire::ProgramLine* WorkerProcess::programs(std::size_t lanes) const {
  const auto all = lines(lanes);
  return all.empty() ? nullptr : reinterpret_cast<const wire::ProgramLine*>(all.data() + all.size());
}

WorkerProcess* Processes::find_worker(std::uint64_t incarnation) {
  const auto found = std::ranges::find(workers_, incarnation, [](const auto& worker) { return worker->incarnation; });
  return found == workers_.end() ? nullptr : found->get();
}

int Processes::count(WorkerProcess::State state) const {
  return static_cast<int>(std::ranges::count(workers_, state, [](const auto& worker) { return worker->state; }));
}

}  // namespace shoal::supervisor

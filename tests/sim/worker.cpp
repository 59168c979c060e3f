#include "tests/sim/worker.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "shm/base/format.hpp"

namespace shoal::test {
namespace {

constexpr std::size_t kLanes = 2;  // of the largest worker

std::vector<std::unique_ptr<Page>>& free_pages() {
  static std::vector<std::unique_ptr<Page>> pages;
  return pages;
}

std::unique_ptr<Page> take_page() {
  if (free_pages().empty()) {
    UniqueFd memory = wire::make_status_page(kLanes).value();
    Segment written = Segment::map(memory, Segment::Access::kReadWrite).value();
    return std::make_unique<Page>(Page{std::move(memory), std::move(written)});
  }
  auto page = std::move(free_pages().back());
  free_pages().pop_back();
  const wire::StatusPage parts(page->written.mutable_bytes(), kLanes);
  std::ranges::fill(std::as_writable_bytes(parts.lanes), std::byte{0});
  return page;
}

}  // namespace

bool SimLane::has(Held::State state) const { return std::ranges::count(held, state, &Held::state) > 0; }

bool SimLane::runs_guilty() const {
  return std::ranges::any_of(held,
                             [](const Held& one) { return one.state == Held::State::kRuns && one.is_guilty && !one.is_refused; });
}

SimWorker::SimWorker(std::uint64_t incarnation, int lanes, UniqueFd control)
    : incarnation_(incarnation), control_(std::move(control)), page_(take_page()), lanes_(static_cast<std::size_t>(lanes)) {
  for (std::size_t i = 0; i < lanes_.size(); ++i) line(i).thread_id = static_cast<std::uint64_t>(lane_thread(i));
}

// The supervisor keeps the last pages of each model, to show them. Nobody looks at them here.
SimWorker::~SimWorker() { free_pages().push_back(std::move(page_)); }

Segment SimWorker::map_page() const { return Segment::map(page_->memory, Segment::Access::kReadOnly).value(); }

wire::LaneLine& SimWorker::line(std::size_t lane) { return wire::StatusPage(page_->written.mutable_bytes(), kLanes).lanes[lane]; }

std::string SimWorker::read_control() {
  if (is_deaf_ || is_stopped) return "";
  for (auto said = wire::receive_control(control_.get()); said.ok() && *said; said = wire::receive_control(control_.get())) {
    const wire::ControlMessage& message = **said;
    switch (message.kind) {
      case wire::ControlKind::kAttachClient:
        if (message.fds.size() != 2) return format("worker {} got {} arenas", incarnation_, message.fds.size());
        if (!attached.insert(message.id).second)
          return format("worker {} was attached client {} twice", incarnation_, message.id);
        break;
      case wire::ControlKind::kDetachClient:
        if (attached.erase(message.id) == 0)
          return format("worker {} was detached client {}, which it did not have", incarnation_, message.id);
        for (const SimLane& lane : lanes_) {
          if (std::ranges::count(lane.held, message.id, [](const Held& held) { return held.header.client_id; }) > 0)
            return format("the arenas of client {} were detached while worker {} has requests of it", message.id, incarnation_);
        }
        break;
      case wire::ControlKind::kQuarantine: {
        quarantined_.clear();
        std::istringstream lines(message.text);
        for (std::uint64_t hash = 0; lines >> std::hex >> hash;) quarantined_.insert(hash);
        break;
      }
      case wire::ControlKind::kCancelRun:
        if (message.id != 0) cancelled_.insert(message.id);
        break;
      case wire::ControlKind::kProbe:
        break;
      default:
        return format("worker {} was told something of kind {}", incarnation_, static_cast<int>(message.kind));
    }
  }
  return "";
}

void SimWorker::become_deaf(int ours) {
  is_deaf_ = was_deaf_ = true;
  const int least = 0;
  ::setsockopt(ours, SOL_SOCKET, SO_SNDBUF, &least, sizeof least);
  while (wire::send_control(ours, {.kind = wire::ControlKind::kCancelRun, .text = std::string(1024, '.')}).ok()) {
  }
}

void SimWorker::hear_again(int ours) {
  is_deaf_ = false;
  const int usual = 212'992;
  ::setsockopt(ours, SOL_SOCKET, SO_SNDBUF, &usual, sizeof usual);
}

bool SimWorker::begin(std::size_t at, bool joined, bool parked_first) {
  SimLane& lane = lanes_[at];
  if (lane.has(Held::State::kRuns) || lane.has(Held::State::kRan)) return false;
  const auto first_of = [&](Held::State state) { return std::ranges::find(lane.held, state, &Held::state); };
  auto first = first_of(parked_first ? Held::State::kParked : Held::State::kWaits);
  if (first == lane.held.end()) first = first_of(parked_first ? Held::State::kWaits : Held::State::kParked);
  if (first == lane.held.end()) return false;
  std::uint64_t count = 1;
  const auto is_member = [&](const Held& held) { return held.group == first->group && held.state == Held::State::kWaits; };
  if (joined && first->state == Held::State::kWaits && first->header.batch_index == 0 &&
      std::ranges::count_if(lane.held, is_member) == first->header.batch_size) {
    for (Held& held : lane.held) {
      if (&held != &*first && is_member(held)) held.state = Held::State::kRuns, ++count;
    }
  }
  wire::LaneLine& page = line(at);
  if (page.compiling_request == first->header.request_id) page.compiling_request = 0;
  first->state = Held::State::kRuns;
  page.running_attempt = first->header.attempt;
  page.running_count = count;
  page.running_request = first->header.request_id;
  if ((first->header.lane_flags & wire::kHashInputs) != 0) page.running_hash = hash_of(first->content);
  return true;
}

void SimWorker::finish(std::size_t lane) {
  line(lane).running_request = 0;
  line(lane).running_hash = 0;
  for (Held& held : lanes_[lane].held) {
    if (held.state == Held::State::kRuns) held.state = Held::State::kRan;
  }
}

Held* SimWorker::park(std::size_t lane) {
  const auto waits = std::ranges::find(lanes_[lane].held, Held::State::kWaits, &Held::state);
  if (waits == lanes_[lane].held.end()) return nullptr;
  waits->state = Held::State::kParked;
  lanes_[lane].parked_groups.insert(waits->group);
  bool compiles = false;
  for (std::size_t i = 0; i < lanes_.size(); ++i) compiles |= line(i).compiling_request != 0;
  if (!compiles) line(lane).compiling_request = waits->header.request_id;
  return &*waits;
}

void SimWorker::forget(std::size_t lane, std::uint64_t request) {
  std::erase_if(lanes_[lane].held, [&](const Held& held) { return held.header.request_id == request; });
  if (line(lane).compiling_request == request) line(lane).compiling_request = 0;
  cancelled_.erase(request);
}

std::uint64_t SimWorker::hash_of(const Bytes& content) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::byte byte : content) hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3;
  return hash | 1;
}

std::vector<supervisor::ThreadTimes> SimWorker::threads(std::uint64_t now_ns, std::span<const char> busy, bool is_probed) {
  std::vector<supervisor::ThreadTimes> threads = {{.thread = pid(), .state = 'S', .is_control = true}};
  bool compiles = false, is_any_hung = false;
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    SimLane& lane = lanes_[i];
    supervisor::ThreadTimes times{.thread = lane_thread(i), .state = 'S', .cpu_ns = lane.since_ns};
    const bool runs = lane.has(Held::State::kRuns) || (is_probed && i == 0);
    compiles |= lane.has(Held::State::kParked);
    is_any_hung |= lane.pace == Pace::kHung;
    if (lane.pace == Pace::kStarved || (lane.pace != Pace::kHung && busy[i] && !runs)) {
      times.state = 'R';
      lane.waited_ns = now_ns;
    } else if (lane.pace != Pace::kHung && runs) {
      times.state = lane.pace == Pace::kFine ? 'R' : 'S';  // what runs may sleep at the moment
      times.cpu_ns = now_ns;
      if (lane.pace == Pace::kFine) line(i).step_counter = now_ns;
    }
    times.wait_ns = lane.waited_ns;
    threads.push_back(times);
  }
  threads.push_back({.thread = compiler_thread(),
                     .state = compiles && !is_any_hung ? 'R' : 'S',
                     .cpu_ns = compiles && !is_any_hung ? now_ns : 0,
                     .is_compiler = true});
  threads.push_back({.thread = pid() + 80, .state = 'S', .is_message_io = true});
  for (supervisor::ThreadTimes& each : threads) {
    if (is_stopped) each.state = 'T';
  }
  return threads;
}

}  // namespace shoal::test

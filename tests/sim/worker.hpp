// A simulated worker: its end of the control socket, the memory of its status page, and its lanes. It does what worker/serve
// does, one step at a time, when the world says so.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "shm/base/unique_fd.hpp"
#include "shm/segment/segment.hpp"
#include "shm/wire/control.hpp"
#include "shm/wire/messages.hpp"
#include "shm/wire/status_page.hpp"
#include "supervisor/process/watchdog.hpp"
#include "tests/sim/transport.hpp"

namespace shoal::test {

/// The memory of a status page. It is used again by other workers, in other histories: making one takes longer than a history.
struct Page {
  UniqueFd memory;
  Segment written;
};

/// A request that a lane has taken.
struct Held {
  enum class State : std::uint8_t { kWaits, kRuns, kRan, kParked };
  wire::RequestHeader header{};
  Bytes content;            // what an answer must repeat
  std::uint64_t group = 0;  // of this lane: those that were sent to run together have the same
  State state = State::kWaits;
  bool is_guilty = false;   // crashes whoever runs it
  bool is_refused = false;  // its input is in quarantine: it is answered, but not run
};

/// How a lane gets on.
enum class Pace : std::uint8_t {
  kFine,
  kStarved,  // it wants to run and gets no processor
  kHung,     // neither a step nor processor time
  kSlow,     // processor time, but no step
};

struct SimLane {
  std::vector<Held> held;    // in the order in which they came
  std::uint64_t groups = 0;  // that came
  std::set<std::uint64_t> parked_groups;
  Pace pace = Pace::kFine;
  std::uint64_t since_ns = 0;   // the pace is this one
  std::uint64_t waited_ns = 0;  // as the kernel counts it: grows while it gets no processor
  SimMessage said;              // its last message

  bool has(Held::State state) const;
  bool runs_guilty() const;
};

///   Threads  thread-bound
class SimWorker {
 public:
  static constexpr std::uint64_t kFirstPid = 1'000'000'000, kPids = 100;  // above those of real processes

  SimWorker(std::uint64_t incarnation, int lanes, UniqueFd control);
  ~SimWorker();
  SimWorker(const SimWorker&) = delete;
  SimWorker& operator=(const SimWorker&) = delete;

  std::uint64_t incarnation() const { return incarnation_; }
  pid_t pid() const { return pid_of(incarnation_); }
  static pid_t pid_of(std::uint64_t incarnation) { return static_cast<pid_t>(kFirstPid + incarnation * kPids); }
  static std::uint64_t incarnation_of(pid_t pid) { return (static_cast<std::uint64_t>(pid) - kFirstPid) / kPids; }
  pid_t lane_thread(std::size_t lane) const { return pid() + 1 + static_cast<pid_t>(lane); }
  pid_t compiler_thread() const { return pid() + 70; }
  /// The supervisor's mapping of its page.
  Segment map_page() const;
  wire::LaneLine& line(std::size_t lane);
  std::vector<SimLane>& lanes() { return lanes_; }
  bool can_act(std::size_t lane) const {
    return is_ready && !is_stopped && !is_cut_off && lanes_[lane].pace != Pace::kHung && lanes_[lane].pace != Pace::kStarved;
  }

  /// Reads what the supervisor has said, unless it reads nothing now. Returns which promise was broken, or nothing.
  std::string read_control();
  /// It reads nothing more, and its control socket is full. `ours`: the supervisor's end.
  void become_deaf(int ours);
  void hear_again(int ours);
  bool is_deaf() const { return is_deaf_; }
  bool was_deaf() const { return was_deaf_; }

  /// The lane names what it runs. False: it has nothing to begin, or runs something.
  bool begin(std::size_t lane, bool joined, bool parked_first);
  /// The run is over; its answers are not sent yet.
  void finish(std::size_t lane);
  /// Another request waits for its program. Null: none can.
  Held* park(std::size_t lane);
  /// It is answered now.
  void forget(std::size_t lane, std::uint64_t request);
  bool knows_as_poison(const Held& held) const { return quarantined_.contains(hash_of(held.content)); }
  bool is_cancelled(std::uint64_t request) const { return cancelled_.contains(request); }
  static std::uint64_t hash_of(const Bytes& content);

  /// What /proc would say of its threads. Lanes that get on make their steps now. `busy`: lanes with something unread.
  std::vector<supervisor::ThreadTimes> threads(std::uint64_t now_ns, std::span<const char> busy, bool is_probed);

  bool is_ready = false, is_stopped = false;
  bool is_cut_off = false;           // a message did not reach it: what it says counts no more
  std::set<std::uint64_t> attached;  // clients
  std::uint64_t unit = 0;            // the number of the SimProcesses that it belongs to

 private:
  const std::uint64_t incarnation_;
  UniqueFd control_;
  std::unique_ptr<Page> page_;
  std::vector<SimLane> lanes_;
  std::set<std::uint64_t> quarantined_, cancelled_;
  bool is_deaf_ = false, was_deaf_ = false;
};

}  // namespace shoal::test

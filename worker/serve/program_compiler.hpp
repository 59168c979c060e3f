// ProgramCompiler: the one thread of a worker that compiles, so that no lane waits for the program of a new shape.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "shm/base/mutex.hpp"
#include "shm/base/unique_fd.hpp"
#include "shm/wire/status_page.hpp"
#include "shoal/result.hpp"
#include "worker/exec/model.hpp"
#include "worker/serve/cancelled_requests.hpp"
#include "worker/serve/flight_recorder.hpp"
#include "worker/serve/memory_limit.hpp"

namespace shoal::worker {

/// Wakes a lane when a program is ready that one of its requests waits for.
struct ReadyBell {
  UniqueFd fd;                         ///< an eventfd
  std::atomic<std::uint64_t> rung{0};  ///< how often: a lane that has looked at its requests since need not look again
  void ring();
};

/// Who has turns of its own: a client, or a flow of a gateway.
struct Asker {
  std::uint64_t client_id = 0, flow = 0;
  auto operator<=>(const Asker&) const = default;
};

/// Names the request that a crash of the compilation is blamed on, and the bell of its lane. All of it outlives the compilation.
struct CompileOrder {
  std::uint64_t request_id = 0;  ///< 0: no request is blamed
  Asker asker{};                 ///< whose turn it takes; none: that of programs for requests of several askers
  wire::LaneLine* line = nullptr;
  ReadyBell* bell = nullptr;
};

/// A program that one request waits for.
///   Threads  thread-safe
class PendingProgram {
 public:
  bool is_ready() const { return ready_.load(std::memory_order_acquire); }
  /// Valid if is_ready().
  const Result<std::shared_ptr<const Program>>& outcome() const { return outcome_; }

 private:
  friend class ProgramCompiler;
  PendingProgram(std::span<const TensorSpec> inputs, const CompileOrder& order, Status out_of_memory)
      : inputs_(inputs.begin(), inputs.end()), order_(order), outcome_(std::move(out_of_memory)) {}

  const std::vector<TensorSpec> inputs_;
  const CompileOrder order_;
  std::uint64_t round_ = 0;  // of turns
  Result<std::shared_ptr<const Program>>
      outcome_;  ///< "out of memory" until the outcome is known, so that out of memory needs no memory to be reported
  std::atomic<bool> ready_{false};  // release after outcome_ pairs with acquire in is_ready()
};

/// Compiles one program after the other, at a lower priority than the lanes: many new shapes at once delay the requests that
/// bring them, and hardly any others. Askers take turns: in each round one order of each is compiled. One compilation
/// serves all orders for one shape. The first order starts the thread. The thread's loop allocates nothing itself, so each order
/// gets an outcome whichever allocation fails.
///   Threads  thread-safe
class ProgramCompiler {
 public:
  /// All outlive this.
  ProgramCompiler(Model& model, const CancelledRequests& cancelled, const MemoryLimit& memory, FlightRecorder& flight,
                  wire::ProgramLine& line);
  ~ProgramCompiler();  ///< orders that still wait are never ready
  ProgramCompiler(const ProgramCompiler&) = delete;
  ProgramCompiler& operator=(const ProgramCompiler&) = delete;

  /// Throws std::bad_alloc: nothing is ordered then.
  std::shared_ptr<const PendingProgram> compile(std::span<const TensorSpec> inputs, const CompileOrder& order);
  /// Counts a request whose program was already compiled.
  void count_hit() { line_.hits.fetch_add(1, std::memory_order_relaxed); }

 private:
  using Pending = std::shared_ptr<PendingProgram>;
  using Outcome = Result<std::shared_ptr<const Program>>;
  void serve();
  std::uint64_t next_round_of(const Asker& asker) SHOAL_REQUIRES(mutex_);
  bool take_new_orders(bool wait) SHOAL_EXCLUDES(mutex_);  ///< into the queue; false if the compiler is being destroyed
  std::optional<Outcome> compile_now(const PendingProgram& pending) noexcept;  ///< none: out of memory
  Outcome program_for(const PendingProgram& pending);
  void finish(PendingProgram& pending, const std::optional<Outcome>& outcome) noexcept;
  std::list<Pending> take_from_queue(const Pending& first, bool with_equals);
  void publish_counters();

  Model& model_;
  const CancelledRequests& cancelled_;
  const MemoryLimit& memory_;
  FlightRecorder& flight_;
  wire::ProgramLine& line_;
  Mutex mutex_;
  Condition ordered_;
  std::list<Pending> ordered_now_ SHOAL_GUARDED_BY(mutex_);         // not in the queue yet
  std::map<Asker, std::uint64_t> rounds_ SHOAL_GUARDED_BY(mutex_);  // of its last order
  std::uint64_t round_ SHOAL_GUARDED_BY(mutex_) = 1;                // of the order that is compiled
  bool is_stopping_ SHOAL_GUARDED_BY(mutex_) = false;
  std::list<Pending> queue_;       // the thread's: by rounds, and within a round as they came
  std::uint64_t compilation_ = 0;  ///< number of the current one
  std::thread thread_;
};

}  // namespace shoal::worker

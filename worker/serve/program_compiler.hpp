// ProgramCompiler: the one thread of a worker that compiles, so that no lane stands still for a shape it has not seen.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "shm/base/mutex.hpp"
#include "shm/wire/status_page.hpp"
#include "shoal/result.hpp"
#include "worker/exec/model.hpp"
#include "worker/serve/cancelled_requests.hpp"
#include "worker/serve/flight_recorder.hpp"
#include "worker/serve/memory_limit.hpp"

namespace shoal::worker {

/// For whom a program is compiled: whom a crash of the compilation accuses, and who is woken when it is done. All of it outlives
/// the compilation.
struct CompileOrder {
  std::uint64_t request_id = 0;  ///< 0: nobody's fault
  wire::LaneLine* line = nullptr;
  int wake_fd = -1;  ///< an eventfd
};

/// A program that one request waits for.
///   Threads  thread-safe
class PendingProgram {
 public:
  bool is_ready() const { return ready_.load(std::memory_order_acquire); }
  /// Only when ready.
  const Result<std::shared_ptr<const Program>>& outcome() const { return outcome_; }

 private:
  friend class ProgramCompiler;
  PendingProgram(std::span<const TensorSpec> inputs, const CompileOrder& order)
      : inputs_(inputs.begin(), inputs.end()), order_(order) {}

  const std::vector<TensorSpec> inputs_;
  const CompileOrder order_;
  Result<std::shared_ptr<const Program>> outcome_{std::shared_ptr<const Program>()};
  std::atomic<bool> ready_{false};  // release after outcome_ pairs with acquire in is_ready()
};

/// Compiles one program after the other, at a lower priority than the lanes have: many new shapes at once cost those who ask for
/// them, and hardly anybody else. Orders for one shape are served by one compilation. The thread is started by the first order.
///   Threads  thread-safe
class ProgramCompiler {
 public:
  /// All outlive this.
  ProgramCompiler(Model& model, const CancelledRequests& cancelled, const MemoryLimit& memory, FlightRecorder& flight,
                  wire::ProgramLine& line);
  ~ProgramCompiler();  ///< what waits is never ready
  ProgramCompiler(const ProgramCompiler&) = delete;
  ProgramCompiler& operator=(const ProgramCompiler&) = delete;

  std::shared_ptr<const PendingProgram> compile(std::span<const TensorSpec> inputs, const CompileOrder& order);
  /// Counts a request whose program was there.
  void count_hit() { line_.hits.fetch_add(1, std::memory_order_relaxed); }

 private:
  using Pending = std::shared_ptr<PendingProgram>;
  void serve();
  Pending next_order();  ///< stays in the queue; null when this is being destroyed
  Result<std::shared_ptr<const Program>> compile_now(const PendingProgram& pending);
  void finish(PendingProgram& pending, Result<std::shared_ptr<const Program>> outcome);
  std::vector<Pending> take_from_queue(const Pending& first, bool with_equals) SHOAL_REQUIRES(mutex_);
  void publish_counters();

  Model& model_;
  const CancelledRequests& cancelled_;
  const MemoryLimit& memory_;
  FlightRecorder& flight_;
  wire::ProgramLine& line_;
  Mutex mutex_;
  Condition ordered_;
  std::deque<Pending> queue_ SHOAL_GUARDED_BY(mutex_);
  bool is_stopping_ SHOAL_GUARDED_BY(mutex_) = false;
  std::uint64_t compilation_ = 0;  ///< number of the current one
  std::thread thread_;
};

}  // namespace shoal::worker

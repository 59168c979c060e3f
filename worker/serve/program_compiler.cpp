#include "worker/serve/program_compiler.hpp"

#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <new>
#include <system_error>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "worker/serve/crash_handler.hpp"

namespace shoal::worker {
namespace {

// A busy lane has 68 times this weight. A compilation still makes progress when all processors are busy.
constexpr int kNiceness = 19;

// So many askers are remembered, some of which have no orders any more.
constexpr std::size_t kMostRemembered = 256;

}  // namespace

void ReadyBell::ring() {
  rung.fetch_add(1, std::memory_order_release);
  ::eventfd_write(fd.get(), 1);
}

ProgramCompiler::ProgramCompiler(Model& model, const CancelledRequests& cancelled, const MemoryLimit& memory,
                                 FlightRecorder& flight, wire::ProgramLine& line)
    : model_(model), cancelled_(cancelled), memory_(memory), flight_(flight), line_(line) {
  publish_counters();
}

ProgramCompiler::~ProgramCompiler() {
  {
    const MutexLock lock(mutex_);
    is_stopping_ = true;
    ordered_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<const PendingProgram> ProgramCompiler::compile(std::span<const TensorSpec> inputs, const CompileOrder& order) {
  const Pending pending(new PendingProgram(inputs, order, memory_.exceeded("compiling a program")));
  std::list<Pending> ordering{pending};  // allocated before anything changes
  line_.misses.fetch_add(1, std::memory_order_relaxed);
  const MutexLock lock(mutex_);
  pending->round_ = next_round_of(order.asker);
  try {
    if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
  } catch (const std::system_error& error) {
    const std::optional<Outcome> failed(internal_error("start the thread that compiles programs: {}", error.what()));
    line_.compiling.fetch_add(1, std::memory_order_relaxed);
    finish(*pending, failed);
    return pending;
  }
  line_.compiling.fetch_add(1, std::memory_order_relaxed);
  ordered_now_.splice(ordered_now_.end(), ordering);
  ordered_.notify_one();
  return pending;
}

// The round after that of the asker's last order, but none that is over: who comes later gets no turns for the time before. Who
// has nothing to be compiled is forgotten when there are many, and so may have a turn more.
std::uint64_t ProgramCompiler::next_round_of(const Asker& asker) {
  if (rounds_.size() >= kMostRemembered) std::erase_if(rounds_, [now = round_](const auto& of) { return of.second <= now; });
  std::uint64_t& last = rounds_[asker];
  return last = std::max(last + 1, round_);
}

void ProgramCompiler::serve() {
  (void)::setpriority(PRIO_PROCESS, 0, kNiceness);  // on Linux, 0 is the calling thread alone
  ::prctl(PR_SET_NAME, wire::kCompilerThread);
  model_.enter_thread();
  while (take_new_orders(true)) {
    const Pending first = queue_.front();
    const std::optional<Outcome> outcome = compile_now(*first);
    publish_counters();
    // A cancellation concerns one request only; a program is shared by all requests for the same inputs.
    const bool is_shared = !outcome || outcome->status().code() != StatusCode::kCancelled;
    if (!take_new_orders(false)) return;  // those for the same inputs are answered, too
    // Orders, and programs with them, are destroyed here without the lock: lanes take it, and this thread has a low priority.
    for (const Pending& pending : take_from_queue(first, is_shared)) finish(*pending, outcome);
  }
}

// Without memory for a copy of the outcome, "out of memory" remains the outcome.
void ProgramCompiler::finish(PendingProgram& pending, const std::optional<Outcome>& outcome) noexcept {
  try {
    if (outcome) pending.outcome_ = Outcome(*outcome);
  } catch (const std::bad_alloc&) {
  }
  line_.compiling.fetch_sub(1, std::memory_order_relaxed);
  pending.ready_.store(true, std::memory_order_release);
  pending.order_.bell->ring();
}

// Moves and sorts list nodes: this allocates nothing.
bool ProgramCompiler::take_new_orders(bool wait) {
  std::list<Pending> taken;
  {
    const MutexLock lock(mutex_);
    while (wait && !is_stopping_ && queue_.empty() && ordered_now_.empty()) ordered_.wait(mutex_);
    if (is_stopping_) return false;
    taken.swap(ordered_now_);
  }
  const auto earlier = [](const Pending& a, const Pending& b) { return a->round_ < b->round_; };
  taken.sort(earlier);
  queue_.merge(taken, earlier);
  if (!wait) return true;
  const MutexLock lock(mutex_);
  round_ = queue_.front()->round_;
  return true;
}

std::optional<ProgramCompiler::Outcome> ProgramCompiler::compile_now(const PendingProgram& pending) noexcept try {
  if (cancelled_.contains(pending.order_.request_id)) return cancelled("cancelled before its program was compiled");
  // If compiling crashes, the request that brought the shape is blamed.
  const std::uint64_t blamed = pending.order_.request_id;
  const std::atomic<std::uint64_t> request_id(blamed != 0 ? blamed : wire::kBlamesNoRequest);
  Progress progress;
  progress.step_name = "the compilation of its program";
  const CrashEvidence evidence(*pending.order_.line, progress, request_id);
  pending.order_.line->compiling_request.store(pending.order_.request_id, std::memory_order_relaxed);
  flight_.record(wire::FlightKind::kCompileBegun, wire::kNoLane, pending.order_.request_id, ++compilation_);
  const std::uint64_t start_ns = monotonic_now_ns();
  std::optional<Outcome> program;
  try {
    program = program_for(pending);
  } catch (const std::bad_alloc&) {
  }
  pending.order_.line->compiling_request.store(0, std::memory_order_relaxed);
  flight_.record(wire::FlightKind::kCompileEnded, wire::kNoLane, pending.order_.request_id, compilation_);
  pending.order_.line->step_counter.fetch_add(1, std::memory_order_relaxed);
  line_.compile_ns.fetch_add(monotonic_now_ns() - start_ns, std::memory_order_relaxed);
  return program;
} catch (const std::bad_alloc&) {
  return std::nullopt;
}

ProgramCompiler::Outcome ProgramCompiler::program_for(const PendingProgram& pending) try {
  return model_.program(pending.inputs_);
} catch (const std::bad_alloc&) {
  throw;
} catch (const std::exception& error) {
  return internal_error("compile a program: {}", error.what());
}

// Moves list nodes: this allocates nothing.
std::list<ProgramCompiler::Pending> ProgramCompiler::take_from_queue(const Pending& first, bool with_equals) {
  std::list<Pending> taken;
  for (auto at = queue_.begin(); at != queue_.end();) {
    const auto next = std::next(at);
    if (*at == first || (with_equals && (*at)->inputs_ == first->inputs_)) taken.splice(taken.end(), queue_, at);
    at = next;
  }
  return taken;
}

void ProgramCompiler::publish_counters() {
  const ProgramCounters counters = model_.program_counters();
  const auto set = [](std::atomic<std::uint64_t>& field, std::uint64_t value) { field.store(value, std::memory_order_relaxed); };
  set(line_.pinned, counters.pinned);
  set(line_.programs, counters.programs);
  set(line_.bytes, counters.bytes);
  set(line_.compiled, counters.compiled);
  set(line_.evicted, counters.evicted);
  set(line_.failed, counters.failed);
}

}  // namespace shoal::worker

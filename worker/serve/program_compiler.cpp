#include "worker/serve/program_compiler.hpp"

#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <system_error>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "worker/serve/crash_handler.hpp"

namespace shoal::worker {
namespace {

// A lane that wants the processor has 68 times the weight; a compilation still ends when all processors are busy.
constexpr int kNiceness = 19;

}  // namespace

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
  const Pending pending(new PendingProgram(inputs, order));
  line_.misses.fetch_add(1, std::memory_order_relaxed);
  line_.compiling.fetch_add(1, std::memory_order_relaxed);
  const MutexLock lock(mutex_);
  try {
    if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
  } catch (const std::system_error& error) {
    finish(*pending, internal_error("start the thread that compiles programs: {}", error.what()));
    return pending;
  }
  queue_.push_back(pending);
  ordered_.notify_one();
  return pending;
}

void ProgramCompiler::serve() {
  (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNiceness);  // Linux: of this thread alone
  ::prctl(PR_SET_NAME, wire::kCompilerThread);
  model_.enter_thread();
  while (const Pending first = next_order()) {
    const auto outcome = compile_now(*first);
    publish_counters();
    const MutexLock lock(mutex_);
    // That a request was cancelled is its own affair; a program is everybody's who asked for the same inputs.
    const bool is_shared = outcome.status().code() != StatusCode::kCancelled;
    for (const Pending& pending : take_from_queue(first, is_shared)) {
      finish(*pending, outcome);
    }
  }
}

void ProgramCompiler::finish(PendingProgram& pending, Result<std::shared_ptr<const Program>> outcome) {
  pending.outcome_ = std::move(outcome);
  pending.ready_.store(true, std::memory_order_release);
  line_.compiling.fetch_sub(1, std::memory_order_relaxed);
  ::eventfd_write(pending.order_.wake_fd, 1);
}

ProgramCompiler::Pending ProgramCompiler::next_order() {
  const MutexLock lock(mutex_);
  while (!is_stopping_ && queue_.empty()) ordered_.wait(mutex_);
  return is_stopping_ ? nullptr : queue_.front();
}

Result<std::shared_ptr<const Program>> ProgramCompiler::compile_now(const PendingProgram& pending) {
  if (cancelled_.contains(pending.order_.request_id)) return cancelled("cancelled before its program was compiled");
  // The request that brought the shape is to blame if compiling it crashes.
  const std::atomic<std::uint64_t> request_id(pending.order_.request_id);
  Progress progress;
  progress.step_name = "the compilation of its program";
  const CrashEvidence evidence(*pending.order_.line, progress, request_id);
  pending.order_.line->compiling_request.store(pending.order_.request_id, std::memory_order_relaxed);
  flight_.record(wire::FlightKind::kCompileBegun, wire::kNoLane, pending.order_.request_id, ++compilation_);
  const std::uint64_t start_ns = monotonic_now_ns();
  Result<std::shared_ptr<const Program>> program{std::shared_ptr<const Program>()};
  try {
    program = model_.program(pending.inputs_);
  } catch (const std::bad_alloc&) {
    program = memory_.exceeded("compiling a program");
  } catch (const std::exception& error) {
    program = internal_error("compile a program: {}", error.what());
  }
  pending.order_.line->compiling_request.store(0, std::memory_order_relaxed);
  flight_.record(wire::FlightKind::kCompileEnded, wire::kNoLane, pending.order_.request_id, compilation_);
  pending.order_.line->step_counter.fetch_add(1, std::memory_order_relaxed);
  line_.compile_ns.fetch_add(monotonic_now_ns() - start_ns, std::memory_order_relaxed);
  return program;
}

std::vector<ProgramCompiler::Pending> ProgramCompiler::take_from_queue(const Pending& first, bool with_equals) {
  std::vector<Pending> taken;
  std::erase_if(queue_, [&](const Pending& pending) {
    const bool matches = pending == first || (with_equals && pending->inputs_ == first->inputs_);
    if (matches) taken.push_back(pending);
    return matches;
  });
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

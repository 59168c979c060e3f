// RequestRunner: turns requests into replies; what a lane does between its socket calls.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "shm/wire/status_page.hpp"
#include "shoal/result.hpp"
#include "worker/exec/plan.hpp"
#include "worker/exec/program.hpp"
#include "worker/serve/cancelled_requests.hpp"
#include "worker/serve/client_arenas.hpp"
#include "worker/serve/flight_recorder.hpp"
#include "worker/serve/job.hpp"
#include "worker/serve/memory_limit.hpp"
#include "worker/serve/program_compiler.hpp"
#include "worker/serve/quarantine.hpp"

namespace shoal::worker {

/// What all lanes of a worker share; outlives them.
struct LaneEnvironment {
  const ServedModelView& served;
  ArenaRegistry& arenas;
  const CancelledRequests& cancelled;
  const Quarantine& quarantine;
  const MemoryLimit& memory;
  ProgramCompiler& compiler;
  FlightRecorder& flight;
  int control_fd = -1;  ///< to the supervisor
  int stop_fd = -1;     ///< readable: a lane ends when its socket is empty; -1: a lane runs until the process ends
};

/// Names `count` requests in the lane's line, beginning with the given one. If the worker dies before clear_line(), they count as
/// begun.
void name_in_line(wire::LaneLine& line, std::uint64_t request_id, std::uint64_t attempt, std::size_t count);
void clear_line(wire::LaneLine& line);

/// Names another request than the one that runs, if one does, until the end of the scope.
class NamedMeanwhile {
 public:
  NamedMeanwhile(wire::LaneLine& line, std::uint64_t request_id, std::uint64_t attempt);
  ~NamedMeanwhile();
  NamedMeanwhile(const NamedMeanwhile&) = delete;
  NamedMeanwhile& operator=(const NamedMeanwhile&) = delete;

 private:
  wire::LaneLine& line_;
  const std::uint64_t request_, attempt_, count_, hash_;
};

/// Ends a run between two steps when all its requests were cancelled. Each request gets one answer, whichever allocation fails.
///   Threads  thread-bound
class RequestRunner final : private StopCondition, private OutputSink {
 public:
  using Send = std::function<void(Frames)>;

  /// All outlive this.
  ///   bell         rung when a program is ready that a request waits for
  ///   before_long  called before what may take much longer than the run before: another program, a loop, a wait
  ///   held_bytes   the memory of the messages that the lane holds
  RequestRunner(
      const LaneEnvironment& environment, std::uint16_t lane, wire::LaneLine& line, ReadyBell& bell,
      std::function<void()> before_long = [] {}, std::function<std::uint64_t()> held_bytes = [] { return 0; });

  /// Makes the model's devices ready in the thread that will run. Errors: those of Model::activate()
  Status activate();

  /// Runs the request in `message` (its frames). If its program must be compiled first, the request is not begun: the caller
  /// calls again with the same message when waits_for() is ready.
  ///   program  waits_for() of the earlier call; null in the first call
  ///   Returns  the frames of the reply, or of the notice that the request waits, valid until the next call; none if the message
  ///            does not even name a request
  Frames answer(Frames message, std::shared_ptr<const PendingProgram> program = nullptr);
  /// What the request of the last answer() waits for; null if it was answered.
  const std::shared_ptr<const PendingProgram>& waits_for() const { return waits_for_; }

  /// Runs requests together that differ only in their first dimension, and passes the reply of each to `send`. A request with an
  /// error gets that as its answer, and the others run without it.
  ///   Returns  false if that is not possible (no program of that size yet, no memory, fewer than two requests that can run):
  ///            nothing was sent, and the caller answers each request by itself
  bool answer_joined(std::span<const Frames> messages, const Send& send);

  /// For before the lane waits: gives memory back if less than half of `memory_mb` is free, so that the next message can be
  /// received. Replies of earlier calls are not valid any more.
  void leave_room_to_receive();

  const Progress& progress() const { return progress_; }

 private:
  struct JoinedProgram {
    std::vector<TensorSpec> inputs;
    std::shared_ptr<const Program> program;
  };
  struct JoinedOrder {
    std::vector<TensorSpec> inputs;
    std::shared_ptr<const PendingProgram> pending;  ///< kept if it failed, so that it is not ordered again
  };

  bool should_stop() override;
  Result<std::byte*> place(std::size_t index, DType dtype, const Shape& shape) override;
  Status explain_exception();  ///< of the exception that is being handled
  void release_memory();       ///< allocates nothing
  void release_run_memory();
  void note_fallback(const Status& why);
  void record(wire::FlightKind kind, const Job& job, std::uint64_t value = 0);

  bool begin(Job& job, Frames message);
  Status find_arenas(Job& job);
  static void mark_out_of_memory(Job& job, const Status& status);
  Frames finish(Job& job, std::span<Job> others = {});
  Status try_to_run(Frames message, bool keeps_inputs);
  Status run(Frames message, bool keeps_inputs);
  Status refuse_quarantined(Job& job, bool keeps_inputs);
  Status choose_program();
  void note_arena(const Program& program);
  Status give_spare_memory();
  Result<std::byte*> spare_memory(std::size_t index, DType dtype, const Shape& shape);

  bool run_joined(std::span<const Frames> messages);
  bool find_joined_program(std::int64_t rows);
  std::shared_ptr<const Program> find_or_order_program();
  void gather_inputs();
  void locate_joined_outputs();
  void scatter_outputs(Job& job, std::int64_t first_row);

  const LaneEnvironment& environment_;
  const ServedModelView& served_;
  const std::uint16_t lane_;
  wire::LaneLine& line_;
  ReadyBell& bell_;
  const std::function<void()> before_long_;
  const std::function<std::uint64_t()> held_bytes_;
  Progress progress_;
  Context context_;
  std::uint64_t cancellations_ = 0;         ///< the count when should_stop() looked last
  std::vector<std::uint64_t> running_ids_;  ///< the requests of the run

  std::vector<TensorSpec> specs_;           ///< of the current request; names are set once
  std::shared_ptr<const Program> program_;  ///< of the last request that ran alone; the next one probably needs it, too
  std::shared_ptr<const PendingProgram> brought_, waits_for_;
  std::vector<Tensor> spare_outputs_;  ///< for outputs that do not fit their slots; kept for the next request
  Job job_;

  std::vector<Job> jobs_;                       ///< of the current messages, in their order; may be longer
  std::vector<Job*> joined_;                    ///< the ones that run
  std::vector<JoinedProgram> joined_programs_;  ///< the last one of each size
  std::vector<JoinedOrder> joined_orders_;      ///< oldest first
  const Program* joined_program_ = nullptr;     ///< of the current batch
  std::vector<AlignedBytes> joined_src_bytes_, joined_dst_bytes_;
  std::vector<TensorView> joined_src_, joined_dst_;
  std::vector<TensorSpec> member_outputs_;
};

}  // namespace shoal::worker

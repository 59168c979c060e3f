// RequestRunner: requests in, replies out; what a lane does between its socket calls.
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

/// What a worker's lanes have in common; outlives them.
struct LaneEnvironment {
  const ServedModelView& served;
  ArenaRegistry& arenas;
  const CancelledRequests& cancelled;
  const Quarantine& quarantine;
  const MemoryLimit& memory;
  ProgramCompiler& compiler;
  FlightRecorder& flight;
  int drain_fd = -1;    ///< readable when the worker drains
  int control_fd = -1;  ///< to the supervisor
};

/// A run is ended between two steps when nobody waits for its answer any more.
///   Threads  thread-bound
class RequestRunner final : private StopCondition {
 public:
  using Send = std::function<void(Frames)>;

  /// All outlive this.
  ///   wake_fd  an eventfd that is written to when a program is ready that a request waits for
  RequestRunner(const LaneEnvironment& environment, std::uint16_t lane, wire::LaneLine& line, int wake_fd);

  /// Runs the request in `message` (its frames). One whose program must be compiled first is not begun: waits_for() says so, and
  /// the caller comes again with the same message when that is ready.
  ///   program  what an earlier call waited for; null the first time
  ///   Returns  the frames of the reply, or of the notice that the request waits, valid until the next call; none when the
  ///   message is so broken that nobody waits for an answer
  Frames answer(Frames message, std::shared_ptr<const PendingProgram> program = nullptr);
  /// What the request of the last answer() waits for; null when it was answered.
  const std::shared_ptr<const PendingProgram>& waits_for() const { return waits_for_; }

  /// Runs requests that differ in nothing but their first dimension together, and hands the reply of each to `send`. One that has
  /// something wrong with it is answered so, and the others run without it.
  ///   Returns  false where that is not possible (no program of that size yet, no memory, fewer than two that can run): nothing
  ///   was sent, and each is to be answered by itself
  bool answer_joined(std::span<const Frames> messages, const Send& send);

  const Progress& progress() const { return progress_; }

 private:
  struct JoinedProgram {
    std::vector<TensorSpec> inputs;
    std::shared_ptr<const Program> program;
    std::shared_ptr<const PendingProgram> pending;  ///< kept when it failed, so that it is not tried again
  };

  bool should_stop() override;
  Status explain_exception();  ///< the one that is being handled
  void release_memory();
  void name_in_line(const wire::RequestHeader& first, std::size_t count);
  void clear_line();
  void record(wire::FlightKind kind, const Job& job, std::uint64_t value = 0);

  Status run(Frames message);
  Status refuse_quarantined(const Job& job);
  Status choose_program();
  void note_arena(const Program& program);
  Status give_spare_memory();

  bool run_joined(std::span<const Frames> messages);
  Status locate_member(Job& job, Frames message);
  bool find_joined_program(std::int64_t rows);
  void gather_inputs();
  void locate_joined_outputs();
  void scatter_outputs(Job& job, std::int64_t first_row);

  const LaneEnvironment& environment_;
  const ServedModelView& served_;
  const std::uint16_t lane_;
  wire::LaneLine& line_;
  const int wake_fd_;
  Progress progress_;
  Context context_;
  std::uint64_t cancellations_ = 0;         ///< how many should_stop() has looked at
  std::vector<std::uint64_t> running_ids_;  ///< what should_stop() asks about

  std::vector<TensorSpec> specs_;           ///< of the request at hand; names are set once
  std::shared_ptr<const Program> program_;  ///< of the last request that ran alone, likely that of the next
  std::shared_ptr<const PendingProgram> brought_, waits_for_;
  std::vector<Tensor> spare_outputs_;  ///< where outputs go that do not fit their slots; kept for the next request
  Job job_;

  std::vector<Job> jobs_;                       ///< of the messages at hand, in their order; more where there were more before
  std::vector<Job*> joined_;                    ///< those of them that run
  std::vector<JoinedProgram> joined_programs_;  ///< one per size
  const Program* joined_program_ = nullptr;     ///< that of the batch at hand
  std::vector<AlignedBytes> joined_src_bytes_, joined_dst_bytes_;
  std::vector<TensorView> joined_src_, joined_dst_;
  std::vector<TensorSpec> member_outputs_;
};

}  // namespace shoal::worker

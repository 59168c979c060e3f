// RequestRunner: one request in, one reply out; what a lane does between its two socket calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shm/wire/messages.hpp"
#include "shm/wire/status_page.hpp"
#include "shoal/result.hpp"
#include "shoal/runner.hpp"
#include "shoal/tensor.hpp"
#include "worker/exec/model.hpp"
#include "worker/serve/cancelled_requests.hpp"
#include "worker/serve/client_arenas.hpp"
#include "worker/serve/program_compiler.hpp"

namespace shoal::worker {

/// What all lanes of a worker share; outlives them.
struct ServedModelView {
  std::string name;  ///< names the model in errors
  Model& model;
  std::vector<TensorSpec> inputs;  ///< what it wants, the model's order
};

/// Believes nothing that a message says before it has checked it: the client may have written anything, and goes on writing its
/// input arena while it is read. Shapes and sizes therefore come from the message alone.
///   Threads  thread-bound
class RequestRunner {
 public:
  /// All outlive this.
  ///   wake_fd  an eventfd that is written to when a program is ready that a request waits for
  RequestRunner(const ServedModelView& served, ArenaRegistry& arenas, const CancelledRequests& cancelled,
                ProgramCompiler& compiler, wire::LaneLine& line, int wake_fd);

  /// Runs the request in `message` (its frames). One whose program must be compiled first is not begun: waits_for() says so, and
  /// the caller comes again with the same message when that is ready.
  ///   program  what an earlier call waited for; null the first time
  ///   Returns  the frames of the reply, or of the notice that the request waits, valid until the next call; none when the
  ///   message is so broken that nobody waits for an answer
  std::span<const std::span<const std::byte>> answer(std::span<const std::span<const std::byte>> message,
                                                     std::shared_ptr<const PendingProgram> program = nullptr);
  /// What the request of the last answer() waits for; null when it was answered.
  const std::shared_ptr<const PendingProgram>& waits_for() const { return waits_for_; }
  const Progress& progress() const { return progress_; }

 private:
  struct Run {  // of one request
    wire::Request request;
    std::shared_ptr<ClientArenas> arenas;
    std::vector<TensorView> src, dst;
    Ran ran = Ran::kNo;
    std::uint64_t compute_ns = 0;
  };
  Status run(std::span<const std::span<const std::byte>> message);
  Status check_inputs();
  Status find_arenas();
  Status locate_inputs(std::span<const std::span<const std::byte>> message);
  Status choose_program();
  Status locate_outputs();
  void describe_outputs();
  void start_reply(const wire::RequestHeader& request);
  void finish_reply(const Status& status);
  void finish_notice();

  const ServedModelView& served_;
  ArenaRegistry& arenas_;
  const CancelledRequests& cancelled_;
  ProgramCompiler& compiler_;
  wire::LaneLine& line_;
  const int wake_fd_;
  Progress progress_;
  Context context_;

  std::vector<TensorSpec> specs_;           ///< of the request at hand; names are set once
  std::shared_ptr<const Program> program_;  ///< of the last request, likely that of the next
  std::shared_ptr<const PendingProgram> brought_, waits_for_;
  std::vector<Tensor> spare_outputs_;  ///< where outputs go that do not fit their slots; kept for the next request
  Run run_;
  wire::Reply reply_;
  std::vector<std::byte> reply_frame_;
  std::string text_;
  std::vector<std::span<const std::byte>> reply_frames_;
};

}  // namespace shoal::worker

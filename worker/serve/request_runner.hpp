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
  RequestRunner(const ServedModelView& served, ArenaRegistry& arenas, const CancelledRequests& cancelled, wire::LaneLine& line);

  /// Runs the request in `message` (its frames).
  ///   Returns  the frames of the reply, valid until the next call; none when the message is so broken that nobody waits for an
  ///   answer
  std::span<const std::span<const std::byte>> answer(std::span<const std::span<const std::byte>> message);
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

  const ServedModelView& served_;
  ArenaRegistry& arenas_;
  const CancelledRequests& cancelled_;
  wire::LaneLine& line_;
  Progress progress_;
  Context context_;

  std::vector<TensorSpec> specs_;           ///< of the request at hand; names are set once
  std::shared_ptr<const Program> program_;  ///< of the last request, likely that of the next
  std::vector<Tensor> spare_outputs_;       ///< where outputs go that do not fit their slots; kept for the next request
  Run run_;
  wire::Reply reply_;
  std::vector<std::byte> reply_frame_;
  std::string text_;
  std::vector<std::span<const std::byte>> reply_frames_;
};

}  // namespace shoal::worker

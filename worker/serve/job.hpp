// Job: one request in a lane, from its message to its reply.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shm/wire/messages.hpp"
#include "shoal/result.hpp"
#include "shoal/runner.hpp"
#include "shoal/tensor.hpp"
#include "worker/exec/model.hpp"
#include "worker/serve/client_arenas.hpp"

namespace shoal::worker {

/// The stored input of a model and what it must answer; zeros and nothing where none is stored.
struct GoldenCase {
  std::vector<Tensor> inputs;  ///< the model's order
  Tensors outputs;             ///< by name; those that are not there are not compared
  double tolerance = 0;        ///< of max(1, max|expected|)
};

/// What all lanes of a worker share; outlives them.
struct ServedModelView {
  std::string name;  ///< names the model in errors
  Model& model;
  std::vector<TensorSpec> inputs;  ///< what it wants, the model's order
  int threads = 1;                 ///< the width
  int memory_mb = 0;               ///< private memory that the worker may take; 0 = no limit
  GoldenCase golden = {};
};

using Frames = std::span<const std::span<const std::byte>>;  ///< of a message

/// Believes nothing that a message says before it has checked it: the client may have written anything, and goes on writing its
/// input arena while it is read. Shapes and sizes therefore come from the message alone. Reused for one request after the other,
/// so that in the long run none allocates.
///   Threads  thread-bound
class Job {
 public:
  /// Forgets the last request. False when the message is so broken that nobody waits for an answer.
  bool begin(Frames message);
  /// Finds and checks its inputs: src() is good then. Waits for its client's arenas if need be.
  ///   Errors  what the message got wrong, named; kInternal: the arenas did not come
  Status locate_inputs(const ServedModelView& served, ArenaRegistry& registry, Frames message);
  /// Where its outputs go: their slots, as far as they fit. Others are left without memory and travel as frames.
  ///   Errors  kInvalidArgument: a slot outside its arena
  Status locate_outputs(const std::vector<TensorSpec>& outputs);
  /// The frames of the reply, as `status` and the others below say; valid until the next begin().
  Frames finish(const std::string& model_name);
  /// Nothing more is done with it here: its client's arenas may go.
  void let_go() { arenas_.reset(); }
  /// Those of the notice that the request waits for its program.
  Frames finish_notice();

  const wire::RequestHeader& header() const { return request_.header; }
  std::span<const TensorView> src() const { return src_; }
  std::span<TensorView> dst() { return dst_; }

  Status status;  ///< begin() says what is wrong with the message, the caller the rest
  Ran ran = Ran::kNo;
  std::uint64_t compute_ns = 0;
  std::uint16_t batch = 1;  ///< requests that ran together

 private:
  wire::Request request_;
  std::shared_ptr<ClientArenas> arenas_;
  std::vector<TensorView> src_, dst_;
  wire::Reply reply_;
  std::vector<std::byte> reply_frame_;
  std::string text_;
  std::vector<std::span<const std::byte>> reply_frames_;
};

}  // namespace shoal::worker

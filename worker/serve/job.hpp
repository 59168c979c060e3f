// Job: one request in a lane, from its message to its reply.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shm/wire/messages.hpp"
#include "shoal/outcome.hpp"
#include "shoal/result.hpp"
#include "shoal/tensor.hpp"
#include "worker/exec/model.hpp"
#include "worker/serve/client_arenas.hpp"

namespace shoal::worker {

/// A model's stored input and the expected outputs; zeros and no outputs if none are stored.
struct GoldenCase {
  std::vector<Tensor> inputs;  ///< the model's order
  Tensors outputs;             ///< by name; other outputs are not compared
  double tolerance = 0;        ///< relative to max(1, max|expected|)
};

/// The model that a worker serves. Outlives its lanes.
struct ServedModelView {
  std::string name;  ///< names the model in errors
  Model& model;
  std::vector<TensorSpec> inputs;  ///< in the model's order
  int threads = 1;                 ///< the width
  int memory_mb = 0;               ///< private memory that the worker may take; 0 = no limit
  GoldenCase golden = {};
  std::uint64_t longest_reply_bytes = 0;  ///< the outputs in one message to the supervisor; 0 = no limit
};

using Frames = std::span<const std::span<const std::byte>>;  ///< the frames of a message

/// Checks everything in a message before it is used: a client may send anything, and may write its input arena while it is read.
/// So shapes and sizes come from the message alone. One Job serves many requests, so that after some of them it allocates
/// nothing.
///   Threads  thread-bound
class Job {
 public:
  /// Forgets the last request. False if the message does not even name a request.
  bool begin(Frames message);
  /// Checks shapes and dtypes, and finds the client's arenas; calls `before_wait` and waits for them if necessary.
  /// Touches no input.
  ///   Errors  kInvalidArgument: names what is wrong in the message; kInternal: the arenas did not come
  Status find_arenas(const ServedModelView& served, ArenaRegistry& registry, const std::function<void()>& before_wait);
  /// After find_arenas(): src() is valid then.
  ///   Errors  kInvalidArgument: names the input that is not where the message says
  Status locate_inputs(const ServedModelView& served, Frames message);
  /// Copies the inputs out of the client's memory: what is hashed then is what runs. After locate_inputs(). Returns false if
  /// there is no memory for the copy: nothing is kept then, and src() is as before.
  bool keep_inputs();
  /// Places each output in its slot if it fits. Other outputs get no memory here and travel as frames.
  ///   Errors  kInvalidArgument: a slot outside its arena; more bytes in frames than a message may have
  /// Those whose sizes depend on data are left for place_output().
  Status locate_outputs(const ServedModelView& served, const std::vector<TensorSpec>& outputs);
  /// Places an output whose size depends on data, and gives its shape to dst(); the same errors.
  Status place_output(const ServedModelView& served, const TensorSpec& output, std::size_t index, const Shape& shape);
  /// The frames of the reply, made of `status` and the members below; valid until the next begin().
  Frames finish(const std::string& model_name);
  /// Frees what keep_inputs() copied. src() is empty then.
  void forget_inputs();
  /// Gives the client's arenas back: this Job does nothing more with the request.
  void let_go() { arenas_.reset(); }
  /// The frames of the notice that the request waits for its program. prepare_notice() comes first: it allocates them.
  Frames finish_notice() { return reply_frames_; }
  void prepare_notice();

  const wire::RequestHeader& header() const { return request_.header; }
  std::span<const TensorView> src() const { return src_; }
  std::span<TensorView> dst() { return dst_; }

  Status status;  ///< set by begin() if the message is wrong, else by the caller
  Ran ran = Ran::kNo;
  std::uint64_t compute_ns = 0;
  std::uint16_t batch = 1;  ///< requests that ran together

 private:
  wire::Request request_;
  std::shared_ptr<ClientArenas> arenas_;
  Status locate_output(const TensorSpec& output, std::size_t index);
  Status check_frames(const ServedModelView& served) const;

  std::vector<TensorView> src_, dst_;
  std::uint64_t frame_bytes_ = 0;  ///< of outputs that travel as frames
  std::vector<Tensor> kept_;       ///< what keep_inputs() copied
  wire::Reply reply_;
  std::vector<std::byte> reply_frame_;
  std::string text_;
  std::vector<std::span<const std::byte>> reply_frames_;
};

}  // namespace shoal::worker

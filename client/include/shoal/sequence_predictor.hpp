// SequencePredictor: sequences of any length, in one piece or piece by piece.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shoal/predictor.hpp"

namespace shoal {

class Pool;

struct SequenceOptions {
  StructSize<SequenceOptions> struct_size{};
  /// Lengths, the shortest first. A sequence runs with the next of them: its end is filled up, and the outputs are cut back. So
  /// few programs serve all lengths. A sequence that is longer than all of them runs as it is. Empty: every sequence does; if the
  /// model takes only one length, that is the only bucket. You promise that what fills the end does not change what is before it.
  List<std::int64_t> buckets;
  double padding = 0;  ///< what fills the end of the inputs
  /// The dimension of inputs and outputs that is the time. -1 = T of a layout (DataDesc), else 1: batch x time.
  int time_axis = -1;
  List<DataDesc> inputs, outputs;  ///< as in PredictorOptions
  std::uint64_t version = 0;       ///< likewise
};

/// One sequence of a recurrent model, or many that have nothing to do with each other.
/// A model with states (ModelInfo::state) goes on where the last call has ended: with a Pool they are those of a Session, else
/// this keeps them. Each call is the next piece of the sequence, of any length; reset() begins a new one. Buckets are refused
/// then, because states would go on over the padding. Without states every call is a sequence of its own.
///   Threads   thread-compatible: one call at a time
class SequencePredictor {
 public:
  /// Asks the client for the model's description.
  ///   Errors  those of Predictor::create() and Pool::open_session(); kInvalidArgument (buckets that do not ascend, that the
  ///   model
  ///           does not take, or of one with states); kFailedPrecondition (buckets, but no input with a time axis)
  static Result<SequencePredictor> create(Client client, std::string model, const SequenceOptions& options = {});
  /// The same with a session of the pool.
  static Result<SequencePredictor> create(Pool& pool, std::string model, const SequenceOptions& options = {});

  SequencePredictor(SequencePredictor&&) noexcept;
  SequencePredictor& operator=(SequencePredictor&&) noexcept;
  ~SequencePredictor();

  /// Runs the model over a sequence, or the next piece of one, and waits.
  ///   inputs   those of the model, in any order. States may be left out. Those with a time axis have the same length
  ///   Returns  the outputs in the model's order. Those with the time axis, and those of time x batch rows, are as long as the
  ///            inputs; others are as the model gives them
  ///   Errors   those of Predictor::predict() and Session::predict(); kInvalidArgument (lengths that differ). A call that fails
  ///            leaves the sequence as it was
  Result<Tensors> predict(Tensors inputs, const SubmitOptions& options = {});
  Result<Tensors> predict(Tensor input, const SubmitOptions& options = {});
  Result<Tensors> predict(Numbers input, const SubmitOptions& options = {});

  /// The next call begins a new sequence. Errors: those of Session::reset().
  Status reset();

  const Predictor& predictor() const&;
  Predictor predictor() && { return std::as_const(*this).predictor(); }

 private:
  struct Impl;
  explicit SequencePredictor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal

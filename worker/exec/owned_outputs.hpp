// OwnedOutputs: the outputs of a run in memory of their own.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "worker/exec/program.hpp"

namespace shoal::worker {

/// Threads: thread-compatible
class OwnedOutputs final : public OutputSink {
 public:
  /// Allocates the outputs whose sizes are known.
  ///   outputs  as Program::outputs()
  ///   Errors   those of Tensor::create()
  static Result<OwnedOutputs> make(const std::vector<TensorSpec>& outputs);

  /// For one run: an output whose size depends on data has no memory, even if an earlier run gave it some.
  std::span<TensorView> views();
  Result<std::byte*> place(std::size_t index, DType dtype, const Shape& shape) override;
  /// After a run: all of them, with their names.
  const Tensors& tensors() const& { return tensors_; }
  Tensors take() && { return std::move(tensors_); }

 private:
  Tensors tensors_;
  std::vector<TensorView> as_made_, views_;
};

}  // namespace shoal::worker

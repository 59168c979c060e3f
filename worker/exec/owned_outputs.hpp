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

  std::span<TensorView> views() { return views_; }
  Result<std::byte*> place(std::size_t index, DType dtype, const Shape& shape) override;
  /// After a run: all of them, with their names.
  Tensors take() && { return std::move(tensors_); }

 private:
  Tensors tensors_;
  std::vector<TensorView> views_;
};

}  // namespace shoal::worker

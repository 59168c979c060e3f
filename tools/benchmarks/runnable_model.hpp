// A model that is loaded into this process, with its tensors: a benchmark can run it.
#pragma once

#include <memory>
#include <vector>

#include "tools/benchmarks/model_bench.hpp"
#include "worker/exec/model.hpp"

namespace shoal::bench {

/// Threads: thread-bound
class RunnableModel {
 public:
  ///   Errors  those of finding, importing and loading; kInvalidArgument (`shapes`: wrong form, unknown name, name given twice,
  ///           input of the model not named)
  static Result<RunnableModel> load(const ModelBenchOptions& options);

  /// Sets the input that `shapes[index]` names. The model may have its inputs in another order.
  ///   Errors  kInvalidArgument (not the declared type and shape)
  Status set_input(std::size_t index, Tensor input);
  /// All inputs from DIRECTORY/0.npy, DIRECTORY/1.npy, ... in the order of `shapes`.
  Status read_inputs(const std::string& directory);
  /// Writes all outputs to DIRECTORY/0.npy, DIRECTORY/1.npy, ...
  Status write_outputs(const std::string& directory) const;
  Status run() { return program_->run(context_, src_, dst_); }
  const std::vector<Tensor>& outputs() const { return outputs_; }
  const worker::Program& program() const { return *program_; }
  const worker::Model& model() const { return *model_; }
  worker::Context& context() { return context_; }

 private:
  std::unique_ptr<worker::Model> model_;
  std::shared_ptr<const worker::Program> program_;
  worker::Context context_;
  std::vector<TensorSpec> given_;         // in the order of `shapes`
  std::vector<Tensor> inputs_, outputs_;  // in the order of the program
  std::vector<TensorView> src_, dst_;
};

}  // namespace shoal::bench

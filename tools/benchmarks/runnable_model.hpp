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
  ///   Errors  those of finding, importing and loading; kInvalidArgument (`shape`)
  static Result<RunnableModel> load(const ModelBenchOptions& options);

  void set_input(Tensor input);
  Status run() { return program_->run(context_, src_, dst_); }
  const Tensor& output() const { return outputs_.front(); }
  const worker::Program& program() const { return *program_; }
  const worker::Model& model() const { return *model_; }
  worker::Context& context() { return context_; }

 private:
  std::unique_ptr<worker::Model> model_;
  std::shared_ptr<const worker::Program> program_;
  worker::Context context_;
  std::vector<Tensor> inputs_, outputs_;
  std::vector<TensorView> src_, dst_;
};

}  // namespace shoal::bench

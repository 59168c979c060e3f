#include "client/predict/src/local_model.hpp"

#include <omp.h>

#include "client/predict/src/core_turns.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/fork_guard.hpp"
#include "worker/engine/model_loader.hpp"
#include "worker/engine/thread_settings.hpp"
#include "worker/exec/owned_outputs.hpp"

namespace shoal::predict {
namespace {

class LocalModel final : public SharedModel {
 public:
  explicit LocalModel(worker::LoadedModel loaded) : loaded_(std::move(loaded)) {}

  Result<std::unique_ptr<BoundModel>> bind(const std::vector<TensorSpec>& inputs) override;
  Result<Tensor> make_input(DType dtype, const Shape& shape) override { return Tensor::create(dtype, shape); }

  worker::Model& model() const { return *loaded_.model; }

 private:
  const worker::LoadedModel loaded_;
};

class BoundLocalModel final : public BoundModel {
 public:
  BoundLocalModel(std::shared_ptr<LocalModel> shared, std::shared_ptr<const worker::Program> program,
                  worker::OwnedOutputs outputs)
      : shared_(std::move(shared)), program_(std::move(program)), outputs_(std::move(outputs)) {
    context_.sink = &outputs_;
  }

  const std::vector<TensorSpec>& outputs() const override { return program_->outputs(); }

  Result<const Tensors*> run(const Tensors& inputs) override {
    SHOAL_RETURN_IF_ERROR(shared_->usable());
    src_.clear();
    for (const NamedTensor& input : inputs) src_.push_back(input.tensor.view());
    const int width = shared_->model().threads();
    const CoreTurns::Turn turn(width);
    const worker::RunSettings settings(width);
    shared_->model().enter_thread();
    SHOAL_RETURN_IF_ERROR(program_->run(context_, src_, outputs_.views()));
    return &outputs_.tensors();
  }

 private:
  const std::shared_ptr<LocalModel> shared_;
  const std::shared_ptr<const worker::Program> program_;
  worker::OwnedOutputs outputs_;
  worker::Context context_;
  std::vector<TensorView> src_;
};

Result<std::unique_ptr<BoundModel>> LocalModel::bind(const std::vector<TensorSpec>& inputs) {
  SHOAL_RETURN_IF_ERROR(usable());
  const worker::RunSettings settings;
  model().enter_thread();
  SHOAL_ASSIGN_OR_RETURN(auto program, model().program(inputs));
  SHOAL_ASSIGN_OR_RETURN(worker::OwnedOutputs outputs, worker::OwnedOutputs::make(program->outputs()));
  auto self = std::static_pointer_cast<LocalModel>(shared_from_this());
  return std::unique_ptr<BoundModel>(std::make_unique<BoundLocalModel>(std::move(self), std::move(program), std::move(outputs)));
}

}  // namespace

Result<std::shared_ptr<SharedModel>> load_local_model(GivenModel given, int threads) {
  const worker::RunSettings settings;
  worker::ModelSource source{.name = given.import.graph.outputs.front().name, .path = "in memory", .files = {}, .config = {}};
  source.config.inputs = std::move(given.inputs);
  source.config.threads = threads;
  source.config.tuning_ms = 0;
  SHOAL_ASSIGN_OR_RETURN(worker::LoadedModel loaded, worker::load_model(source, std::move(given.import)));
  return std::shared_ptr<SharedModel>(std::make_shared<LocalModel>(std::move(loaded)));
}

int cores_of_this_thread() {
  static const ForkGuard first_use;
  return first_use.in_child() ? 1 : ::omp_get_max_threads();
}

}  // namespace shoal::predict

#include "tests/golden/devices.hpp"

#include <algorithm>
#include <cstdio>

#include "shm/base/errors.hpp"
#include "worker/import/importer.hpp"

namespace shoal::testing {

std::vector<TensorSpec> specs_of(const Tensors& tensors) {
  std::vector<TensorSpec> specs;
  for (const NamedTensor& tensor : tensors) specs.push_back({tensor.name, tensor.tensor.dtype(), tensor.tensor.shape()});
  return specs;
}

Result<std::unique_ptr<worker::Model>> load_checkpoint(const std::string& prefix, int epoch, const std::string& device,
                                                       std::span<const TensorSpec> inputs, worker::ModelOptions options) {
  char ending[32];
  std::snprintf(ending, sizeof(ending), "-%04d.params", epoch);
  SHOAL_ASSIGN_OR_RETURN(worker::Import import, worker::read_model({prefix + "-symbol.json", prefix + ending}));
  options.device = device;
  options.input_sets = {{inputs.begin(), inputs.end()}};
  return worker::Model::load(std::move(import.graph), std::move(options));
}

Result<Tensors> run(worker::Model& model, const Tensors& inputs) {
  model.enter_thread();
  SHOAL_ASSIGN_OR_RETURN(const auto program, model.program(specs_of(inputs)));
  std::vector<TensorView> src, dst;
  for (const TensorSpec& spec : program->inputs()) {
    const auto given =
        std::find_if(inputs.begin(), inputs.end(), [&](const NamedTensor& input) { return input.name == spec.name; });
    if (given == inputs.end()) return invalid_argument("input '{}' is not among the case's", spec.name);
    src.push_back(given->tensor.view());
  }
  Tensors outputs;
  for (const TensorSpec& spec : program->outputs()) {
    SHOAL_ASSIGN_OR_RETURN(Tensor tensor, Tensor::create(spec.dtype, spec.shape));
    dst.push_back(tensor.view());
    outputs.push_back({spec.name, std::move(tensor)});
  }
  worker::Context context;
  SHOAL_RETURN_IF_ERROR(program->run(context, src, dst));
  return outputs;
}

}  // namespace shoal::testing

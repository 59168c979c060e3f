#include "tools/benchmarks/runnable_model.hpp"

#include <sstream>

#include "shm/base/errors.hpp"
#include "shm/model/model_config.hpp"
#include "shm/tensor/npy.hpp"
#include "shm/tensor/spec.hpp"
#include "worker/import/importer.hpp"

namespace shoal::bench {
namespace {

Result<TensorSpec> parse_shape(const std::string& text) {
  const auto equals = text.find('=');
  if (equals == std::string::npos) return invalid_argument("--shape {}: write name=1,3,224,224", text);
  std::vector<std::int64_t> dims;
  std::istringstream numbers(text.substr(equals + 1));
  for (std::string number; std::getline(numbers, number, ',');) dims.push_back(std::stoll(number));
  if (dims.size() > kMaxRank) return invalid_argument("--shape {}: more than {} dimensions", text, kMaxRank);
  return TensorSpec{text.substr(0, equals), DType::kFloat32, Shape(dims)};
}

}  // namespace

Result<RunnableModel> RunnableModel::load(const ModelBenchOptions& options) {
  RunnableModel loaded;
  for (const std::string& text : options.shapes) {
    SHOAL_ASSIGN_OR_RETURN(loaded.specs_.emplace_back(), parse_shape(text));
  }
  SHOAL_ASSIGN_OR_RETURN(const ModelFiles files, find_model(options.path));
  SHOAL_ASSIGN_OR_RETURN(auto imported, worker::read_model(files.files));
  SHOAL_ASSIGN_OR_RETURN(const worker::Precision precision, worker::parse_precision(options.precision));
  SHOAL_ASSIGN_OR_RETURN(loaded.model_, worker::Model::load(std::move(imported.graph),
                                                            {.device = options.device,
                                                             .threads = options.threads,
                                                             .input_sets = {loaded.specs_},
                                                             .precision = precision,
                                                             .tuning_budget = std::chrono::milliseconds(options.tuning_ms)}));
  loaded.model_->enter_thread();
  SHOAL_ASSIGN_OR_RETURN(loaded.program_, loaded.model_->program(loaded.specs_));
  for (const TensorSpec& spec : loaded.specs_) {
    SHOAL_ASSIGN_OR_RETURN(Tensor input, Tensor::create(spec.dtype, spec.shape));
    loaded.src_.push_back(input.view());
    loaded.inputs_.push_back(std::move(input));
  }
  for (const TensorSpec& spec : loaded.program_->outputs()) {
    SHOAL_ASSIGN_OR_RETURN(Tensor output, Tensor::create(spec.dtype, spec.shape));
    loaded.dst_.push_back(output.view());
    loaded.outputs_.push_back(std::move(output));
  }
  return loaded;
}

Status RunnableModel::set_input(std::size_t index, Tensor input) {
  SHOAL_RETURN_IF_ERROR(check_matches(specs_.at(index), input.dtype(), input.shape()));
  inputs_[index] = std::move(input);
  src_[index] = inputs_[index].view();
  return {};
}

Status RunnableModel::read_inputs(const std::string& directory) {
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    SHOAL_ASSIGN_OR_RETURN(Tensor input, read_npy(format("{}/{}.npy", directory, i)));
    SHOAL_RETURN_IF_ERROR(set_input(i, std::move(input)));
  }
  return {};
}

Status RunnableModel::write_outputs(const std::string& directory) const {
  for (std::size_t i = 0; i < outputs_.size(); ++i)
    SHOAL_RETURN_IF_ERROR(write_npy(format("{}/{}.npy", directory, i), outputs_[i].view()));
  return {};
}

}  // namespace shoal::bench

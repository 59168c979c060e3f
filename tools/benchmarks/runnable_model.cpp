#include "tools/benchmarks/runnable_model.hpp"

#include <sstream>

#include "shm/base/errors.hpp"
#include "shm/model/model_config.hpp"
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
  SHOAL_ASSIGN_OR_RETURN(const TensorSpec input_spec, parse_shape(options.shape));
  SHOAL_ASSIGN_OR_RETURN(const ModelFiles files, find_model(options.path));
  SHOAL_ASSIGN_OR_RETURN(auto imported, worker::read_model(files.files));
  SHOAL_ASSIGN_OR_RETURN(const worker::Precision precision, worker::parse_precision(options.precision));
  RunnableModel loaded;
  SHOAL_ASSIGN_OR_RETURN(loaded.model_, worker::Model::load(std::move(imported.graph),
                                                            {.device = options.device,
                                                             .threads = options.threads,
                                                             .input_sets = {{input_spec}},
                                                             .precision = precision,
                                                             .tuning_budget = std::chrono::milliseconds(options.tuning_ms)}));
  loaded.model_->enter_thread();
  SHOAL_ASSIGN_OR_RETURN(loaded.program_, loaded.model_->program(std::span(&input_spec, 1)));
  SHOAL_ASSIGN_OR_RETURN(Tensor input, Tensor::create(input_spec.dtype, input_spec.shape));
  loaded.src_ = {input.view()};
  loaded.inputs_.push_back(std::move(input));
  for (const TensorSpec& spec : loaded.program_->outputs()) {
    SHOAL_ASSIGN_OR_RETURN(Tensor output, Tensor::create(spec.dtype, spec.shape));
    loaded.dst_.push_back(output.view());
    loaded.outputs_.push_back(std::move(output));
  }
  return loaded;
}

void RunnableModel::set_input(Tensor input) {
  inputs_.front() = std::move(input);
  src_.front() = inputs_.front().view();
}

}  // namespace shoal::bench

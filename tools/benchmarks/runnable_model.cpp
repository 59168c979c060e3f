#include "tools/benchmarks/runnable_model.hpp"

#include <algorithm>
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

Result<std::vector<TensorSpec>> parse_shapes(const std::vector<std::string>& texts) {
  std::vector<TensorSpec> specs;
  for (const std::string& text : texts) {
    SHOAL_ASSIGN_OR_RETURN(TensorSpec spec, parse_shape(text));
    if (std::ranges::count(specs, spec.name, &TensorSpec::name) > 0)
      return invalid_argument("--shape {}: input '{}' is given twice", text, spec.name);
    specs.push_back(std::move(spec));
  }
  return specs;
}

}  // namespace

Result<RunnableModel> RunnableModel::load(const ModelBenchOptions& options) {
  RunnableModel loaded;
  SHOAL_ASSIGN_OR_RETURN(loaded.given_, parse_shapes(options.shapes));
  SHOAL_ASSIGN_OR_RETURN(const ModelFiles files, find_model(options.path));
  SHOAL_ASSIGN_OR_RETURN(auto imported, worker::read_model(files.files));
  SHOAL_ASSIGN_OR_RETURN(const worker::Precision precision, worker::parse_precision(options.precision));
  SHOAL_ASSIGN_OR_RETURN(loaded.model_, worker::Model::load(std::move(imported.graph),
                                                            {.device = options.device,
                                                             .threads = options.threads,
                                                             .input_sets = {loaded.given_},
                                                             .precision = precision,
                                                             .tuning_budget = std::chrono::milliseconds(options.tuning_ms)}));
  loaded.model_->enter_thread();
  SHOAL_ASSIGN_OR_RETURN(loaded.program_, loaded.model_->program(loaded.given_));
  for (const TensorSpec& spec : loaded.program_->inputs()) {
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
  const TensorSpec& spec = given_.at(index);
  SHOAL_RETURN_IF_ERROR(check_matches(spec, input.dtype(), input.shape()));
  const auto found = std::ranges::find(program_->inputs(), spec.name, &TensorSpec::name);
  if (found == program_->inputs().end()) return {};  // the program does not read it: a label
  const auto position = static_cast<std::size_t>(found - program_->inputs().begin());
  inputs_[position] = std::move(input);
  src_[position] = inputs_[position].view();
  return {};
}

Status RunnableModel::read_inputs(const std::string& directory) {
  for (std::size_t i = 0; i < given_.size(); ++i) {
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

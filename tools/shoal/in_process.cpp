#include "tools/shoal/in_process.hpp"

#include <algorithm>
#include <filesystem>
#include <set>

#include "shm/base/errors.hpp"
#include "shm/model/model_config.hpp"
#include "shm/model/model_kind.hpp"
#include "shm/tensor/spec.hpp"
#include "shm/tensor/state.hpp"
#include "worker/engine/identity_model.hpp"
#include "worker/engine/sparse_inputs.hpp"
#include "worker/import/importer.hpp"

namespace shoal::tool {
namespace {

/// What is known of a checkpoint from its files, before it is loaded.
struct Checkpoint {
  ModelConfig config;
  std::vector<TensorSpec> inputs;  ///< Shape::any() if the graph does not give the shape
  std::vector<std::string> labels;
  std::string name;
  bool has_shapes() const { return !config.inputs.empty() || !config.shapes.empty(); }
};

/// `given` are the inputs of the request. If model.toml does not name the inputs, these are data and not parameters.
Result<Checkpoint> look_into(const std::string& path, const Tensors& given = {}) {
  Checkpoint checkpoint;
  SHOAL_ASSIGN_OR_RETURN(const ModelFiles files, find_model(path));
  SHOAL_ASSIGN_OR_RETURN(checkpoint.config, read_model_config(files));
  const auto limits = worker::ImportLimits::of_mb(checkpoint.config.import_mb);
  SHOAL_ASSIGN_OR_RETURN(auto import, worker::read_model(files.files, checkpoint.config.outputs, limits));
  std::set<std::string> data = named_inputs(checkpoint.config);
  for (const NamedTensor& tensor : given) {
    if (!checkpoint.has_shapes()) data.insert(tensor.name);
  }
  SHOAL_RETURN_IF_ERROR(worker::check_parameters(import, data));
  SHOAL_RETURN_IF_ERROR(worker::take_sparse_inputs(checkpoint.config, import.graph, path));
  checkpoint.inputs = import.graph.input_specs();
  checkpoint.labels = import.graph.ignored_inputs;
  checkpoint.name = files.prefix;
  return checkpoint;
}

Status check_names(const Checkpoint& checkpoint, const std::set<std::string>& names) {
  return check_input_names(format("model '{}'", checkpoint.name), checkpoint.inputs, checkpoint.labels, names);
}

/// The set of inputs to compile for, without labels and without states that are left out.
Result<std::vector<TensorSpec>> input_set(const Checkpoint& checkpoint, const Tensors& given) {
  std::set<std::string> names;
  for (const NamedTensor& tensor : given) names.insert(tensor.name);
  SHOAL_RETURN_IF_ERROR(check_names(checkpoint, names));
  std::vector<TensorSpec> set;
  for (const auto& [name, tensor] : given) {
    if (std::ranges::count(checkpoint.labels, name) > 0) continue;
    if (std::ranges::count(set, name, &TensorSpec::name) > 0)
      return invalid_argument("model '{}': input '{}' is given twice", checkpoint.name, name);
    set.push_back({name, tensor.dtype(), tensor.shape()});
  }
  for (const TensorSpec& input : checkpoint.inputs) {
    if (std::ranges::count(set, input.name, &TensorSpec::name) == 0 && !find_state(checkpoint.config.state, input.name)) {
      return invalid_argument("model '{}': input '{}' is missing (it has: {})", checkpoint.name, input.name,
                              names_of(checkpoint.inputs));
    }
  }
  return set;
}

/// Checks the dtypes of model.toml, as the daemon does, but not its shapes, which only limit what the daemon accepts.
Status check_dtypes(const Checkpoint& checkpoint, const std::vector<TensorSpec>& set) {
  for (const TensorSpec& given : set) {
    const auto wanted = std::ranges::find(checkpoint.config.inputs, given.name, &TensorSpec::name);
    if (wanted == checkpoint.config.inputs.end()) continue;
    const Status matches = check_matches({wanted->name, wanted->dtype}, given.dtype, given.shape);
    if (!matches.ok()) return matches.with_context(format("model '{}'", checkpoint.name));
  }
  return {};
}

/// Engine::load() with progress.
Result<Engine> load_visibly(const std::string& path, const EngineOptions& options, const Working& working) {
  return Engine::load(path, options, show_measuring(working));
}

Working loading(const std::string& path) { return Working("loading " + path); }

}  // namespace

OnMeasuring show_measuring(const Working& working) {
  return [&working](std::chrono::milliseconds spent, std::chrono::milliseconds budget) {
    const auto seconds = [](std::chrono::milliseconds time) { return (time.count() + 999) / 1000; };
    working.say(format("measuring which algorithms are fastest, {} of {} s", seconds(spent), seconds(budget)));
  };
}

bool is_path(const std::string& model) {
  std::error_code error;
  const std::string prefix = model.substr(0, model.rfind('@'));
  return model == worker::kIdentityPath || model.find('/') != std::string::npos || std::filesystem::exists(model, error) ||
         is_model_prefix(prefix);
}

Result<Engine> load_for_inputs(const std::string& path, EngineOptions options, const Tensors& inputs) {
  if (path == worker::kIdentityPath) return Engine::load(path, options);
  const Working working = loading(path);
  SHOAL_ASSIGN_OR_RETURN(const Checkpoint checkpoint, look_into(path, inputs));
  SHOAL_ASSIGN_OR_RETURN(std::vector<TensorSpec> set, input_set(checkpoint, inputs));
  SHOAL_RETURN_IF_ERROR(check_dtypes(checkpoint, set));
  if (!checkpoint.has_shapes()) options.shapes = {std::move(set)};
  return load_visibly(path, options, working);
}

Result<Engine> load_for_shapes(const std::string& path, EngineOptions options, std::span<const TensorSpec> shapes) {
  if (path == worker::kIdentityPath) return Engine::load(path, options);
  const Working working = loading(path);
  if (shapes.empty()) return load_visibly(path, options, working);
  SHOAL_ASSIGN_OR_RETURN(const Checkpoint checkpoint, look_into(path));
  std::set<std::string> names;
  for (const TensorSpec& input : shapes) names.insert(input.name);
  SHOAL_RETURN_IF_ERROR(check_names(checkpoint, names));
  if (!checkpoint.has_shapes()) options.shapes = {std::vector(shapes.begin(), shapes.end())};
  return load_visibly(path, options, working);
}

Result<Engine> load_for_pictures(const std::string& path, EngineOptions options, const Optional<Preprocess>& preprocess) {
  if (path == worker::kIdentityPath) return Engine::load(path, options);
  const Working working = loading(path);
  if (!preprocess || preprocess->crop_height == 0) return load_visibly(path, options, working);
  SHOAL_ASSIGN_OR_RETURN(const Checkpoint checkpoint, look_into(path));
  if (!checkpoint.has_shapes() && checkpoint.inputs.size() == 1 && !checkpoint.inputs[0].shape.is_known()) {
    const std::int64_t channels = preprocess->order == "GRAY" ? 1 : 3;
    options.shapes = {
        {{checkpoint.inputs[0].name, DType::kFloat32, {1, channels, preprocess->crop_height, preprocess->crop_width}}}};
  }
  return load_visibly(path, options, working);
}

}  // namespace shoal::tool

#include "worker/engine/model_loader.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "shm/base/errors.hpp"
#include "worker/engine/identity_model.hpp"
#include "worker/import/mxnet/mxnet_importer.hpp"

namespace shoal::worker {
namespace {

// The outputs for one set of inputs.
Result<std::vector<TensorSpec>> infer_outputs(Graph graph, std::span<const TensorSpec> inputs) {
  SHOAL_RETURN_IF_ERROR(infer(graph, inputs));
  std::vector<TensorSpec> outputs;
  for (const GraphOutput& output : graph.outputs) {
    outputs.push_back({output.name, graph.value(output.value).dtype, graph.value(output.value).shape});
  }
  return outputs;
}

bool is_open(const TensorSpec& spec) {
  return std::ranges::any_of(spec.shape.dims(), [](std::int64_t dim) { return dim < 0; });
}

// Output dimensions that change when the open dimensions of the inputs do are open, too.
Result<std::vector<TensorSpec>> describe_outputs(const Graph& graph, const InputPlan& plan) {
  const auto& first_set = plan.input_sets.front();
  SHOAL_ASSIGN_OR_RETURN(std::vector<TensorSpec> outputs, infer_outputs(graph, first_set));
  if (std::ranges::none_of(plan.inputs, is_open)) return outputs;
  std::vector<TensorSpec> others = first_set;
  for (std::size_t i = 0; i < others.size(); ++i) {
    for (int axis = 0; axis < plan.inputs[i].shape.rank(); ++axis) {
      if (plan.inputs[i].shape[axis] < 0) others[i].shape[axis] += 1;
    }
  }
  const auto changed = infer_outputs(graph, others);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    Shape& shape = outputs[i].shape;
    const bool is_comparable = changed.ok() && (*changed)[i].shape.rank() == shape.rank();
    for (int axis = 0; axis < shape.rank(); ++axis) {
      if (!is_comparable || (*changed)[i].shape[axis] != shape[axis]) shape[axis] = -1;
    }
  }
  return outputs;
}

Result<LoadedModel> load_identity(const ModelSource& source) {
  LoadedModel loaded{.model = std::make_unique<IdentityModel>(source.config.max_batch)};
  loaded.inputs = loaded.model->input_specs();
  for (const TensorSpec& given : source.config.inputs) {
    if (given.name != "data" || given.dtype != DType::kFloat32)
      return invalid_argument("{} has one input, 'data' of float32", source.path);
    loaded.inputs[0] = given;
  }
  loaded.outputs = {{"data_output", DType::kFloat32, loaded.inputs[0].shape}};
  return loaded;
}

Result<LoadedModel> load_files(const ModelSource& source, UniqueFd packed) {
  const auto limits = ImportLimits::of_mb(source.config.import_mb);
  SHOAL_ASSIGN_OR_RETURN(MxnetImport import, import_mxnet(source.symbol_file, source.params_file, limits));
  const std::string where = format("{} ({})", source.name, source.path);
  SHOAL_ASSIGN_OR_RETURN(InputPlan plan, plan_inputs(source.config, import.graph.input_specs(), where));
  LoadedModel loaded{.warnings = std::move(import.warnings), .parameter_bytes = import.graph.constant_bytes()};
  SHOAL_ASSIGN_OR_RETURN(loaded.outputs, describe_outputs(import.graph, plan));
  loaded.inputs = std::move(plan.inputs);
  SHOAL_ASSIGN_OR_RETURN(const Precision precision, parse_precision(source.config.precision));
  ModelOptions options{.device = source.config.device,
                       .threads = source.config.threads,
                       .input_sets = plan.input_sets,
                       .cache_bytes = static_cast<std::size_t>(source.config.cache_mb) << 20,
                       .precision = precision,
                       .tuning_budget = std::chrono::milliseconds(source.config.tuning_ms),
                       .tuning_progress = source.tuning_progress,
                       .buckets = source.config.buckets,
                       .declared_inputs = loaded.inputs,
                       .max_batch = source.config.max_batch};
  SHOAL_ASSIGN_OR_RETURN(loaded.model, Model::load(std::move(import.graph), std::move(options), std::move(packed)));
  if (const TuningInfo tuning = loaded.model->tuning(); !tuning.problem.empty())
    loaded.warnings.push_back(format("algorithms: {}", tuning.problem));
  loaded.model->enter_thread();
  std::vector<std::vector<TensorSpec>> compiled = plan.input_sets;
  for (const std::int64_t size : loaded.model->joined_sizes()) {
    compiled.push_back(plan.input_sets.front());
    for (TensorSpec& input : compiled.back()) input.shape[0] = size;
  }
  for (const auto& set : compiled) {
    SHOAL_ASSIGN_OR_RETURN(const auto program, loaded.model->program(set));
    loaded.arena_bytes = std::max<std::uint64_t>(loaded.arena_bytes, program->arena_bytes());
  }
  return loaded;
}

constexpr std::uint64_t kHashMultiplier = 0x9e3779b97f4a7c15;

std::uint64_t mix(std::uint64_t hash, std::uint64_t word) {
  hash = (hash ^ word) * kHashMultiplier;
  return hash ^ (hash >> 32);
}

Status hash_file(const std::filesystem::path& file, std::uint64_t& hash) {
  const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return status_from_errno("open", file.string(), errno);
  std::vector<std::uint64_t> buffer(std::size_t{1} << 15);
  const std::size_t buffer_bytes = buffer.size() * sizeof buffer[0];
  while (true) {
    const ssize_t size = ::read(fd.get(), buffer.data(), buffer_bytes);
    if (size < 0) return status_from_errno("read", file.string(), errno);
    if (size == 0) return {};
    const auto bytes = static_cast<std::size_t>(size);
    std::memset(reinterpret_cast<char*>(buffer.data()) + bytes, 0, std::min<std::size_t>(8, buffer_bytes - bytes));
    for (std::size_t word = 0; word * sizeof buffer[0] < bytes; ++word) hash = mix(hash, buffer[word]);
    hash = mix(hash, bytes);
  }
}

}  // namespace

Result<LoadedModel> load_model(const ModelSource& source, UniqueFd packed) {
  auto loaded = source.path == kIdentityPath ? load_identity(source) : load_files(source, std::move(packed));
  if (!loaded.ok()) return loaded.status().with_context(format("model '{}'", source.name));
  return loaded;
}

Result<std::string> hash_files(const ModelSource& source) {
  std::uint64_t hash = kHashMultiplier;
  if (source.path != kIdentityPath) {
    SHOAL_RETURN_IF_ERROR(hash_file(source.symbol_file, hash));
    SHOAL_RETURN_IF_ERROR(hash_file(source.params_file, hash));
  }
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return std::string(text);
}

}  // namespace shoal::worker

#include "worker/engine/model_loader.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iterator>
#include <new>

#include "shm/base/errors.hpp"
#include "shm/base/regular_file.hpp"
#include "shm/model/ignored_inputs.hpp"
#include "worker/engine/identity_model.hpp"
#include "worker/import/importer.hpp"
#include "worker/passes/infer.hpp"

namespace shoal::worker {
namespace {

// Infers the graph for these inputs. Returns its outputs.
Result<std::vector<TensorSpec>> infer_outputs(Graph& graph, std::span<const TensorSpec> inputs) {
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

std::int64_t one_more(std::int64_t size, const DimRange& range) { return size < range.highest ? size + 1 : size - 1; }
std::int64_t twice(std::int64_t size, const DimRange& range) {
  return size < range.highest ? std::min(2 * size, range.highest) : range.lowest;
}

// The set with its open dimensions changed.
std::vector<TensorSpec> with_other_sizes(std::vector<TensorSpec> set, std::span<const TensorSpec> inputs,
                                         std::int64_t (*other)(std::int64_t, const DimRange&)) {
  for (std::size_t i = 0; i < set.size(); ++i) {
    const TensorSpec& input = inputs[i];
    for (int axis = 0; axis < input.shape.rank(); ++axis) {
      const DimRange range = input.ranges.empty() ? DimRange() : input.ranges[static_cast<std::size_t>(axis)];
      if (input.shape[axis] >= 0 || range.lowest == range.highest) continue;
      set[i].shape[axis] = other(set[i].shape[axis], range);
    }
  }
  return set;
}

// Dimensions in which `other` differs become open.
void open_where_different(Shape& shape, const Shape& other) {
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (other.rank() != shape.rank() || other[axis] != shape[axis]) shape[axis] = -1;
  }
}

// Output dimensions that change with the open dimensions of the inputs are open, too. Two changes are tried: one more pixel may
// have no effect after layers that halve a picture; twice as many may be more than a layer takes.
Result<std::vector<TensorSpec>> describe_outputs(Graph graph, const InputPlan& plan) {
  const auto& first_set = plan.input_sets.front();
  SHOAL_ASSIGN_OR_RETURN(std::vector<TensorSpec> outputs, infer_outputs(graph, first_set));
  if (std::ranges::none_of(plan.inputs, is_open)) return outputs;
  bool is_known = false;
  for (const auto other : {one_more, twice}) {
    Graph copy = graph;  // constants that were converted are shared
    const auto changed = infer_outputs(copy, with_other_sizes(first_set, plan.inputs, other));
    if (!changed.ok()) continue;
    is_known = true;
    for (std::size_t i = 0; i < outputs.size(); ++i) open_where_different(outputs[i].shape, (*changed)[i].shape);
  }
  for (std::size_t i = 0; i < outputs.size() && !is_known; ++i) open_where_different(outputs[i].shape, Shape());
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
  SHOAL_ASSIGN_OR_RETURN(Import import, read_model(source.files, source.config.outputs, limits));
  ModelConfig config = source.config;
  const auto labels = drop_ignored_inputs(config, import.graph.ignored_inputs);
  import.warnings.insert(import.warnings.end(), labels.begin(), labels.end());
  SHOAL_RETURN_IF_ERROR(check_parameters(import, named_inputs(config)));
  const std::string where = format("{} ({})", source.name, source.path);
  SHOAL_ASSIGN_OR_RETURN(InputPlan plan, plan_inputs(config, import.graph.input_specs(), where));
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

Status hash_file(const std::filesystem::path& path, std::uint64_t& hash) {
  SHOAL_ASSIGN_OR_RETURN(const RegularFile file, open_regular_file(path));
  std::vector<std::uint64_t> buffer(std::size_t{1} << 15);
  const auto room = std::as_writable_bytes(std::span(buffer));
  while (true) {
    SHOAL_ASSIGN_OR_RETURN(const std::size_t bytes, read_fully(file.fd.get(), room, path.string()));
    if (bytes == 0) return {};
    std::memset(room.data() + bytes, 0, std::min(sizeof buffer[0], room.size() - bytes));
    for (std::size_t word = 0; word * sizeof buffer[0] < bytes; ++word) hash = mix(hash, buffer[word]);
    hash = mix(hash, bytes);
  }
}

}  // namespace

Result<LoadedModel> load_model(const ModelSource& source, UniqueFd packed) try {
  auto loaded = source.path == kIdentityPath ? load_identity(source) : load_files(source, std::move(packed));
  if (!loaded.ok()) return loaded.status().with_context(format("model '{}'", source.name));
  return loaded;
} catch (const std::bad_alloc&) {
  return out_of_memory("loading it", source.name);
} catch (const std::exception& error) {
  return internal_error("model '{}': {}", source.name, error.what());
}

Result<std::string> hash_files(const ModelSource& source) {
  std::uint64_t hash = kHashMultiplier;
  for (const std::filesystem::path& file : source.files) SHOAL_RETURN_IF_ERROR(hash_file(file, hash));
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return std::string(text);
}

}  // namespace shoal::worker

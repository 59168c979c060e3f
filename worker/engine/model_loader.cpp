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
#include "shm/tensor/state.hpp"
#include "worker/engine/identity_model.hpp"
#include "worker/engine/sparse_inputs.hpp"
#include "worker/exec/graph_plan.hpp"
#include "worker/exec/oracle_share.hpp"
#include "worker/import/importer.hpp"
#include "worker/import/npz.hpp"
#include "worker/import/sparse_array.hpp"
#include "worker/passes/infer.hpp"

namespace shoal::worker {
namespace {

/// The input with a symbol for each open size.
SizedInput with_symbols(const TensorSpec& input, DimTable& table) {
  SizedInput sized{input.name, input.dtype, input.shape};
  for (int axis = 0; axis < input.shape.rank(); ++axis) {
    if (input.shape[axis] >= 0) continue;
    const DimRange range = input.ranges.empty() ? DimRange() : input.ranges[static_cast<std::size_t>(axis)];
    sized.shape[axis] = table.symbol(format("{}[{}]", input.name, axis), {range.lowest, std::min(range.highest, kMaxElements)});
  }
  return sized;
}

/// The outputs. A size that depends on the open sizes of the inputs is open, too. One that depends on data has a range.
///   state   is checked with the first set of inputs
Result<std::vector<TensorSpec>> describe_outputs(Graph graph, const InputPlan& plan, std::span<const StatePair> state,
                                                 const std::string& where) {
  SHOAL_RETURN_IF_ERROR(infer_naming_shapes(graph, plan.input_sets.front()));  // what is wrong there is reported with numbers
  std::vector<SymbolicShape> behind_data;
  std::vector<TensorSpec> outputs;
  for (const GraphOutput& output : graph.outputs) {
    const Value& value = graph.value(output.value);
    behind_data.push_back(value.sizes());
    outputs.push_back({output.name, value.dtype, value.shape});
  }
  SHOAL_RETURN_IF_ERROR(check_state(state, plan.input_sets.front(), outputs, where));
  outputs.clear();
  if (!std::ranges::all_of(plan.inputs, [](const TensorSpec& input) { return input.shape.is_known(); })) {
    for (const GraphOutput& output : graph.outputs) outputs.push_back({output.name, graph.value(output.value).dtype});
    return outputs;
  }
  const auto table = std::make_shared<DimTable>();
  std::vector<SizedInput> inputs;
  for (const TensorSpec& input : plan.inputs) inputs.push_back(with_symbols(input, *table));
  SHOAL_RETURN_IF_ERROR(infer_sizes(graph, table, inputs));
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    const Value& value = graph.value(graph.outputs[i].value);
    TensorSpec& spec = outputs.emplace_back(open_spec(graph.outputs[i].name, value.dtype, value.sizes()));
    bool depends_on_data = false;
    for (int axis = 0; axis < static_cast<int>(spec.ranges.size()); ++axis) {
      DimRange& range = spec.ranges[static_cast<std::size_t>(axis)];
      depends_on_data |= !behind_data[i][axis].is_number();
      if (behind_data[i][axis].is_number() || range.highest > kMaxElements) range = DimRange();
    }
    if (!depends_on_data) spec.ranges.clear();
  }
  return outputs;
}

std::vector<StatePair> with_shapes(std::vector<StatePair> state, const std::vector<TensorSpec>& inputs) {
  for (StatePair& pair : state) pair.shape = std::ranges::find(inputs, pair.in, &TensorSpec::name)->shape;
  return state;
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
  SHOAL_RETURN_IF_ERROR(check_state(source.config.state, loaded.inputs, loaded.outputs, source.path));
  loaded.state = with_shapes(source.config.state, loaded.inputs);
  return loaded;
}

// The inputs of the golden case, if there is one that has the shapes of the set; else none.
Result<std::vector<Tensor>> golden_inputs(const ModelConfig& config, std::span<const TensorSpec> set) {
  std::vector<Tensor> inputs;
  if (config.golden_file.empty()) return inputs;
  SHOAL_ASSIGN_OR_RETURN(const ForeignFile file, ForeignFile::open(config.golden_file));
  MemoryBudget budget(ImportLimits::of_mb(config.import_mb));
  SHOAL_ASSIGN_OR_RETURN(std::vector<NamedArray> arrays, parse_npz(file, budget));
  SHOAL_RETURN_IF_ERROR(make_dense(file, arrays, budget));
  for (const TensorSpec& input : set) {
    const auto found = std::ranges::find(arrays, input.name, &NamedArray::name);
    if (found == arrays.end() || found->array.dtype != input.dtype || found->array.shape != input.shape)
      return std::vector<Tensor>();
    SHOAL_ASSIGN_OR_RETURN(Tensor tensor, Tensor::create(input.dtype, input.shape));
    if (!found->array.bytes.empty()) std::memcpy(tensor.view().data, found->array.bytes.data(), found->array.bytes.size());
    inputs.push_back(std::move(tensor));
  }
  return inputs;
}

Result<LoadedModel> load_import(const ModelSource& source, Import import, UniqueFd packed) {
  ModelSource taken = source;  // without the labels, and with the parts of sparse inputs
  ModelConfig& config = taken.config;
  const auto labels = drop_ignored_inputs(config, import.graph.ignored_inputs);
  import.warnings.insert(import.warnings.end(), labels.begin(), labels.end());
  SHOAL_RETURN_IF_ERROR(check_parameters(import, named_inputs(config)));
  const std::string where = format("{} ({})", source.name, source.path);
  for (const auto& [name, storage] : import.sparse_inputs) {
    if (!config.sparse.contains(name)) import.warnings.push_back(describe_dense_input(name, storage));
  }
  SHOAL_RETURN_IF_ERROR(take_sparse_inputs(config, import.graph, where));
  SHOAL_ASSIGN_OR_RETURN(const InputPlan plan, plan_inputs(config, import.graph.input_specs(), where));
  LoadedModel loaded{.warnings = std::move(import.warnings), .parameter_bytes = import.graph.constant_bytes()};
  loaded.fingerprint = std::move(import.fingerprint);
  SHOAL_ASSIGN_OR_RETURN(loaded.outputs, describe_outputs(import.graph, plan, config.state, where));
  loaded.inputs = plan.inputs;
  loaded.state = with_shapes(config.state, loaded.inputs);
  SHOAL_ASSIGN_OR_RETURN(ModelOptions options, model_options(taken, plan));
  SHOAL_ASSIGN_OR_RETURN(loaded.model, Model::load(std::move(import.graph), std::move(options), std::move(packed)));
  std::ranges::copy(loaded.model->notes(), std::back_inserter(loaded.warnings));
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
    if (&set != &compiled.front() || source.config.device == "cpu-reference") continue;  // of that device all nodes do
    if (std::string slow = describe_oracle_nodes(*program); !slow.empty()) loaded.warnings.push_back(std::move(slow));
  }
  return loaded;
}

Result<LoadedModel> load_files(const ModelSource& source, UniqueFd packed) {
  const auto limits = ImportLimits::of_mb(source.config.import_mb);
  SHOAL_ASSIGN_OR_RETURN(Import import, read_model(source.files, source.config.outputs, limits));
  return load_import(source, std::move(import), std::move(packed));
}

/// What `load` returns. Its errors, and exceptions, name the model.
template <typename Load>
Result<LoadedModel> load_named(const std::string& name, Load&& load) try {
  Result<LoadedModel> loaded = load();
  if (!loaded.ok()) return loaded.status().with_context(format("model '{}'", name));
  return loaded;
} catch (const std::bad_alloc&) {
  return out_of_memory("loading it", name);
} catch (const std::exception& error) {
  return internal_error("model '{}': {}", name, error.what());
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

Result<ModelOptions> model_options(const ModelSource& source, const InputPlan& plan) {
  const ModelConfig& config = source.config;
  SHOAL_ASSIGN_OR_RETURN(const Precision precision, parse_precision(config.precision));
  SHOAL_ASSIGN_OR_RETURN(const Fallback fallback, parse_fallback(config.fallback));
  ModelOptions options{.device = config.device,
                       .fallback = fallback,
                       .threads = config.threads,
                       .input_sets = plan.input_sets,
                       .cache_bytes = static_cast<std::size_t>(config.cache_mb) << 20,
                       .precision = precision,
                       .tuning_budget = std::chrono::milliseconds(config.tuning_ms),
                       .tuning_progress = source.tuning_progress,
                       .measure_elsewhere = source.measure_elsewhere,
                       .max_error = config.max_error,
                       .buckets = config.buckets,
                       .declared_inputs = plan.inputs,
                       .max_batch = config.max_batch};
  if (precision == Precision::kAuto || precision == Precision::kBf16) {
    SHOAL_ASSIGN_OR_RETURN(options.error_inputs, golden_inputs(config, plan.input_sets.front()));
  }
  return options;
}

Result<LoadedModel> load_model(const ModelSource& source, UniqueFd packed) {
  return load_named(source.name,
                    [&] { return source.path == kIdentityPath ? load_identity(source) : load_files(source, std::move(packed)); });
}

Result<LoadedModel> load_model(const ModelSource& source, Import import) {
  return load_named(source.name, [&] { return load_import(source, std::move(import), {}); });
}

Result<std::string> hash_files(const ModelSource& source) {
  std::uint64_t hash = kHashMultiplier;
  for (const std::filesystem::path& file : source.files) SHOAL_RETURN_IF_ERROR(hash_file(file, hash));
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return std::string(text);
}

}  // namespace shoal::worker

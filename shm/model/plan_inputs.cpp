#include <algorithm>
#include <map>

#include "shm/base/errors.hpp"
#include "shm/model/model_config.hpp"
#include "shm/tensor/spec.hpp"
#include "shm/tensor/state.hpp"

namespace shoal {
namespace {

const TensorSpec* find(std::span<const TensorSpec> specs, std::string_view name) {
  const auto found = std::find_if(specs.begin(), specs.end(), [&](const TensorSpec& spec) { return spec.name == name; });
  return found == specs.end() ? nullptr : &*found;
}

/// The common shape of the input in all sets: -1 where they differ. Nothing if the ranks differ or a set does not name the input.
std::optional<Shape> common_shape(const std::vector<std::vector<TensorSpec>>& sets, const std::string& name) {
  std::optional<Shape> common;
  for (const std::vector<TensorSpec>& set : sets) {
    const TensorSpec* spec = find(set, name);
    if (!spec || (common && common->rank() != spec->shape.rank())) return std::nullopt;
    if (!common) common = spec->shape;
    for (int axis = 0; axis < common->rank(); ++axis) {
      if ((*common)[axis] != spec->shape[axis]) (*common)[axis] = -1;
    }
  }
  return common;
}

/// The input as model.toml gives it; nothing if it does not.
std::optional<TensorSpec> configured_input(const ModelConfig& config, const TensorSpec& graph_input) {
  if (const TensorSpec* configured = find(config.inputs, graph_input.name)) return *configured;
  const StatePair* state = find_state(config.state, graph_input.name);
  if (!state || !state->shape.is_known()) return std::nullopt;
  return TensorSpec{graph_input.name, graph_input.dtype, state->shape};
}

Result<TensorSpec> plan_input(const ModelConfig& config, const TensorSpec& graph_input, const std::string& where) {
  if (auto configured = configured_input(config, graph_input)) return *std::move(configured);
  TensorSpec spec = graph_input;
  if (spec.shape.is_known()) return spec;
  if (const auto common = common_shape(config.shapes, spec.name)) {
    spec.shape = *common;
    return spec;
  }
  if (find_state(config.state, spec.name)) {
    return invalid_argument(
        "{}: the shape of the state '{}' is not known: the symbol file does not contain it. Give its pair in `state` a shape, "
        "with the model's own numbers: shape = [-1, 200]",
        where, spec.name);
  }
  return invalid_argument(
      "{}: the shape of input '{}' is not known: the symbol file does not contain it, and the .params file has no array of that "
      "name. If requests provide this input, write this line, or add to the one that is there, with the model's own numbers: "
      "inputs = [{name = \"{}\", shape = [-1, 3, 224, 224]}]",
      where, spec.name, spec.name);
}

bool matches(const Shape& concrete, const Shape& open) {
  if (!open.is_known()) return true;
  return concrete.rank() == open.rank() && std::equal(concrete.begin(), concrete.end(), open.begin(),
                                                      [](std::int64_t c, std::int64_t o) { return o < 0 || c == o; });
}

Result<std::vector<TensorSpec>> concrete_set(const std::vector<TensorSpec>& given, const std::vector<TensorSpec>& inputs,
                                             std::span<const StatePair> state, const std::string& where) {
  std::vector<TensorSpec> set;
  for (const TensorSpec& input : inputs) {
    const TensorSpec* spec = find(given, input.name);
    if (const StatePair* pair = spec ? nullptr : find_state(state, input.name)) {
      auto zeros = zero_state(inputs, state, *pair, given);
      if (!zeros.ok()) return zeros.status().with_context(format("{}: 'shapes'", where));
      set.push_back(*std::move(zeros));
      continue;
    }
    if (!spec) return invalid_argument("{}: an entry of 'shapes' has no shape for input '{}'", where, input.name);
    if (!matches(spec->shape, input.shape)) {
      return invalid_argument("{}: 'shapes' gives input '{}' the shape {}, but 'inputs' says {}", where, input.name,
                              spec->shape.to_string(), input.shape.to_string());
    }
    if (const Status fits = check_matches(input, input.dtype, spec->shape); !fits.ok())
      return fits.with_context(format("{}: 'shapes'", where));
    set.push_back({input.name, input.dtype, spec->shape});
  }
  return set;
}

/// Gives open dimensions their default where they have one.
void use_defaults(TensorSpec& input) {
  for (int axis = 0; axis < input.shape.rank(); ++axis) {
    const DimRange range = input.ranges.empty() ? DimRange() : input.ranges[static_cast<std::size_t>(axis)];
    const bool has_default = axis == 0 || range != DimRange();
    if (input.shape[axis] < 0 && has_default) input.shape[axis] = std::max<std::int64_t>(range.lowest, 1);
  }
}

Result<std::vector<TensorSpec>> default_set(const std::vector<TensorSpec>& inputs, std::span<const StatePair> state,
                                            const std::string& where) {
  std::vector<TensorSpec> set = inputs;
  for (TensorSpec& input : set) {
    if (!find_state(state, input.name)) use_defaults(input);
  }
  for (TensorSpec& input : set) {
    if (const StatePair* pair = find_state(state, input.name)) {
      if (const auto zeros = zero_state(inputs, state, *pair, set); zeros.ok()) input.shape = zeros->shape;
      use_defaults(input);  // of a state that no other input gives a batch
    }
    input.ranges.clear();
    input.layout.clear();
    if (input.shape.element_count() >= 0) continue;
    return invalid_argument(
        "{}: input '{}' has the open shape {}: only a first dimension of -1 (compiled as 1) and ranges (as their smallest "
        "size) have a default, so 'shapes' must say what to compile, as in shapes = [{{} = [1, 3, 224, 224]}]",
        where, input.name, find(inputs, input.name)->shape.to_string(), input.name);
  }
  return set;
}

/// The inputs that each key names.
std::map<std::string_view, std::set<std::string>> inputs_by_key(const ModelConfig& config) {
  std::map<std::string_view, std::set<std::string>> keys;
  for (const TensorSpec& spec : config.inputs) keys["inputs"].insert(spec.name);
  for (const StatePair& pair : config.state) keys["state"].insert(pair.in);
  for (const std::vector<TensorSpec>& set : config.shapes) {
    for (const TensorSpec& spec : set) keys["shapes"].insert(spec.name);
  }
  return keys;
}

}  // namespace

std::set<std::string> named_inputs(const ModelConfig& config) {
  std::set<std::string> all;
  for (const auto& [key, names] : inputs_by_key(config)) all.insert(names.begin(), names.end());
  return all;
}

Result<InputPlan> plan_inputs(const ModelConfig& config, std::span<const TensorSpec> graph_inputs, const std::string& where) {
  for (const auto& [key, names] : inputs_by_key(config))
    SHOAL_RETURN_IF_ERROR(check_input_names(format("{}: '{}' is wrong: the model", where, key), graph_inputs, {}, names));
  InputPlan plan;
  std::vector<TensorSpec> as_trained;
  for (const TensorSpec& graph_input : graph_inputs) {
    SHOAL_ASSIGN_OR_RETURN(TensorSpec spec, plan_input(config, graph_input, where));
    as_trained.push_back(spec);
    // The graph's batch is that of its training. The model takes any batch.
    if (!configured_input(config, graph_input) && graph_input.shape.rank() > 0) spec.shape[0] = -1;
    plan.inputs.push_back(std::move(spec));
  }
  for (const std::vector<TensorSpec>& given : config.shapes) {
    SHOAL_ASSIGN_OR_RETURN(std::vector<TensorSpec> set, concrete_set(given, plan.inputs, config.state, where));
    plan.input_sets.push_back(std::move(set));
  }
  if (plan.input_sets.empty()) {
    SHOAL_ASSIGN_OR_RETURN(std::vector<TensorSpec> set, default_set(as_trained, config.state, where));
    plan.input_sets.push_back(std::move(set));
  }
  return plan;
}

}  // namespace shoal

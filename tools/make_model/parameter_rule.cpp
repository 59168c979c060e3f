#include "tools/make_model/parameter_rule.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>

#include "shm/base/errors.hpp"
#include "worker/import/mxnet/mxnet_importer.hpp"
#include "worker/import/mxnet/mxnet_symbol.hpp"
#include "worker/passes/infer.hpp"

namespace shoal::make_model {
namespace {

using worker::MxnetEntry;
using worker::MxnetNode;
using worker::MxnetSymbol;

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> texts) {
  return std::find(texts.begin(), texts.end(), text) != texts.end();
}

bool ends_with_one_of(std::string_view text, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view ending) { return text.ends_with(ending); });
}

/// sqrt(6 / number of inputs of one unit), computed in float32.
float fan_in_scale(const Shape& shape) {
  std::int64_t fan_in = 1;
  for (int axis = 1; axis < shape.rank(); ++axis) fan_in *= shape[axis];
  return std::sqrt(6.f / static_cast<float>(fan_in));
}

/// Sets offset and scale by the first role that fits the name. False if none does.
bool set_role(std::string_view name, ParameterRule& rule) {
  const auto set = [&](float offset, float scale) {
    rule.offset = offset;
    rule.scale = scale;
    return true;
  };
  const auto contains = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  if (ends_with_one_of(name, {"_moving_var", "_running_var"})) return set(1, 0.25f);
  if (name.ends_with("_alpha") || (name.ends_with("_gamma") && contains("relu"))) return set(0.25f, 0.25f);
  if (name.ends_with("_scale")) return set(20, 4);
  if (name.ends_with("_gamma")) return set(1, 0.25f);
  if (name.ends_with("_parameters")) return set(0, 0.125f);
  if ((contains("embed") && name.ends_with("_weight")) || name.ends_with("position_weight")) return set(0, 1);
  if (name.ends_with("_weight"))
    return set(0, fan_in_scale(rule.shape) * (contains("pred_conv") || contains("yolooutput") ? 0.25f : 1.f));
  if (ends_with_one_of(name, {"_bias", "_beta", "_moving_mean", "_running_mean"})) return set(0, 0.125f);
  return false;
}

/// The last layer of a residual branch that ends at node `id`. Null if the branch ends with another operator.
const MxnetNode* branch_end(const MxnetSymbol& symbol, std::size_t id) {
  const MxnetNode* node = &symbol.nodes[id];
  while (is_one_of(node->op, {"Activation", "LeakyReLU", "clip", "Dropout", "broadcast_mul"}) && !node->inputs.empty()) {
    node = &symbol.nodes[node->inputs[0].node];
  }
  return is_one_of(node->op, {"BatchNorm", "Convolution", "FullyConnected"}) && node->inputs.size() > 1 ? node : nullptr;
}

/// The names of the weights of last layers of residual branches. Without damping, fifty blocks would multiply the signal by 2^25.
std::set<std::string> damped_parameters(const MxnetSymbol& symbol) {
  std::vector<int> uses(symbol.nodes.size());
  for (const MxnetEntry& head : symbol.heads) ++uses[head.node];
  for (const MxnetNode& node : symbol.nodes) {
    for (const MxnetEntry& input : node.inputs) ++uses[input.node];
  }
  std::set<std::string> names;
  for (const MxnetNode& node : symbol.nodes) {
    if (!is_one_of(node.op, {"elemwise_add", "add_n"})) continue;
    const auto is_end = [&](const MxnetEntry& input) { return uses[input.node] == 1; };
    if (std::all_of(node.inputs.begin(), node.inputs.end(), is_end)) continue;  // a projection shortcut
    for (const MxnetEntry& input : node.inputs) {
      const MxnetNode* const end = is_end(input) ? branch_end(symbol, input.node) : nullptr;
      if (end) names.insert(symbol.nodes[end->inputs[1].node].name);
    }
  }
  return names;
}

Status parse_line(const std::string& line, ParameterRule& rule) {
  std::istringstream words(line);
  std::vector<std::int64_t> dims;
  words >> rule.key >> rule.offset >> rule.scale;
  for (std::int64_t dim; words >> dim;) dims.push_back(dim);
  const bool prefixed = rule.key.starts_with("arg:") || rule.key.starts_with("aux:");
  const bool sized = !dims.empty() && dims.size() <= kMaxRank && *std::min_element(dims.begin(), dims.end()) > 0;
  if (!prefixed || !words.eof() || !sized) return invalid_argument("'{}' is not 'arg:name offset scale dimensions...'", line);
  rule.shape = Shape(dims);
  return {};
}

}  // namespace

Result<std::vector<ParameterRule>> read_parameter_rules(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) return not_found("{} cannot be read", path.string());
  std::vector<ParameterRule> rules;
  for (std::string line; std::getline(file, line);) {
    if (line.empty()) continue;
    const Status parsed = parse_line(line, rules.emplace_back());
    if (!parsed.ok()) return parsed.with_context(format("{}:{}", path.string(), rules.size()));
  }
  return rules;
}

Result<std::vector<ParameterRule>> derive_parameter_rules(const std::filesystem::path& symbol_file,
                                                          std::span<const TensorSpec> inputs) {
  SHOAL_ASSIGN_OR_RETURN(const MxnetSymbol symbol, worker::read_mxnet_symbol(symbol_file));
  SHOAL_ASSIGN_OR_RETURN(worker::MxnetSymbolImport import, worker::import_mxnet_symbol(symbol_file));
  SHOAL_RETURN_IF_ERROR(worker::infer_parameters(import.graph, inputs));
  const std::set<std::string> damped = damped_parameters(symbol);
  std::vector<ParameterRule> rules;
  for (const bool auxiliary : {false, true}) {
    for (const worker::ValueId id : import.graph.inputs) {
      const worker::Value& value = import.graph.value(id);
      const bool given =
          std::any_of(inputs.begin(), inputs.end(), [&](const TensorSpec& spec) { return spec.name == value.name; });
      if (given || import.auxiliaries.contains(value.name) != auxiliary) continue;
      ParameterRule rule{format("{}{}", auxiliary ? "aux:" : "arg:", value.name), 0, 0, value.shape};
      if (!set_role(value.name, rule)) {
        return invalid_argument(
            "'{}' is not an input with a given shape, and its name is not that of a parameter (_weight, _bias, _gamma, ...)",
            value.name);
      }
      if (damped.contains(value.name)) {
        rule.offset /= 8;
        rule.scale /= 8;
      }
      rules.push_back(rule);
    }
  }
  return rules;
}

}  // namespace shoal::make_model

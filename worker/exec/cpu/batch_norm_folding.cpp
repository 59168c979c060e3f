#include "worker/exec/cpu/batch_norm_folding.hpp"

#include <cmath>
#include <cstring>
#include <optional>

#include "worker/exec/graph_plan.hpp"
#include "worker/ops/normalization.hpp"

namespace shoal::worker::cpu {

struct BatchNormFolding::Parameters {
  Constant weights;
  std::optional<Constant> bias;
  std::optional<Constant> gamma, beta, mean, variance;  ///< none: nothing to fold; gamma none: counts as 1
  double eps = 0;

  bool folds() const { return mean.has_value(); }
  std::vector<double> scales() const {
    const auto variances = read_floats(*variance);
    const auto gammas = gamma ? read_floats(*gamma) : std::vector<float>(variances.size(), 1.0F);
    std::vector<double> scales;
    for (std::size_t i = 0; i < variances.size(); ++i)
      scales.push_back(gammas[i] / std::sqrt(static_cast<double>(variances[i]) + eps));
    return scales;
  }
};

std::vector<float> read_floats(const Constant& constant) {
  std::vector<float> floats(constant.bytes.size() / sizeof(float));
  std::memcpy(floats.data(), constant.bytes.data(), floats.size() * sizeof(float));
  return floats;
}

FoldedNames folded_names(const Graph& graph, const Node& node, const Node* norm) {
  const bool has_bias = node.inputs.size() > 2;
  if (norm == nullptr)
    return {constant_key(graph, node.inputs[1]), has_bias ? constant_key(graph, node.inputs[2]) : "", has_bias};
  const std::string base = node_key(graph, node);
  return {base + ".folded_weights", base + ".folded_bias", true};
}

BatchNormFolding::BatchNormFolding(const Graph& graph, const Node& node, const Node* norm) {
  const auto constant = [&](ValueId id) { return *graph.value(id).constant; };
  auto parameters = std::make_shared<Parameters>();
  parameters->weights = constant(node.inputs[1]);
  if (node.inputs.size() > 2) parameters->bias = constant(node.inputs[2]);
  if (norm != nullptr) {
    const auto& attributes = norm->attributes.get<BatchNormAttributes>();
    if (!attributes.fix_gamma) parameters->gamma = constant(norm->inputs[1]);
    parameters->beta = constant(norm->inputs[2]);
    parameters->mean = constant(norm->inputs[3]);
    parameters->variance = constant(norm->inputs[4]);
    parameters->eps = attributes.eps;
  }
  parameters_ = std::move(parameters);
}

BatchNormFolding::Source BatchNormFolding::weights() const {
  return [parameters = parameters_](std::vector<float>& scratch) -> const float* {
    const auto* bytes = parameters->weights.bytes.data();
    if (!parameters->folds() && reinterpret_cast<std::uintptr_t>(bytes) % alignof(float) == 0)
      return reinterpret_cast<const float*>(bytes);
    scratch = read_floats(parameters->weights);
    if (!parameters->folds()) return scratch.data();
    const auto scales = parameters->scales();
    const std::size_t per_filter = scratch.size() / scales.size();
    for (std::size_t i = 0; i < scratch.size(); ++i) scratch[i] = static_cast<float>(scratch[i] * scales[i / per_filter]);
    return scratch.data();
  };
}

BatchNormFolding::Source BatchNormFolding::bias() const {
  return [parameters = parameters_](std::vector<float>& scratch) -> const float* {
    if (!parameters->folds()) {
      scratch = read_floats(*parameters->bias);
      return scratch.data();
    }
    const auto scales = parameters->scales();
    const auto betas = read_floats(*parameters->beta), means = read_floats(*parameters->mean);
    const auto biases = parameters->bias ? read_floats(*parameters->bias) : std::vector<float>(scales.size(), 0.0F);
    scratch.resize(scales.size());
    for (std::size_t i = 0; i < scales.size(); ++i) {
      scratch[i] = static_cast<float>((static_cast<double>(biases[i]) - means[i]) * scales[i] + betas[i]);
    }
    return scratch.data();
  };
}

}  // namespace shoal::worker::cpu

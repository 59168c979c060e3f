#include "worker/passes/constant_chain.hpp"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "shm/base/check.hpp"
#include "shm/base/format.hpp"
#include "worker/ops/normalization.hpp"

namespace shoal::worker {
namespace {

std::vector<float> read_floats(const Constant& constant) {
  SHOAL_CHECK(constant.dtype == DType::kFloat32);
  std::vector<float> floats(constant.bytes.size() / sizeof(float));
  if (!floats.empty()) std::memcpy(floats.data(), constant.bytes.data(), floats.size() * sizeof(float));
  return floats;
}

NormConstants constants_of(const Graph& graph, const Node& norm) {
  const auto& attributes = norm.attributes.get<BatchNormAttributes>();
  NormConstants found{.gamma = {},
                      .beta = named_constant(graph, norm.inputs[2]),
                      .mean = named_constant(graph, norm.inputs[3]),
                      .variance = named_constant(graph, norm.inputs[4]),
                      .eps = attributes.eps};
  if (!attributes.fix_gamma) found.gamma = named_constant(graph, norm.inputs[1]);
  return found;
}

std::vector<double> scales_of(const NormConstants& norm) {
  const std::vector<float> variances = read_floats(norm.variance.constant);
  const auto gammas = norm.gamma ? read_floats(norm.gamma->constant) : std::vector<float>(variances.size(), 1.0F);
  std::vector<double> scales;
  for (std::size_t i = 0; i < variances.size(); ++i)
    scales.push_back(gammas[i] / std::sqrt(static_cast<double>(variances[i]) + norm.eps));
  return scales;
}

void apply(const Transform& transform, std::vector<float>& data) {
  const std::vector<double> scales = scales_of(transform.norm);
  if (transform.kind == Transform::Kind::kFoldWeights) {
    const std::size_t per_filter = data.size() / scales.size();
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(data[i] * scales[i / per_filter]);
    return;
  }
  const std::vector<float> betas = read_floats(transform.norm.beta.constant), means = read_floats(transform.norm.mean.constant);
  for (std::size_t i = 0; i < data.size(); ++i)
    data[i] = static_cast<float>((static_cast<double>(data[i]) - means[i]) * scales[i] + betas[i]);
}

// Shortest text that gives the same number again.
std::string exact_text(double number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, number).ptr};
}

std::string text_of(const Transform& transform) {
  const NormConstants& norm = transform.norm;
  return format("{}({} {} {} {} {})", transform.kind == Transform::Kind::kFoldWeights ? "fold weights" : "fold bias",
                norm.gamma ? norm.gamma->name : "1", norm.beta.name, norm.mean.name, norm.variance.name, exact_text(norm.eps));
}

}  // namespace

NamedConstant named_constant(const Graph& graph, ValueId id) { return {constant_key(graph, id), *graph.value(id).constant}; }

std::string ConstantChain::key() const {
  std::string text = source ? source->name : format("{} times {}", fill_count, exact_text(fill));
  for (const Transform& transform : transforms) text += " > " + text_of(transform);
  return text;
}

ConstantChain chain_of(const Graph& graph, ValueId constant) { return {.source = named_constant(graph, constant)}; }

ConstantChain folded_weights(const Graph& graph, const Node& node, const Node* norm) {
  ConstantChain chain = chain_of(graph, node.inputs[1]);
  if (norm != nullptr) chain.transforms.push_back({Transform::Kind::kFoldWeights, constants_of(graph, *norm)});
  return chain;
}

std::optional<ConstantChain> folded_bias(const Graph& graph, const Node& node, const Node* norm) {
  const bool has_bias = node.inputs.size() > 2;
  if (!has_bias && norm == nullptr) return std::nullopt;
  ConstantChain chain;
  if (has_bias) {
    chain = chain_of(graph, node.inputs[2]);
  } else {
    chain.fill_count = graph.value(norm->inputs[4]).shape.element_count();
  }
  if (norm != nullptr) chain.transforms.push_back({Transform::Kind::kFoldBias, constants_of(graph, *norm)});
  return chain;
}

const float* evaluate(const ConstantChain& chain, std::vector<float>& scratch) {
  if (!chain.source) {
    scratch.assign(static_cast<std::size_t>(chain.fill_count), chain.fill);
  } else {
    const std::byte* const bytes = chain.source->constant.bytes.data();
    const bool is_aligned = reinterpret_cast<std::uintptr_t>(bytes) % alignof(float) == 0;
    if (chain.transforms.empty() && is_aligned) return reinterpret_cast<const float*>(bytes);
    scratch = read_floats(chain.source->constant);
  }
  for (const Transform& transform : chain.transforms) apply(transform, scratch);
  return scratch.data();
}

}  // namespace shoal::worker

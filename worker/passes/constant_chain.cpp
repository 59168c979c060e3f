#include "worker/passes/constant_chain.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "shm/base/check.hpp"
#include "shm/base/format.hpp"
#include "worker/ops/deconvolution.hpp"
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

void put_filters_first(const FilterAxes& axes, std::vector<float>& data) {
  const std::vector<float> given = data;
  const auto groups = static_cast<std::size_t>(axes.groups), channels = static_cast<std::size_t>(axes.channels),
             filters = static_cast<std::size_t>(axes.filters), taps = data.size() / (groups * channels * filters);
  auto to = data.begin();
  for (std::size_t g = 0; g < groups; ++g) {
    for (std::size_t f = 0; f < filters; ++f) {
      for (std::size_t c = 0; c < channels; ++c) {
        const std::size_t at = ((g * channels + c) * filters + f) * taps;
        to = std::copy_n(given.begin() + static_cast<std::ptrdiff_t>(at), taps, to);
      }
    }
  }
}

void scale_filters(const std::vector<double>& scales, std::vector<float>& data) {
  const std::size_t per_filter = data.size() / scales.size();
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(data[i] * scales[i / per_filter]);
}

void apply(const Transform& transform, std::vector<float>& data) {
  if (transform.kind == Transform::Kind::kFiltersFirst) return put_filters_first(transform.axes, data);
  const std::vector<double> scales = scales_of(transform.norm);
  if (transform.kind == Transform::Kind::kFoldWeights) return scale_filters(scales, data);
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
  if (transform.kind == Transform::Kind::kFiltersFirst) {
    return format("filters first({} {} {})", transform.axes.groups, transform.axes.channels, transform.axes.filters);
  }
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

ConstantChain part_of(const Graph& graph, ValueId constant, std::int64_t first, const Shape& shape) {
  ConstantChain chain = chain_of(graph, constant);
  Constant& part = chain.source->constant;
  const std::size_t each = dtype_size_bytes(part.dtype);
  if (!part.bytes.empty()) {  // else they have been released
    part.bytes =
        part.bytes.subspan(static_cast<std::size_t>(first) * each, static_cast<std::size_t>(shape.element_count()) * each);
  }
  part.shape = shape;
  chain.source->name += format("[{}: {}]", first, shape.to_string());
  return chain;
}

namespace {

Transform filters_first(const Graph& graph, const Node& node) {
  const auto& deconvolution = node.attributes.get<DeconvolutionAttributes>();
  const std::int64_t groups = deconvolution.num_group;
  const FilterAxes axes{groups, graph.value(node.inputs[1]).shape[0] / groups, deconvolution.num_filter / groups};
  return {.kind = Transform::Kind::kFiltersFirst, .axes = axes};
}

}  // namespace

ConstantChain folded_weights(const Graph& graph, const Node& node, const Node* norm) {
  ConstantChain chain = chain_of(graph, node.inputs[1]);
  if (node.op == &ops::kDeconvolution) chain.transforms.push_back(filters_first(graph, node));
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

#include "worker/import/mxnet/mxnet_upgrade.hpp"

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <span>
#include <string_view>

namespace shoal::worker {
namespace {

constexpr int kVersionUnsaid = 800, kVersion09 = 900, kVersion095 = 905;

using Names = std::span<const std::string_view>;

/// The attribute, lower case; empty when there is none.
std::string attribute(const MxnetNode& node, const char* key) {
  const auto found = node.attributes.find(key);
  if (found == node.attributes.end()) return "";
  std::string text = found->second;
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, text) != names.end();
}

/// The input names of an operator whose parameters, states or labels may be missing in old files. Empty for other operators.
Names input_names(const MxnetNode& node) {
  static constexpr std::string_view kLayer[] = {"data", "weight", "bias"}, kNorm[] = {"data", "gamma", "beta"};
  static constexpr std::string_view kBatchNorm[] = {"data", "gamma", "beta", "moving_mean", "moving_var"};
  static constexpr std::string_view kPrelu[] = {"data", "gamma"}, kHead[] = {"data", "label"}, kSparse[] = {"data", "moving_avg"};
  const Names all = kLayer, without_bias = all.first(2);
  const std::string no_bias = attribute(node, "no_bias");
  if (is_one_of(node.op, {"Convolution", "Convolution_v1", "FullyConnected"}))
    return is_one_of(no_bias, {"true", "1"}) ? without_bias : all;
  if (node.op == "Deconvolution") return is_one_of(no_bias, {"false", "0"}) ? all : without_bias;
  if (is_one_of(node.op, {"BatchNorm", "BatchNorm_v1", "CuDNNBatchNorm"})) return kBatchNorm;
  if (node.op == "InstanceNorm") return kNorm;
  if (node.op == "LeakyReLU") return attribute(node, "act_type") == "prelu" ? Names(kPrelu) : Names();
  if (node.op == "Embedding") return without_bias;
  if (node.op == "IdentityAttachKLSparseReg") return kSparse;
  if (is_one_of(node.op, {"SoftmaxOutput", "Softmax", "LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput",
                          "SVMOutput"}))
    return kHead;
  return {};
}

void append_missing_inputs(MxnetSymbol& symbol) {
  for (std::size_t id = 0, count = symbol.nodes.size(); id < count; ++id) {
    const Names names = input_names(symbol.nodes[id]);
    for (std::size_t i = symbol.nodes[id].inputs.size(); i < names.size(); ++i) {
      MxnetNode variable;
      variable.op = "null";
      variable.name = symbol.nodes[id].name;
      variable.name.append(variable.name.empty() ? "" : "_").append(names[i]);
      variable.offset = symbol.nodes[id].offset;
      symbol.nodes[id].inputs.push_back({symbol.nodes.size(), 0});
      symbol.nodes.push_back(std::move(variable));
    }
  }
}

/// A writer that stored all attributes of a Pooling, but not the convention, is older than that attribute.
bool is_old_pooling(const MxnetNode& node) {
  if (node.op != "Pooling" || !node.has_param || node.attributes.contains("pooling_convention")) return false;
  return std::ranges::all_of(std::initializer_list<const char*>{"kernel", "stride", "pad", "pool_type"},
                             [&](const char* key) { return node.attributes.contains(key); });
}

}  // namespace

void upgrade(MxnetSymbol& symbol) {
  const int version = symbol.version == 0 ? kVersionUnsaid : symbol.version;
  if (version < kVersion09) append_missing_inputs(symbol);
  for (MxnetNode& node : symbol.nodes) {
    node.is_old_pooling = is_old_pooling(node);
    if (version < kVersion095 && is_one_of(node.op, {"argmax", "argmin"}) && attribute(node, "axis") == "-1")
      node.attributes.erase("axis");
  }
}

}  // namespace shoal::worker

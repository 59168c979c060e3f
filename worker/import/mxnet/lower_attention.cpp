// Layers of Transformers: normalization over the data, and attention with interleaved queries, keys and values.
#include "worker/import/mxnet/mxnet_lowering.hpp"
#include "worker/ops/attention.hpp"
#include "worker/ops/normalization.hpp"

namespace shoal::worker {
namespace {

using Values = std::vector<ValueId>;

Values layer_norm(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  LayerNormAttributes norm;
  norm.axis = attributes.integer("axis", -1);
  norm.eps = attributes.real("eps", 1e-5F);
  attributes.flag("output_mean_var", false);
  return lowering.add(ops::kLayerNorm, norm);
}

Values group_norm(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  GroupNormAttributes norm;
  norm.groups = attributes.integer("num_groups", 1, 1);
  norm.eps = attributes.real("eps", 1e-5F);
  attributes.flag("output_mean_var", false);
  return lowering.add(ops::kGroupNorm, norm);
}

Values instance_norm(MxnetLowering& lowering) {
  GroupNormAttributes norm{.groups = 0, .gives_variance = true};
  norm.eps = lowering.attributes.real("eps", 1e-3F);
  return lowering.add(ops::kGroupNorm, norm);
}

auto attention(const Operator& op, bool is_self) {
  return [&op, is_self](MxnetLowering& lowering) {
    return lowering.add(op, AttentionAttributes{lowering.attributes.integer("heads", {}, 1), is_self});
  };
}

}  // namespace

std::vector<MxnetOperator> attention_operators() {
  const std::vector<std::string> scales{"gamma", "beta"}, roots{"output", "mean", "std"}, variances{"output", "mean", "var"};
  std::vector<MxnetOperator> all;
  add_aliases(all, {"", 3, 3, -1, layer_norm, -1, roots, scales}, {"LayerNorm", "_npx_layer_norm"});
  add_aliases(all, {"", 3, 3, -1, group_norm, -1, roots, scales}, {"GroupNorm", "_npx_group_norm"});
  add_aliases(all, {"", 3, 3, -1, instance_norm, -1, variances, scales}, {"InstanceNorm", "_npx_instance_norm"});
  const std::string prefix = "_contrib_interleaved_matmul_", npx = "_npx_interleaved_matmul_";
  add_aliases(all, {"", 1, 1, -1, attention(ops::kAttentionScores, true)}, {prefix + "selfatt_qk", npx + "selfatt_qk"});
  add_aliases(all, {"", 2, 2, -1, attention(ops::kAttentionValues, true)}, {prefix + "selfatt_valatt", npx + "selfatt_valatt"});
  add_aliases(all, {"", 2, 2, -1, attention(ops::kAttentionScores, false)}, {prefix + "encdec_qk", npx + "encdec_qk"});
  add_aliases(all, {"", 2, 2, -1, attention(ops::kAttentionValues, false)}, {prefix + "encdec_valatt", npx + "encdec_valatt"});
  return all;
}

}  // namespace shoal::worker

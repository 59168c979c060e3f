// Operators that look elements up by index, and those that order elements.
#include "worker/import/mxnet/mxnet_lowering.hpp"
#include "worker/ops/creation.hpp"
#include "worker/ops/indexing.hpp"
#include "worker/ops/ordering.hpp"
#include "worker/ops/reshape.hpp"

namespace shoal::worker {
namespace {

using Values = std::vector<ValueId>;

Values take(MxnetLowering& lowering) {
  TakeAttributes take;
  take.axis = lowering.attributes.integer("axis", 0);
  take.mode = static_cast<IndexMode>(lowering.attributes.choice("mode", {"clip", "wrap", "raise"}, 0));
  return lowering.add(ops::kTake, take);
}

/// The rows of the weight. In MXNet the indices come first.
Values embedding(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  TakeAttributes take;
  const std::int64_t rows = attributes.integer("input_dim", {}, 1), columns = attributes.integer("output_dim", {}, 1);
  take.table = {rows, columns};
  take.table_type = attributes.dtype("dtype", DType::kFloat32);
  attributes.ignore({"sparse_grad", "deterministic"});
  return lowering.add(ops::kTake, take, {lowering.inputs[1], lowering.inputs[0]});
}

Values pick(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  PickAttributes pick;
  const auto axis = attributes.optional_integer("axis", -1);
  if (!axis) attributes.fail("axis", "is not one of the data");
  pick.axis = axis.value_or(-1);
  pick.keepdims = attributes.flag("keepdims", false);
  pick.mode = static_cast<IndexMode>(attributes.choice("mode", {"clip", "wrap"}, 0));
  return lowering.add(ops::kPick, pick);
}

/// Older than pick: the data is a matrix, or is taken as one.
Values batch_take(MxnetLowering& lowering) {
  const Values matrix = lowering.add(ops::kReshape, ReshapeAttributes{{0, -1}}, {lowering.inputs[0]});
  if (matrix.empty()) return {};
  return lowering.add(ops::kPick, PickAttributes{.axis = 1}, {matrix[0], lowering.inputs[1]});
}

Values one_hot(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  OneHotAttributes one_hot;
  one_hot.depth = attributes.integer("depth", {}, 1);
  one_hot.on = attributes.number("on_value", 1);
  one_hot.off = attributes.number("off_value", 0);
  one_hot.dtype = attributes.dtype("dtype", DType::kFloat32);
  return lowering.add(ops::kOneHot, one_hot);
}

Values gather_nd(MxnetLowering& lowering) { return lowering.add(ops::kGatherNd); }

/// The slices among zeros.
Values scatter_nd(MxnetLowering& lowering) {
  const Dims shape = lowering.attributes.tuple("shape", {}, 1);
  const ValueId data = lowering.inputs[0], indices = lowering.inputs[1];
  const Values zeros = lowering.add(ops::kFill, FillAttributes{.shape = shape}, {data});
  if (zeros.empty()) return {};
  return lowering.add(ops::kScatterNd, {}, {zeros[0], indices, data});
}

/// Rows of a tensor are replaced. The indices are a vector, and name the first axis.
Values index_copy(MxnetLowering& lowering) {
  const ValueId old = lowering.inputs[0], index = lowering.inputs[1], rows = lowering.inputs[2];
  const Values named = lowering.add(ops::kReshape, ReshapeAttributes{{1, -1}}, {index});
  if (named.empty()) return {};
  return lowering.add(ops::kScatterNd, {}, {old, named[0], rows});
}

Values boolean_mask(MxnetLowering& lowering) {
  if (lowering.attributes.integer("axis", 0) != 0) lowering.attributes.fail("axis", "is not 0");
  return lowering.add(ops::kBooleanMask);
}

auto ravel(const Operator& op) {
  return [&op](MxnetLowering& lowering) { return lowering.add(op, RavelAttributes{lowering.attributes.tuple("shape")}); };
}

Values sort(MxnetLowering& lowering) {
  TopKAttributes top{.result = TopKResult::kValues};
  top.axis = lowering.attributes.optional_integer("axis", -1);
  top.ascending = lowering.attributes.flag("is_ascend", true);
  return lowering.add(ops::kTopK, top, lowering.inputs, 2);
}

Values argsort(MxnetLowering& lowering) {
  TopKAttributes top;
  top.axis = lowering.attributes.optional_integer("axis", -1);
  top.ascending = lowering.attributes.flag("is_ascend", true);
  top.dtype = lowering.attributes.dtype("dtype", DType::kFloat32);
  return lowering.add(ops::kTopK, top);
}

Values top_k(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  TopKAttributes top;
  top.axis = attributes.optional_integer("axis", -1);
  top.count = attributes.integer("k", 1);
  top.ascending = attributes.flag("is_ascend", false);
  top.result = static_cast<TopKResult>(attributes.choice("ret_typ", {"value", "indices", "both", "mask"}, 1));
  top.dtype = attributes.dtype("dtype", DType::kFloat32);
  const bool has_values = top.result == TopKResult::kValues || top.result == TopKResult::kBoth;
  return lowering.add(ops::kTopK, top, lowering.inputs, has_values ? 2 : 1);
}

auto arg_extreme(bool lowest) {
  return [=](MxnetLowering& lowering) {
    ArgExtremeAttributes extreme{.lowest = lowest};
    extreme.axis = lowering.attributes.optional_integer("axis", std::nullopt);
    extreme.keepdims = lowering.attributes.flag("keepdims", false);
    return lowering.add(ops::kArgExtreme, extreme);
  };
}

Values argmax_channel(MxnetLowering& lowering) { return lowering.add(ops::kArgExtreme, ArgExtremeAttributes{.axis = 1}); }

}  // namespace

std::vector<MxnetOperator> indexing_operators() {
  const std::vector<std::string> weight{"weight"}, output{"output"};
  std::vector<MxnetOperator> all;
  add_aliases(all, {"", 2, 2, -1, take}, {"take", "_npi_take"});
  add_aliases(all, {"", 2, 2, -1, embedding, -1, {}, weight},
              {"Embedding", "_contrib_SparseEmbedding", "_npx_embedding", "_sparse_Embedding"});
  add_aliases(all, {"", 2, 2, -1, pick}, {"pick", "choose_element_0index", "_npx_pick"});
  all.push_back({"batch_take", 2, 2, -1, batch_take});
  add_aliases(all, {"", 1, 1, -1, one_hot}, {"one_hot", "_npx_one_hot"});
  add_aliases(all, {"", 2, 2, -1, gather_nd}, {"gather_nd", "_npi_gather_nd", "_npx_gather_nd"});
  add_aliases(all, {"", 2, 2, -1, scatter_nd}, {"scatter_nd", "_npi_scatter_nd"});
  all.push_back({"_contrib_index_copy", 3, 3, -1, index_copy});
  add_aliases(all, {"", 2, 2, -1, boolean_mask}, {"_contrib_boolean_mask", "_npi_boolean_mask"});
  add_aliases(all, {"", 1, 1, -1, ravel(ops::kRavelIndex)}, {"_ravel_multi_index", "ravel_multi_index"});
  add_aliases(all, {"", 1, 1, -1, ravel(ops::kUnravelIndex)}, {"_unravel_index", "unravel_index"});
  add_aliases(all, {"", 1, 1, -1, sort}, {"sort", "_npi_sort"});
  add_aliases(all, {"", 1, 1, -1, argsort}, {"argsort", "_npi_argsort"});
  add_aliases(all, {"", 1, 1, -1, top_k}, {"topk", "_npx_topk"});
  all.push_back({"argmax", 1, 1, -1, arg_extreme(false)});
  all.push_back({"argmin", 1, 1, -1, arg_extreme(true)});
  all.push_back({"argmax_channel", 1, 1, -1, argmax_channel});
  return all;
}

}  // namespace shoal::worker

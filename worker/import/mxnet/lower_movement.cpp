// Operators that move elements: Concat, Flatten, Reshape, transpose.
#include "shm/base/format.hpp"
#include "worker/import/mxnet/mxnet_lowering.hpp"

namespace shoal::worker {
namespace {

using Values = std::vector<ValueId>;

Values concat(MxnetLowering& lowering) {
  const auto count = static_cast<std::int64_t>(lowering.inputs.size());
  if (lowering.attributes.integer("num_args", count, 1) != count) {
    lowering.attributes.fail("num_args", format("and the node has {} inputs", count));
  }
  return lowering.add("Concat", ConcatAttributes{lowering.attributes.integer("dim", 1)});
}

Values flatten(MxnetLowering& lowering) { return lowering.add("Flatten"); }

Values reshape(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  ReshapeAttributes reshape;
  reshape.shape = attributes.tuple("shape", Dims{});
  reshape.reverse = attributes.flag("reverse", false);
  const Dims target = attributes.tuple("target_shape", Dims{}, 0);
  reshape.keep_highest = attributes.flag("keep_highest", false);
  if (reshape.shape.empty()) {
    reshape.legacy_target = true;
    reshape.shape = target;
    if (target.empty()) attributes.fail("shape", "is missing, and so is target_shape");
  }
  return lowering.add("Reshape", reshape);
}

Values transpose(MxnetLowering& lowering) {
  return lowering.add("Transpose", TransposeAttributes{lowering.attributes.tuple("axes", Dims{})});
}

}  // namespace

std::vector<MxnetOperator> movement_operators() {
  std::vector<MxnetOperator> all;
  add_aliases(all, {"", 1, -1, -1, concat}, {"Concat", "concat"});
  add_aliases(all, {"", 1, 1, -1, flatten}, {"Flatten", "flatten", "_npx_batch_flatten"});
  add_aliases(all, {"", 1, 1, -1, reshape}, {"Reshape", "reshape"});
  all.push_back({"transpose", 1, 1, -1, transpose});
  return all;
}

}  // namespace shoal::worker

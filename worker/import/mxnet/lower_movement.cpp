// Operators that move elements.
#include <algorithm>

#include "shm/base/format.hpp"
#include "worker/import/mxnet/mxnet_lowering.hpp"
#include "worker/ops/creation.hpp"
#include "worker/ops/movement.hpp"
#include "worker/ops/rearrangement.hpp"
#include "worker/ops/reshape.hpp"

namespace shoal::worker {
namespace {

using Values = std::vector<ValueId>;

Values concat(MxnetLowering& lowering) {
  lowering.check_input_count("num_args");
  return lowering.add(ops::kConcat, ConcatAttributes{lowering.attributes.integer("dim", 1)});
}

Values flatten(MxnetLowering& lowering) { return lowering.add(ops::kFlatten); }

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
  return lowering.add(ops::kReshape, reshape);
}

Values transpose(MxnetLowering& lowering) {
  return lowering.add(ops::kTranspose, TransposeAttributes{lowering.attributes.tuple("axes", Dims{})});
}

Values swap_axes(MxnetLowering& lowering) {
  const std::int64_t first = lowering.attributes.integer("dim1", 0), second = lowering.attributes.integer("dim2", 0);
  return lowering.add(ops::kSwapAxes, SwapAxesAttributes{first, second});
}

Values split(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  constexpr std::int64_t kMostOutputs = 65536;
  SplitAttributes split;
  split.parts = attributes.integer("num_outputs", {}, 1, kMostOutputs);
  split.axis = attributes.integer("axis", 1);
  split.squeeze = attributes.flag("squeeze_axis", false);
  return lowering.add(ops::kSplit, split, lowering.inputs, static_cast<std::size_t>(split.parts));
}

SliceAttributes read_slice(AttributeReader& attributes) {
  const OptionalDims begin = attributes.optional_tuple("begin"), end = attributes.optional_tuple("end");
  const OptionalDims step = attributes.optional_tuple("step", OptionalDims{});
  if (end.size() != begin.size()) attributes.fail("end", format("has {} entries where begin has {}", end.size(), begin.size()));
  if (!step.empty() && step.size() != begin.size()) {
    attributes.fail("step", format("has {} entries where begin has {}", step.size(), begin.size()));
  }
  SliceAttributes slice;
  for (std::size_t i = 0; attributes.status().ok() && i < begin.size(); ++i) {
    const std::int64_t stride = step.empty() ? 1 : step[i].value_or(1);
    if (stride == 0) attributes.fail("step", "holds 0");
    slice.ranges.push_back({static_cast<std::int64_t>(i), begin[i], end[i], stride});
  }
  return slice;
}

Values slice(MxnetLowering& lowering) { return lowering.add(ops::kSlice, read_slice(lowering.attributes)); }
Values slice_assign(MxnetLowering& lowering) { return lowering.add(ops::kSliceAssign, read_slice(lowering.attributes)); }
Values slice_assign_scalar(MxnetLowering& lowering) {
  const ValueId data = lowering.inputs[0];
  const Values number = lowering.add(ops::kFill, FillAttributes{.value = lowering.attributes.number("scalar", 0)}, {data});
  if (number.empty()) return {};
  return lowering.add(ops::kSliceAssign, read_slice(lowering.attributes), {data, number[0]});
}

Values slice_axis(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  SliceRange range;
  range.axis = attributes.integer("axis");
  range.begin = attributes.integer("begin");
  if (attributes.has("end"))
    range.end = attributes.integer("end");
  else
    attributes.optional_tuple("end");  // it is required, and is None here
  return lowering.add(ops::kSlice, SliceAttributes{{range}, /*clips=*/false});
}

Values pad(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  PadAttributes pad;
  pad.mode = static_cast<PadMode>(attributes.choice("mode", {"constant", "edge", "reflect"}));
  pad.widths = attributes.tuple("pad_width", {}, 0);
  pad.value = attributes.number("constant_value", 0);
  for (std::size_t i = 0; i < std::min<std::size_t>(4, pad.widths.size()); ++i) {
    if (pad.widths[i] != 0) {
      attributes.fail("pad_width", "pads batch or channels");
      break;
    }
  }
  return lowering.add(ops::kPad, pad);
}

}  // namespace

std::vector<MxnetOperator> movement_operators() {
  std::vector<MxnetOperator> all;
  add_aliases(all, {"", 1, -1, -1, concat}, {"Concat", "concat"});
  add_aliases(all, {"", 1, 1, -1, flatten}, {"Flatten", "flatten", "_npx_batch_flatten"});
  add_aliases(all, {"", 1, 1, -1, reshape}, {"Reshape", "reshape"});
  all.push_back({"transpose", 1, 1, -1, transpose});
  add_aliases(all, {"", 1, 1, -1, swap_axes}, {"SwapAxis", "swapaxes", "_npi_swapaxes"});
  add_aliases(all, {"", 1, 1, -1, split, -1, {"output0"}}, {"SliceChannel", "split"});
  add_aliases(all, {"", 1, 1, -1, slice}, {"slice", "crop", "_npx_slice", "_npi_slice"});
  add_aliases(all, {"", 2, 2, -1, slice_assign}, {"_slice_assign", "_crop_assign", "_npi_slice_assign"});
  add_aliases(all, {"", 1, 1, -1, slice_assign_scalar},
              {"_slice_assign_scalar", "_crop_assign_scalar", "_npi_slice_assign_scalar"});
  all.push_back({"slice_axis", 1, 1, -1, slice_axis});
  add_aliases(all, {"", 1, 1, -1, pad}, {"Pad", "pad"});
  return all;
}

}  // namespace shoal::worker

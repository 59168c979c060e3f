// Identity, Flatten, Reshape: the same elements in the same order.
#pragma once

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kIdentity, kFlatten, kReshape;
}  // namespace ops

struct ReshapeAttributes {
  Dims shape;
  bool reverse = false;
  bool legacy_target = false;
  bool keep_highest = false;
};
template <>
inline constexpr auto fields_of<ReshapeAttributes> = std::tuple{
    field("shape", &ReshapeAttributes::shape, "MXNet's codes (0, -1, -2, -3, -4), of which ONNX's are a part"),
    field("reverse", &ReshapeAttributes::reverse, "the codes count from the last axis"),
    field("legacy_target", &ReshapeAttributes::legacy_target, "`shape` is target_shape of old files: a single 0 is inferred"),
    field("keep_highest", &ReshapeAttributes::keep_highest, "the first axis of target_shape is the data's"),
};

}  // namespace shoal::worker

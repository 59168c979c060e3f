// RoiPooling, RoiAlign.
#include "worker/ops/regions.hpp"

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/regions_functions.hpp"

namespace shoal::worker {
namespace {

/// data (N, C, H, W), rois (R, 5)
Status check_rois(const Node& node, SourceValues src) {
  const TypedValue &data = src[0], &rois = src[1];
  SHOAL_RETURN_IF_ERROR(check_float(node, data));
  SHOAL_RETURN_IF_ERROR(check_same_dtype(node, src));
  SHOAL_RETURN_IF_ERROR(check_rank(node, data, 4, 4));
  SHOAL_RETURN_IF_ERROR(check_rank(node, rois, 2, 2));
  return check_shape(node, "rois", rois, SymbolicShape{rois.shape[0], 5});
}

Status infer_roi_pooling(const Node& node, SourceValues src, ResultValues dst) {
  const auto& pool = node.attributes.get<RoiPoolingAttributes>();
  SHOAL_RETURN_IF_ERROR(check_rois(node, src));
  SHOAL_RETURN_IF_ERROR(check_numbers(node, "pooled_size", {pool.height, pool.width}, 1));
  set_result(dst[0], src[0].dtype, SymbolicShape{src[1].shape[0], src[0].shape[1], pool.height, pool.width});
  return {};
}

Status infer_roi_align(const Node& node, SourceValues src, ResultValues dst) {
  const auto& align = node.attributes.get<RoiAlignAttributes>();
  SHOAL_RETURN_IF_ERROR(check_rois(node, src));
  SHOAL_RETURN_IF_ERROR(check_numbers(node, "pooled_size", {align.height, align.width}, 1));
  Dim channels = src[0].shape[1];
  if (align.by_position) {
    const std::int64_t bins = align.height * align.width;
    if (known_indivisible(channels, bins)) {
      return invalid_argument("{}: the {} channels of '{}' ({}) cannot be divided among {} bins", describe(node),
                              channels.to_string(), src[0].name, src[0].shape.to_string(), bins);
    }
    channels = floor_div(channels, bins);
  }
  set_result(dst[0], src[0].dtype, SymbolicShape{src[1].shape[0], channels, align.height, align.width});
  return {};
}

}  // namespace

namespace ops {

const Operator kRoiPooling({
    .name = "RoiPooling",
    .inputs = 2,
    .attributes = &kSchema<RoiPoolingAttributes>,
    .infer = infer_roi_pooling,
    .constant_types = ConstantTypes::kAsData,
    .facts = indexed_facts(rows_mixed, 1, work_of_pairs, Accuracy::kLost),
    .oracle = run_undivided<RoiPooling, Floats>,
    .formula =
        "data (N, C, H, W), rois (R, 5) [map, left, top, right, bottom]: (R, C, height, width) maxima of the bins of each "
        "region, "
        "whose coordinates are rounded to elements of the map; bin i of n covers floor(i extent / n) up to ceil((i + 1) extent / "
        "n). 0 for a bin without elements, and for a map that does not exist",
    .source = "MXNet 1.9.1 src/operator/roi_pooling.cc",
});

const Operator kRoiAlign({
    .name = "RoiAlign",
    .inputs = 2,
    .attributes = &kSchema<RoiAlignAttributes>,
    .infer = infer_roi_align,
    .constant_types = ConstantTypes::kAsData,
    .facts = indexed_facts(rows_mixed, 1, work_without_bound, Accuracy::kLost),
    .oracle = run_undivided<RoiAlign, Floats>,
    .formula =
        "data (N, C, H, W), rois (R, 5) [map, left, top, right, bottom]: (R, C, height, width) means of samples that lie "
        "regularly "
        "in the bins of each region, each interpolated between four elements. Samples beyond the map by more than one element, "
        "and maps that do not exist, count 0",
    .source = "MXNet 1.9.1 src/operator/contrib/roi_align.cc",
});

}  // namespace ops

}  // namespace shoal::worker

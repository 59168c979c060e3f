// MultiBoxPrior, MultiBoxDetection.
#include "worker/ops/detection.hpp"

#include <algorithm>
#include <cmath>

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/detection_functions.hpp"

namespace shoal::worker {
namespace {

Status infer_prior(const Node& node, SourceValues src, ResultValues dst) {
  const auto& prior = node.attributes.get<MultiBoxPriorAttributes>();
  const TypedValue& data = src[0];
  SHOAL_RETURN_IF_ERROR(check_float(node, data));
  SHOAL_RETURN_IF_ERROR(check_rank(node, data, 4));
  const auto anchors = static_cast<std::int64_t>(prior.sizes.size() + prior.ratios.size()) - 1;
  set_result(dst[0], data.dtype, SymbolicShape{1, data.shape[2] * data.shape[3] * anchors, 4});
  return {};
}

Status infer_detection(const Node& node, SourceValues src, ResultValues dst) {
  const TypedValue &scores = src[0], &offsets = src[1], &anchors = src[2];
  SHOAL_RETURN_IF_ERROR(check_float(node, scores));
  SHOAL_RETURN_IF_ERROR(check_same_dtype(node, src));
  SHOAL_RETURN_IF_ERROR(check_rank(node, scores, 3, 3));
  const Dim batch = scores.shape[0], count = scores.shape[2];
  SHOAL_RETURN_IF_ERROR(check_shape(node, "loc_pred", offsets, SymbolicShape{batch, count * 4}));
  SHOAL_RETURN_IF_ERROR(check_shape(node, "anchor", anchors, SymbolicShape{1, count, 4}));
  set_result(dst[0], scores.dtype, SymbolicShape{batch, count, MultiBoxDetection<float>::kFields});
  return {};
}

/// Half of an anchor's width and height.
struct HalfExtent {
  float x, y;
};

std::vector<HalfExtent> anchors_of_cell(const MultiBoxPriorAttributes& prior, float height, float width) {
  std::vector<HalfExtent> anchors;
  const auto add = [&](float size, float ratio) {
    const float root = std::sqrt(ratio);
    anchors.push_back({size * height / width * root / 2, size / root / 2});  // square in pixels if the ratio is 1
  };
  for (const float size : prior.sizes) add(size, prior.ratios.front());
  for (std::size_t i = 1; i < prior.ratios.size(); ++i) add(prior.sizes.front(), prior.ratios[i]);
  return anchors;
}

// In float32 whatever the type, as MXNet does.
Status compute_prior(const Node& node, Sources src, Results dst) {
  const auto& prior = node.attributes.get<MultiBoxPriorAttributes>();
  const std::int64_t rows = src[0].shape[2], columns = src[0].shape[3];
  const auto height = static_cast<float>(rows), width = static_cast<float>(columns);
  const bool has_steps = prior.step_y > 0 && prior.step_x > 0;
  const float step_y = has_steps ? prior.step_y : 1 / height, step_x = has_steps ? prior.step_x : 1 / width;
  const std::vector<HalfExtent> anchors = anchors_of_cell(prior, height, width);
  return dispatch<Floats>(node, dst[0].dtype, [&]<typename T>() {
    T* to = elements<T>(dst[0]);
    for (std::int64_t row = 0; row < rows; ++row) {
      const float y = (static_cast<float>(row) + prior.offset_y) * step_y;
      for (std::int64_t column = 0; column < columns; ++column) {
        const float x = (static_cast<float>(column) + prior.offset_x) * step_x;
        for (const HalfExtent& half : anchors) {
          for (const float corner : {x - half.x, y - half.y, x + half.x, y + half.y})
            *to++ = to_element<T>(prior.clip ? std::clamp(corner, 0.0F, 1.0F) : corner);
        }
      }
    }
    return Status();
  });
}

bool detection_rows(const BatchedNode& batched) {
  return batched.has_rows_in(0) && batched.has_rows_in(1) && !batched.has_rows_in(2);
}

}  // namespace

namespace ops {

const Operator kMultiBoxPrior({
    .name = "MultiBoxPrior",
    .attributes = &kSchema<MultiBoxPriorAttributes>,
    .infer = infer_prior,
    .facts = with_shape_inputs(layer_facts(rows_mixed, work_of_elements, Accuracy::kLost), 0),
    .oracle = compute_prior,
    .formula =
        "data (N, C, H, W), of which only H and W count: (1, H W A, 4) anchors [left, top, right, bottom] around the center of "
        "each cell, A = sizes + ratios - 1. The picture is 1 wide and 1 high. An anchor is size (H / W) sqrt(ratio) wide and "
        "size / sqrt(ratio) high",
    .source = "MXNet 1.9.1 src/operator/contrib/multibox_prior.cc",
});

const Operator kMultiBoxDetection({
    .name = "MultiBoxDetection",
    .inputs = 3,
    .attributes = &kSchema<MultiBoxDetectionAttributes>,
    .infer = infer_detection,
    .constant_types = ConstantTypes::kAsData,
    .facts = layer_facts(detection_rows, work_of_pairs, Accuracy::kLost),
    .oracle = run_undivided<MultiBoxDetection, Floats>,
    .formula =
        "scores (N, classes, A), of which class 0 is the background, offsets (N, 4 A), anchors (1, A, 4): (N, A, 6) rows "
        "[class - 1, score, left, top, right, bottom] of the anchors with their best classes, the highest score first. Rows that "
        "others suppress have the class -1, unused rows are -1",
    .source = "MXNet 1.9.1 src/operator/contrib/multibox_detection.cc",
});

}  // namespace ops

}  // namespace shoal::worker

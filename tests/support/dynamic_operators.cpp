#include "tests/support/dynamic_operators.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "tests/support/custom_operator.hpp"
#include "worker/graph/shapes.hpp"

namespace shoal::worker {
namespace {

Status infer_nonzero(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_RETURN_IF_ERROR(check_float(node, src[0]));
  const SymbolicShape& data = src[0].shape;
  set_result(dst[0], DType::kInt64, {size_from_data(dst[0], 0, data.element_count()), data.rank()});
  return {};
}

/// The client may change its memory meanwhile: each element is read once.
Status compute_nonzero(const Node&, std::span<const TensorView> src, std::span<TensorView> dst) {
  const Shape& shape = src[0].shape;
  const auto* const data = reinterpret_cast<const float*>(src[0].data);
  auto* to = reinterpret_cast<std::int64_t*>(dst[0].data);
  std::int64_t found = 0;
  for (std::int64_t at = 0, count = shape.element_count(); at < count; ++at) {
    if (data[at] == 0) continue;
    std::int64_t rest = at;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      to[found * shape.rank() + axis] = rest % shape[axis];
      rest /= shape[axis];
    }
    ++found;
  }
  dst[0].shape[0] = found;
  return {};
}

Status infer_nms(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_RETURN_IF_ERROR(check_rank(node, src[0], 2, 2));
  const SymbolicShape& boxes = src[0].shape;
  SHOAL_RETURN_IF_ERROR(check_shape(node, "boxes", src[0], {boxes[0], 5}));
  set_result(dst[0], DType::kFloat32, {size_from_data(dst[0], 0, boxes[0]), 5});
  return {};
}

struct Box {
  float score, x1, y1, x2, y2;
  float area() const { return std::max(0.f, x2 - x1) * std::max(0.f, y2 - y1); }
};

float overlap(const Box& a, const Box& b) {
  const Box both{0, std::max(a.x1, b.x1), std::max(a.y1, b.y1), std::min(a.x2, b.x2), std::min(a.y2, b.y2)};
  const float together = a.area() + b.area() - both.area();
  return together > 0 ? both.area() / together : 0;
}

Status compute_nms(const Node& node, std::span<const TensorView> src, std::span<TensorView> dst) {
  const auto limit = static_cast<float>(node.attributes.get<CustomAttributes>().scalar);
  std::vector<Box> boxes(static_cast<std::size_t>(src[0].shape[0])), kept;
  if (!boxes.empty()) std::memcpy(boxes.data(), src[0].data, boxes.size() * sizeof(Box));
  std::ranges::stable_sort(boxes, std::ranges::greater(), &Box::score);
  for (const Box& box : boxes) {
    if (std::ranges::none_of(kept, [&](const Box& other) { return overlap(box, other) > limit; })) kept.push_back(box);
  }
  if (!kept.empty()) std::memcpy(dst[0].data, kept.data(), kept.size() * sizeof(Box));
  dst[0].shape[0] = static_cast<std::int64_t>(kept.size());
  return {};
}

}  // namespace
}  // namespace shoal::worker

namespace shoal::test {

void register_dynamic_operators() {
  using namespace shoal::worker;
  register_custom_mxnet_operator({.name = "_dynamic_nonzero",
                                  .attributes = &kSchema<CustomAttributes>,
                                  .infer = infer_nonzero,
                                  .facts = layer_facts(rows_mixed, work_of_pairs, Accuracy::kLost),
                                  .oracle = compute_nonzero});
  register_custom_mxnet_operator({.name = "_dynamic_nms",
                                  .attributes = &kSchema<CustomAttributes>,
                                  .infer = infer_nms,
                                  .facts = layer_facts(rows_mixed, work_of_pairs, Accuracy::kLost),
                                  .oracle = compute_nms});
}

}  // namespace shoal::test

// BoxNms, BoxIou, BoxDecode, BoxEncode, BipartiteMatching.
#include "worker/ops/boxes.hpp"

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/boxes_functions.hpp"

namespace shoal::worker {
namespace {

/// Errors: kInvalidArgument unless each row of src is a box.
Status check_boxes(const Node& node, const TypedValue& src, int least_rank, int most_rank = kMaxRank) {
  SHOAL_RETURN_IF_ERROR(check_rank(node, src, least_rank, most_rank));
  if (!known_unequal(src.shape[src.shape.rank() - 1], 4)) return {};
  return invalid_argument("{}: '{}' has shape {}; its last axis needs the 4 numbers of a box", describe(node), src.name,
                          src.shape.to_string());
}

/// Errors: kInvalidArgument unless a row has this field, and it is none of the four coordinates.
Status check_field(const Node& node, const BoxNmsAttributes& nms, const char* attribute, std::int64_t place,
                   const TypedValue& data) {
  const Dim width = data.shape[data.shape.rank() - 1];
  const bool is_coordinate = place >= nms.coordinates && place < nms.coordinates + 4;
  if (place >= 0 && !known_less(width, place + 1) && !is_coordinate) return {};
  return invalid_argument("{}: {} {} is no field of the {} in a row of '{}' ({}) beside the coordinates from {} on",
                          describe(node), attribute, place, width.to_string(), data.name, data.shape.to_string(),
                          nms.coordinates);
}

Status infer_box_nms(const Node& node, SourceValues src, ResultValues dst) {
  const auto& nms = node.attributes.get<BoxNmsAttributes>();
  const TypedValue& data = src[0];
  SHOAL_RETURN_IF_ERROR(check_float(node, data));
  SHOAL_RETURN_IF_ERROR(check_rank(node, data, 2));
  SHOAL_RETURN_IF_ERROR(check_numbers(node, "coord_start", {nms.coordinates}, 0));
  if (known_less(data.shape[data.shape.rank() - 1], nms.coordinates + 4)) {
    return invalid_argument("{}: a row of '{}' ({}) has no 4 coordinates from coord_start {} on", describe(node), data.name,
                            data.shape.to_string(), nms.coordinates);
  }
  SHOAL_RETURN_IF_ERROR(check_field(node, nms, "score_index", nms.score, data));
  if (nms.class_id >= 0) {
    SHOAL_RETURN_IF_ERROR(check_field(node, nms, "id_index", nms.class_id, data));
    if (nms.class_id == nms.score) return invalid_argument("{}: id_index and score_index are both {}", describe(node), nms.score);
  }
  set_result(dst[0], data.dtype, data.shape);
  return {};
}

Status infer_box_iou(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_RETURN_IF_ERROR(check_float(node, src[0]));
  SHOAL_RETURN_IF_ERROR(check_same_dtype(node, src));
  Sizes sizes;
  for (const TypedValue& boxes : src) {
    SHOAL_RETURN_IF_ERROR(check_boxes(node, boxes, 2));
    sizes.insert(sizes.end(), boxes.shape.begin(), boxes.shape.end() - 1);
  }
  SHOAL_ASSIGN_OR_RETURN(const SymbolicShape out, make_shape(node, sizes));
  set_result(dst[0], src[0].dtype, out);
  return {};
}

Status infer_box_decode(const Node& node, SourceValues src, ResultValues dst) {
  const TypedValue &data = src[0], &anchors = src[1];
  SHOAL_RETURN_IF_ERROR(check_float(node, data));
  SHOAL_RETURN_IF_ERROR(check_same_dtype(node, src));
  SHOAL_RETURN_IF_ERROR(check_boxes(node, data, 3, 3));
  SHOAL_RETURN_IF_ERROR(check_shape(node, "anchors", anchors, SymbolicShape{1, data.shape[1], 4}));
  set_result(dst[0], data.dtype, data.shape);
  return {};
}

Status infer_box_encode(const Node& node, SourceValues src, ResultValues dst) {
  const TypedValue &samples = src[0], &matches = src[1], &anchors = src[2], &refs = src[3];
  SHOAL_RETURN_IF_ERROR(check_float(node, samples));
  SHOAL_RETURN_IF_ERROR(check_same_dtype(node, src));
  SHOAL_RETURN_IF_ERROR(check_boxes(node, anchors, 3, 3));
  SHOAL_RETURN_IF_ERROR(check_boxes(node, refs, 3, 3));
  const SymbolicShape places{anchors.shape[0], anchors.shape[1]};
  SHOAL_RETURN_IF_ERROR(check_shape(node, "samples", samples, places));
  SHOAL_RETURN_IF_ERROR(check_shape(node, "matches", matches, places));
  SHOAL_RETURN_IF_ERROR(check_shape(node, "refs", refs, SymbolicShape{anchors.shape[0], refs.shape[1], 4}));
  SHOAL_RETURN_IF_ERROR(check_shape(node, "means", src[4], SymbolicShape{4}));
  SHOAL_RETURN_IF_ERROR(check_shape(node, "stds", src[5], SymbolicShape{4}));
  for (TypedValue& result : dst) set_result(result, anchors.dtype, anchors.shape);
  return {};
}

Status infer_matching(const Node& node, SourceValues src, ResultValues dst) {
  const TypedValue& data = src[0];
  SHOAL_RETURN_IF_ERROR(check_float(node, data));
  SHOAL_RETURN_IF_ERROR(check_rank(node, data, 2));
  Sizes rows(data.shape.begin(), data.shape.end() - 1), columns = rows;
  columns.back() = data.shape[data.shape.rank() - 1];
  set_result(dst[0], data.dtype, SymbolicShape(rows));
  set_result(dst[1], data.dtype, SymbolicShape(columns));
  return {};
}

/// In data of two axes the rows of axis 0 are the boxes that suppress each other, or the rows that compete.
bool rows_of_batches(const BatchedNode& batched) { return batched.rank() > 2 && batched.has_rows_in(0); }

bool encode_rows(const BatchedNode& batched) {
  return batched.has_rows_in(0) && batched.has_rows_in(1) && batched.has_rows_in(2) && batched.has_rows_in(3) &&
         !batched.has_rows_in(4) && !batched.has_rows_in(5);
}

}  // namespace

namespace ops {

const Operator kBoxNms({
    .name = "BoxNms",
    .attributes = &kSchema<BoxNmsAttributes>,
    .infer = infer_box_nms,
    .facts = layer_facts(rows_of_batches, work_of_pairs, Accuracy::kLost),
    .oracle = run_undivided<BoxNms, Floats>,
    .formula =
        "data (..., N, fields): of each N rows those whose boxes no better row suppresses, the highest score first; the rest is "
        "-1",
    .source = "MXNet 1.9.1 src/operator/contrib/bounding_box-inl.h",
});

const Operator kBoxIou({
    .name = "BoxIou",
    .inputs = 2,
    .attributes = &kSchema<BoxIouAttributes>,
    .infer = infer_box_iou,
    .constant_types = ConstantTypes::kAsData,
    .facts = layer_facts(rows_of_first_input, work_of_pairs, Accuracy::kLost),
    .oracle = run_undivided<BoxIou, Floats>,
    .formula =
        "boxes (..., 4), others (..., 4): intersection by union of each box with each other, (axes of the boxes, axes of the "
        "others). A box with a negative side has no area",
    .source = "MXNet 1.9.1 src/operator/contrib/bounding_box-inl.h",
});

const Operator kBoxDecode({
    .name = "BoxDecode",
    .inputs = 2,
    .attributes = &kSchema<BoxDecodeAttributes>,
    .infer = infer_box_decode,
    .constant_types = ConstantTypes::kAsData,
    .facts = layer_facts(rows_of_first_input, work_of_elements, Accuracy::kLost),
    .oracle = run_undivided<BoxDecode, Floats>,
    .formula = "data (B, N, 4), anchors (1, N, 4): the corners of the boxes at anchor + data * factor * size, of anchor size * "
               "exp(data * factor)",
    .source = "MXNet 1.9.1 src/operator/contrib/bounding_box-inl.h",
});

const Operator kBoxEncode({
    .name = "BoxEncode",
    .inputs = 6,
    .outputs = 2,
    .infer = infer_box_encode,
    .constant_types = ConstantTypes::kAsData,
    .facts = indexed_facts(encode_rows, 1, work_of_pairs, Accuracy::kLost),
    .oracle = run_undivided<BoxEncode, Floats>,
    .formula =
        "samples (B, N), matches (B, N), anchors (B, N, 4), refs (B, M, 4), means (4), stds (4): where a sample is above 0.5, "
        "the "
        "numbers from which BoxDecode makes the ref that is matched, less means, by stds; else 0. And (B, N, 4) ones and zeros: "
        "where it is. A match beyond the refs counts as the nearest one",
    .source = "MXNet 1.9.1 src/operator/contrib/bounding_box-inl.h",
});

const Operator kBipartiteMatching({
    .name = "BipartiteMatching",
    .outputs = 2,
    .attributes = &kSchema<BipartiteMatchingAttributes>,
    .infer = infer_matching,
    .facts = layer_facts(rows_of_batches, work_of_pairs, Accuracy::kLost),
    .oracle = run_undivided<BipartiteMatching, Floats>,
    .formula =
        "scores (..., N, M): the best score matches its row and column, then the best of the others, and so on; the column of "
        "each row (..., N) and the row of each column (..., M); -1: none",
    .source = "MXNet 1.9.1 src/operator/contrib/bounding_box-inl.h",
});

}  // namespace ops

}  // namespace shoal::worker

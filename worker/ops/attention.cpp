// AttentionScores, AttentionValues.
#include "worker/ops/attention.hpp"

#include <cmath>

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/elements.hpp"
#include "worker/ops/matrix_product.hpp"

namespace shoal::worker {
namespace {

/// Checks that the last axis of (length, batch, heads * parts * size) can be divided. Returns the size of a vector.
Result<Dim> vector_size(const Node& node, const TypedValue& src, int parts) {
  SHOAL_RETURN_IF_ERROR(check_float(node, src));
  SHOAL_RETURN_IF_ERROR(check_rank(node, src, 3, 3));
  const std::int64_t heads = node.attributes.get<AttentionAttributes>().heads;
  if (heads < 1) return invalid_argument("{}: heads is {}; it must be positive", describe(node), heads);
  const Dim vectors = Dim(heads) * Dim(parts);
  if (known_indivisible(src.shape[2], vectors)) {
    return invalid_argument("{}: the last axis of '{}' ({}) cannot be divided into {} heads with {} vectors each", describe(node),
                            src.name, src.shape.to_string(), heads, parts);
  }
  return floor_div(src.shape[2], vectors);
}

Status infer_scores(const Node& node, SourceValues src, ResultValues dst) {
  const auto& attention = node.attributes.get<AttentionAttributes>();
  if (src.size() != (attention.is_self ? 1 : 2))
    return invalid_argument("{}: {} inputs; {} needed", describe(node), src.size(), attention.is_self ? "1 is" : "2 are");
  SHOAL_RETURN_IF_ERROR(check_same_dtype(node, src));
  SHOAL_ASSIGN_OR_RETURN(const Dim size, vector_size(node, src[0], attention.is_self ? 3 : 1));
  const SymbolicShape &queries = src.front().shape, &keys = src.back().shape;
  if (!attention.is_self) {
    SHOAL_ASSIGN_OR_RETURN(const Dim key_size, vector_size(node, src[1], 2));
    if (known_unequal(queries[1], keys[1]) || known_unequal(size, key_size)) {
      return invalid_argument(
          "{}: queries '{}' of shape {} and keys and values '{}' of shape {} do not fit: equal batches and half "
          "the width are needed",
          describe(node), src[0].name, queries.to_string(), src[1].name, keys.to_string());
    }
  }
  set_result(dst[0], src[0].dtype, SymbolicShape{queries[1] * Dim(attention.heads), queries[0], keys[0]});
  return {};
}

Status infer_values(const Node& node, SourceValues src, ResultValues dst) {
  const auto& attention = node.attributes.get<AttentionAttributes>();
  SHOAL_RETURN_IF_ERROR(check_same_dtype(node, src));
  SHOAL_ASSIGN_OR_RETURN(const Dim size, vector_size(node, src[0], attention.is_self ? 3 : 2));
  SHOAL_RETURN_IF_ERROR(check_rank(node, src[1], 3, 3));
  const SymbolicShape &values = src[0].shape, &weights = src[1].shape;
  const Dim queries = attention.is_self ? values[0] : weights[1];
  const SymbolicShape wanted{values[1] * Dim(attention.heads), queries, values[0]};
  SHOAL_RETURN_IF_ERROR(check_shape(node, "attention", src[1], wanted));
  set_result(dst[0], src[0].dtype, SymbolicShape{queries, values[1], size * Dim(attention.heads)});
  return {};
}

/// The vectors that are number `part` of `parts` side by side.
HeadVectors head_vectors(std::int64_t heads, const Shape& shape, int parts, int part) {
  HeadVectors vectors{.count = shape[1] * heads, .positions = shape[0], .size = shape[2] / (heads * parts)};
  vectors.first = part * vectors.size;
  vectors.head_stride = parts * vectors.size;
  vectors.position_stride = shape[1] * shape[2];
  return vectors;
}

Status compute_scores(const Node& node, Sources src, Results dst) {
  const auto& attention = node.attributes.get<AttentionAttributes>();
  const HeadVectors queries = queries_of(attention, src.front().shape), keys = keys_of(attention, src.back().shape);
  return dispatch<Floats>(node, src[0].dtype, [&]<typename T>() {
    const auto scale = static_cast<Compute<T>>(1 / std::sqrt(static_cast<double>(queries.size)));
    T* to = elements<T>(dst[0]);
    for (std::int64_t head = 0; head < queries.count; ++head, to += queries.positions * keys.positions) {
      const T* const query = elements<T>(src.front()) + queries.first + head * queries.head_stride;
      const T* const key = elements<T>(src.back()) + keys.first + head * keys.head_stride;
      multiply<T>(queries.positions, queries.size, keys.positions, scale, {query, queries.position_stride, 1},
                  {key, 1, keys.position_stride}, to, keys.positions);
    }
    return Status();
  });
}

Status compute_values(const Node& node, Sources src, Results dst) {
  const HeadVectors values = values_of(node.attributes.get<AttentionAttributes>(), src[0].shape);
  const std::int64_t queries = src[1].shape[1];
  return dispatch<Floats>(node, src[0].dtype, [&]<typename T>() {
    const T* weights = elements<T>(src[1]);
    for (std::int64_t head = 0; head < values.count; ++head, weights += queries * values.positions) {
      multiply<T>(queries, values.positions, values.size, Compute<T>{1}, {weights, values.positions, 1},
                  {elements<T>(src[0]) + values.first + head * values.head_stride, values.position_stride, 1},
                  elements<T>(dst[0]) + head * values.size, values.count * values.size);
    }
    return Status();
  });
}

}  // namespace

HeadVectors queries_of(const AttentionAttributes& attention, const Shape& first) {
  return head_vectors(attention.heads, first, attention.is_self ? 3 : 1, 0);
}
HeadVectors keys_of(const AttentionAttributes& attention, const Shape& last) {
  return head_vectors(attention.heads, last, attention.is_self ? 3 : 2, attention.is_self ? 1 : 0);
}
HeadVectors values_of(const AttentionAttributes& attention, const Shape& first) {
  return head_vectors(attention.heads, first, attention.is_self ? 3 : 2, attention.is_self ? 2 : 1);
}

namespace {

Work work_of_products(double results, std::int64_t depth, Sources src, Sources dst) {
  const double flops = 2 * results * static_cast<double>(depth);
  return {.operations = elements_of(src) + elements_of(dst) + flops, .flops = flops};
}

Work scores_work(const Node& node, Sources src, Sources dst) {
  const HeadVectors queries = queries_of(node.attributes.get<AttentionAttributes>(), src.front().shape);
  return work_of_products(elements_of(dst.first(1)), queries.size, src, dst);
}

Work values_work(const Node&, Sources src, Sources dst) {
  return work_of_products(elements_of(dst.first(1)), src[1].shape[2], src, dst);
}

}  // namespace

namespace ops {

const Operator kAttentionScores({
    .name = "AttentionScores",
    .inputs = {1, 2},
    .attributes = &kSchema<AttentionAttributes>,
    .infer = infer_scores,
    .constant_types = ConstantTypes::kAsData,
    .facts = layer_facts(rows_mixed, scores_work, Accuracy::kLost),
    .oracle = compute_scores,
    .formula = "queries, keys and values (length, batch, heads * 3 * size); or queries (length, batch, heads * size), keys and "
               "values (length, batch, heads * 2 * size): query . key / sqrt(size) as (batch * heads, queries, keys)",
    .source = "MXNet 1.9.1 src/operator/contrib/transformer.cc",
});

const Operator kAttentionValues({
    .name = "AttentionValues",
    .inputs = 2,
    .attributes = &kSchema<AttentionAttributes>,
    .infer = infer_values,
    .constant_types = ConstantTypes::kAsData,
    .facts = layer_facts(rows_mixed, values_work, Accuracy::kLost),
    .oracle = compute_values,
    .formula =
        "keys and values as in AttentionScores, attention (batch * heads, queries, keys): the sum of attention * value over "
        "the keys, as (queries, batch, heads * size)",
    .source = "MXNet 1.9.1 src/operator/contrib/transformer.cc",
});

}  // namespace ops

}  // namespace shoal::worker

// Products of matrices of which both are data: MatMul, Dot, attention, FullyConnected with computed weights. oneDNN reads them by
// strides, so transposed and interleaved matrices are not moved.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "shm/base/errors.hpp"
#include "worker/exec/cpu/compiler.hpp"
#include "worker/ops/attention.hpp"
#include "worker/ops/fully_connected.hpp"
#include "worker/ops/products.hpp"

namespace shoal::worker::cpu {

/// Matrices in the plain memory of a value, the last two axes of `dims`. `first` and `strides` count elements.
struct Compiler::Matrices {
  ValueId value = -1;
  dnnl::memory::dims dims, strides;
  std::int64_t first = 0;

  std::size_t extent_bytes() const {
    std::int64_t last = 0;
    for (std::size_t axis = 0; axis < dims.size(); ++axis) last += (dims[axis] - 1) * strides[axis];
    return static_cast<std::size_t>(last + 1) * sizeof(float);
  }
};

namespace {

/// The sizes of the axes before the last two, as seen among `rank` axes: broadcasting adds axes of 1 in front.
dnnl::memory::dims lead_of(const Shape& shape, int rank) {
  dnnl::memory::dims lead(static_cast<std::size_t>(rank - shape.rank()), 1);
  lead.insert(lead.end(), shape.begin(), shape.end() - 2);
  return lead;
}

std::int64_t product_of(const dnnl::memory::dims& dims) {
  return std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>());
}

/// Row-major strides of axes before matrices of `elements`.
dnnl::memory::dims strides_of(const dnnl::memory::dims& lead, std::int64_t elements) {
  dnnl::memory::dims strides(lead.size());
  for (std::size_t axis = lead.size(); axis-- > 0; elements *= lead[axis]) strides[axis] = elements;
  return strides;
}

}  // namespace

Compiler::Taken Compiler::multiply(const Node& node, const Matrices& a, const Matrices& b, const Matrices& result, float scale,
                                   ValueId bias) {
  if (scale == 0) return false;  // oneDNN may multiply NaN by it
  const auto desc_of = [](const Matrices& matrices) { return Desc(matrices.dims, Type::f32, matrices.strides); };
  const Desc left = desc_of(a), right = desc_of(b), made = desc_of(result);
  Desc bias_desc;
  if (bias >= 0) bias_desc = plain_desc({1, result.dims.back()});
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (scale != 1) attr.set_output_scales(0, {scale});
  const dnnl::matmul::desc operation =
      bias >= 0 ? dnnl::matmul::desc(left, right, bias_desc, made) : dnnl::matmul::desc(left, right, made);
  const dnnl::matmul::primitive_desc pd(operation, attr, engine(), /*allow_empty=*/true);
  if (!pd || !is_optimized(pd)) return false;

  std::vector<Argument> arguments;
  const auto read = [&](int kind, const Matrices& matrices, const Desc& desc) -> Status {
    SHOAL_ASSIGN_OR_RETURN(const Form form, plain_form(matrices.value));
    const std::size_t offset = static_cast<std::size_t>(matrices.first) * sizeof(float);
    arguments.push_back({kind, desc, offset == 0 ? form.buffer : plan_.add_part(form.buffer, offset, matrices.extent_bytes())});
    return {};
  };
  SHOAL_RETURN_IF_ERROR(read(DNNL_ARG_SRC, a, left));
  SHOAL_RETURN_IF_ERROR(read(DNNL_ARG_WEIGHTS, b, right));
  if (bias >= 0) {
    SHOAL_ASSIGN_OR_RETURN(const Form form, plain_form(bias));
    arguments.push_back({DNNL_ARG_BIAS, bias_desc, form.buffer});
  }
  const Form dst = new_form(plain_desc(value(result.value).shape));
  arguments.push_back({DNNL_ARG_DST, made, dst.buffer});
  add_step(describe(node), dnnl::matmul(pd), pd.scratchpad_desc(), std::move(arguments));
  add_form(result.value, dst);
  return true;
}

Compiler::Taken Compiler::mat_mul(const Node& node) {
  const auto& product = node.attributes.get<MatMulAttributes>();
  if (std::ranges::any_of(node.inputs, [this](ValueId id) { return value(id).shape.rank() < 2; })) return false;
  const int rank = value(node.outputs[0]).shape.rank();
  const std::int64_t matrices = product_of(lead_of(value(node.outputs[0]).shape, rank));
  const auto lead_of_value = [&](ValueId id) { return lead_of(value(id).shape, rank); };
  const bool broadcasts = std::ranges::any_of(node.inputs, [&](ValueId id) { return product_of(lead_of_value(id)) != matrices; });
  const auto matrices_of = [&](ValueId id, bool transposed) {
    const Shape& shape = value(id).shape;
    const std::int64_t rows = shape[shape.rank() - 2], columns = shape[shape.rank() - 1];
    Matrices seen{.value = id, .dims = lead_of_value(id)};
    if (!broadcasts) seen.dims.assign(matrices == 1 ? 0U : 1U, matrices);  // all axes are one
    seen.strides = strides_of(seen.dims, rows * columns);
    seen.dims.insert(seen.dims.end(), {transposed ? columns : rows, transposed ? rows : columns});
    seen.strides.insert(seen.strides.end(), {transposed ? 1 : columns, transposed ? columns : 1});
    return seen;
  };
  return multiply(node, matrices_of(node.inputs[0], product.transpose_a), matrices_of(node.inputs[1], product.transpose_b),
                  matrices_of(node.outputs[0], false), static_cast<float>(product.scale));
}

Compiler::Taken Compiler::dot(const Node& node) {
  const auto& product = node.attributes.get<DotAttributes>();
  if (!is_matrix_product(product, value(node.inputs[1]).shape)) return false;
  const DotExtents extents = dot_extents(product, value(node.inputs[0]).shape, value(node.inputs[1]).shape);
  const std::int64_t m = extents.rows, k = extents.depth, n = extents.columns;
  const auto matrix = [](ValueId id, std::int64_t rows, std::int64_t columns, bool transposed) {
    return transposed ? Matrices{id, {rows, columns}, {1, rows}} : Matrices{id, {rows, columns}, {columns, 1}};
  };
  return multiply(node, matrix(node.inputs[0], m, k, product.transpose_a), matrix(node.inputs[1], k, n, product.transpose_b),
                  matrix(node.outputs[0], m, n, false), 1);
}

Compiler::Taken Compiler::attention_scores(const Node& node) {
  const auto& attention = node.attributes.get<AttentionAttributes>();
  const HeadVectors q = queries_of(attention, value(node.inputs.front()).shape);
  const HeadVectors k = keys_of(attention, value(node.inputs.back()).shape);
  return multiply(node, {node.inputs.front(), {q.count, q.positions, q.size}, {q.head_stride, q.position_stride, 1}, q.first},
                  {node.inputs.back(), {k.count, k.size, k.positions}, {k.head_stride, 1, k.position_stride}, k.first},
                  {node.outputs[0], {q.count, q.positions, k.positions}, {q.positions * k.positions, k.positions, 1}},
                  static_cast<float>(1 / std::sqrt(static_cast<double>(q.size))));
}

Compiler::Taken Compiler::attention_values(const Node& node) {
  const HeadVectors v = values_of(node.attributes.get<AttentionAttributes>(), value(node.inputs[0]).shape);
  const std::int64_t queries = value(node.inputs[1]).shape[1];
  return multiply(node, {node.inputs[1], {v.count, queries, v.positions}, {queries * v.positions, v.positions, 1}},
                  {node.inputs[0], {v.count, v.positions, v.size}, {v.head_stride, v.position_stride, 1}, v.first},
                  {node.outputs[0], {v.count, queries, v.size}, {v.size, v.count * v.size, 1}}, 1);
}

Compiler::Taken Compiler::computed_weights(const Node& node) {
  const Shape& weights = value(node.inputs[1]).shape;
  const std::int64_t units = weights[0], depth = weights[1], rows = value(node.inputs[0]).shape.element_count() / depth;
  return multiply(node, {node.inputs[0], {rows, depth}, {depth, 1}}, {node.inputs[1], {depth, units}, {1, depth}},
                  {node.outputs[0], {rows, units}, {units, 1}}, 1, node.inputs.size() > 2 ? node.inputs[2] : ValueId{-1});
}

}  // namespace shoal::worker::cpu

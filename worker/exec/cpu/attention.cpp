// Attention as one step.
#include <cmath>

#include "shm/base/errors.hpp"
#include "worker/exec/cpu/compiler.hpp"
#include "worker/exec/cpu/kernels/attention.hpp"
#include "worker/exec/cpu/kernels/panel_product.hpp"
#include "worker/ops/products.hpp"

namespace shoal::worker::cpu {
namespace {

/// The vectors of a batch of matrices: the rows of the last two axes.
HeadVectors rows_of(const Shape& shape) {
  const std::int64_t positions = shape[shape.rank() - 2], size = shape[shape.rank() - 1];
  return {.count = shape.element_count() / (positions * size),
          .positions = positions,
          .size = size,
          .head_stride = positions * size,
          .position_stride = size};
}

/// Where the mask of each head begins, and how far the rows of one head are apart.
void place_masks(const Shape& mask, const Shape& scores, AttentionExtents& extents) {
  std::vector<std::int64_t> strides(static_cast<std::size_t>(scores.rank()), 0);  // 0: broadcast
  const int lead = scores.rank() - mask.rank();
  std::int64_t stride = 1;
  for (int axis = mask.rank() - 1; axis >= 0; --axis) {
    if (mask[axis] > 1) strides[static_cast<std::size_t>(lead + axis)] = stride;
    stride *= mask[axis];
  }
  extents.mask_stride = strides[strides.size() - 2];
  for (std::int64_t head = 0; head < extents.queries.count; ++head) {
    std::int64_t at = 0, rest = head;
    for (int axis = scores.rank() - 3; axis >= 0; --axis) {
      at += rest % scores[axis] * strides[static_cast<std::size_t>(axis)];
      rest /= scores[axis];
    }
    extents.masks.push_back(at);
  }
}

}  // namespace

std::map<NodeId, Attention> Compiler::attentions_of(const Graph& graph, const Readers& readers, const Options& options) {
  if (!options.fuse || !has_panel_products()) return {};
  std::map<NodeId, Attention> found = find_attentions(graph, readers);
  std::erase_if(found, [&](const auto& entry) {
    const ValueId lengths = entry.second.lengths;
    return lengths >= 0 && softmax_length_reader(graph.value(lengths).dtype) == nullptr;
  });
  return found;
}

void Compiler::absorb_attentions() {
  for (const auto& [last, found] : attentions_) {
    for (const NodeId id : found.inner) {
      is_absorbed_[static_cast<std::size_t>(id)] = true;
      emitted_at_[static_cast<std::size_t>(id)] = last;
    }
  }
}

// The nodes before the cut were lowered for each image by itself, and made what the nodes behind it read.
void Compiler::leave_attentions_across(NodeId cut) {
  std::erase_if(attentions_, [&](const auto& entry) {
    const auto& [last, found] = entry;
    if (last < cut || found.scores >= cut) return false;
    for (const NodeId id : found.inner) {
      is_absorbed_[static_cast<std::size_t>(id)] = false;
      emitted_at_[static_cast<std::size_t>(id)] = id;
    }
    return true;
  });
}

// The scores' own node made no step: the mask and the lengths may be computed after it.
Status Compiler::attention(const Node& last, const Attention& found) {
  const Node& first = node(found.scores);
  AttentionExtents extents;
  ValueId queries = first.inputs.front(), keys = first.inputs.back(), values = -1;
  if (const auto* const attributes = first.attributes.get_if<AttentionAttributes>()) {
    values = last.inputs[0];
    extents.queries = queries_of(*attributes, value(queries).shape);
    extents.keys = keys_of(*attributes, value(keys).shape);
    extents.values = values_of(*attributes, value(values).shape);
    const HeadVectors& v = extents.values;
    extents.result = {.count = v.count,
                      .positions = extents.queries.positions,
                      .size = v.size,
                      .head_stride = v.size,
                      .position_stride = v.count * v.size};
    extents.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(extents.queries.size)));
  } else {
    values = last.inputs[1];
    extents.queries = rows_of(value(queries).shape);
    extents.keys = rows_of(value(keys).shape);
    extents.values = rows_of(value(values).shape);
    extents.result = rows_of(value(last.outputs[0]).shape);
    extents.scale = static_cast<float>(first.attributes.get<MatMulAttributes>().scale);
  }
  if (found.mask >= 0) place_masks(value(found.mask).shape, value(first.outputs[0]).shape, extents);
  if (found.lengths >= 0) extents.read_length = softmax_length_reader(value(found.lengths).dtype);

  std::vector<BufferId> operands;
  for (const ValueId id : {queries, keys, values, found.mask, found.lengths}) {
    if (id < 0) {
      operands.push_back(kNoBuffer);
      continue;
    }
    SHOAL_ASSIGN_OR_RETURN(const Form form, plain_form(id));
    operands.push_back(form.buffer);
  }
  if (found.lengths >= 0) plan_.buffer(operands[4]).holds_bounds = true;
  const Form dst = new_form(plain_desc(value(last.outputs[0]).shape));
  operands.push_back(dst.buffer);
  operands.push_back(plan_.add_buffer(attention_scratch_bytes(extents, options_.threads)));
  const HeadVectors &q = extents.queries, &v = extents.values;
  const double flops = 2.0 * static_cast<double>(q.count * q.positions) * static_cast<double>(v.positions * (q.size + v.size));
  plan_.steps.push_back(
      make_loop_step(describe(last), "kernel", std::move(operands), attention_loop(extents, options_.threads), flops));
  add_form(last.outputs[0], dst);
  return {};
}

}  // namespace shoal::worker::cpu

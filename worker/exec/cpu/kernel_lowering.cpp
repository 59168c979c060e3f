// A node by a kernel of Shoal.
#include <algorithm>
#include <memory>
#include <utility>

#include "shm/base/errors.hpp"
#include "worker/exec/cpu/compiler.hpp"
#include "worker/exec/cpu/kernels/kernels.hpp"
#include "worker/exec/graph_plan.hpp"

namespace shoal::worker::cpu {
namespace {

/// Does it compute each element of the result from the input elements at the same position?
bool is_elementwise(const Graph& graph, const Node& node) {
  const Shape& shape = graph.value(node.outputs[0]).shape;
  return node.op->facts.is_elementwise == Fact::kYes &&
         std::ranges::all_of(node.inputs, [&](ValueId id) { return graph.value(id).shape == shape; });
}

/// The kernel for some sizes, with what it keeps.
struct MadeKernel {
  std::vector<TensorType> src, dst;
  Loop loop;                      ///< empty: the kernel does not take them
  std::size_t scratch_bytes = 0;  ///< if it wants some

  MadeKernel(const Kernel& kernel, const Node& node, std::span<const TensorView> src_views,
             std::span<const TensorView> dst_views) {
    bool is_empty = false;
    const auto describe_all = [&](std::span<const TensorView> views, std::vector<TensorType>& types) {
      for (const TensorView& view : views) {
        types.push_back({view.dtype, view.shape});
        is_empty |= view.element_count() == 0;
      }
    };
    describe_all(src_views, src);
    describe_all(dst_views, dst);
    if (is_empty) return;
    loop = kernel.make(node, src, dst);
    if (loop && kernel.scratch_bytes != nullptr) scratch_bytes = kernel.scratch_bytes(node, src, dst);
  }
};

/// The kernel for the sizes of one run, or nothing.
NodeRun run_of(const Kernel& kernel, const Node& node, std::span<const TensorView> src, std::span<const TensorView> dst) {
  MadeKernel made(kernel, node, src, dst);
  if (!made.loop) return {};
  const bool has_scratch = kernel.scratch_bytes != nullptr;
  auto scratch = std::make_shared<AlignedBytes>(AlignedBytes::allocate(made.scratch_bytes));
  std::vector<std::byte*> operands(src.size() + dst.size() + (has_scratch ? 1 : 0));
  return [&kernel, &node, loop = std::move(made.loop), types = std::move(made.src), operands = std::move(operands),
          scratch = std::move(scratch)](std::span<const TensorView> from, std::span<TensorView> to) mutable -> Status {
    auto next = operands.begin();
    for (const TensorView& view : from) *next++ = view.data;
    for (const TensorView& view : to) *next++ = view.data;
    if (next != operands.end()) *next = scratch->data.get();
    if (kernel.check != nullptr) SHOAL_RETURN_IF_ERROR(kernel.check(node, types, operands));
    loop(operands);
    return {};
  };
}

}  // namespace

NodeKernel Compiler::dynamic_kernel(const Node& node) const {
  const Kernel* const kernel = find_kernel(node.op);
  if (kernel == nullptr || !has_types(node, kernel->types)) return {};
  const auto bounds_of = [this](const std::vector<ValueId>& ids) {
    std::vector<TensorView> views;
    for (const ValueId id : ids) views.push_back({value(id).dtype, value(id).shape, nullptr});
    return views;
  };
  const MadeKernel largest(*kernel, node, bounds_of(node.inputs), bounds_of(node.outputs));
  if (!largest.loop) return {};  // attributes that it does not know
  return {.make = [kernel](const Node& of, std::span<const TensorView> src,
                           std::span<const TensorView> dst) { return run_of(*kernel, of, src, dst); },
          .kept_bytes = largest.scratch_bytes + largest.loop.kept_bytes};
}

// Elements at the same position have the same place in any layout: then the kernel works on the bytes in their order in memory.
Compiler::Taken Compiler::by_kernel(const Node& node) {
  const Kernel* const kernel = find_kernel(node.op);
  if (kernel == nullptr || !has_types(node, kernel->types)) return false;
  const auto has_empty = [this](const std::vector<ValueId>& ids) {
    return std::ranges::any_of(ids, [this](ValueId id) { return is_empty(id); });
  };
  if (has_empty(node.inputs) || has_empty(node.outputs)) return false;
  Desc layout;  // empty: all values are plain
  if (is_elementwise(graph_, node) && suits_onednn(node)) {
    SHOAL_ASSIGN_OR_RETURN(const Form first, first_form(node.inputs[0], Type::f32));
    if (!is_padded(first.desc)) layout = first.desc;
  }
  const auto describe_all = [&](const std::vector<ValueId>& ids) {
    std::vector<TensorType> types;
    for (const ValueId id : ids) {
      const Shape& shape = value(id).shape;
      types.push_back({value(id).dtype, layout == Desc() ? shape : Shape{shape.element_count()}});
    }
    return types;
  };
  const std::vector<TensorType> src_types = describe_all(node.inputs), dst_types = describe_all(node.outputs);
  Loop loop = kernel->make(node, src_types, dst_types);
  if (!loop) return false;

  std::vector<BufferId> operands;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId id = node.inputs[i];
    if (!node.op->facts.reads_elements_of(i)) {
      operands.push_back(kNoBuffer);
      continue;
    }
    SHOAL_ASSIGN_OR_RETURN(const Form form, layout == Desc() ? plain_form(id) : form_as(id, layout));
    operands.push_back(form.buffer);
  }
  mark_bounds(plan_, node, operands);
  for (const ValueId id : node.outputs) {
    if (!is_read(id)) {
      operands.push_back(kNoBuffer);
      continue;
    }
    const bool may_reuse = kernel->overwrites && id == node.outputs[0];
    const BufferId reused = may_reuse ? overwritten_by(id, node, std::span(operands).first(node.inputs.size())) : kNoBuffer;
    const BufferId buffer = reused != kNoBuffer ? reused : plan_.add_buffer(size_bytes_of(value(id)));
    operands.push_back(buffer);
    add_form(id, {buffer, !is_float(id) ? Desc() : layout == Desc() ? plain_desc(value(id).shape) : layout});
  }
  if (kernel->scratch_bytes != nullptr) operands.push_back(plan_.add_buffer(kernel->scratch_bytes(node, src_types, dst_types)));
  LoopCheck check;
  if (kernel->check != nullptr) {
    check = [kernel, node, src_types](std::span<std::byte* const> given) { return kernel->check(node, src_types, given); };
  }
  plan_.steps.push_back(make_loop_step(describe(node), "kernel", std::move(operands), std::move(loop), 0, std::move(check)));
  return true;
}

// The memory of an input that `to`, the first output of the node, may lie in; none if there is no such input.
BufferId Compiler::overwritten_by(ValueId to, const Node& node, std::span<const BufferId> inputs) const {
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const Value &from = value(node.inputs[i]), &result = value(to);
    if (inputs[i] == kNoBuffer || from.dtype != result.dtype || from.shape != result.shape ||
        !may_overwrite(node.inputs[i], inputs[i]))
      continue;
    const bool is_alone =
        std::ranges::count_if(inputs, [&](BufferId other) { return other != kNoBuffer && share_memory(other, inputs[i]); }) == 1;
    if (is_alone) return inputs[i];
  }
  return kNoBuffer;
}

}  // namespace shoal::worker::cpu

// Concatenation: free if the parts become ranges of the whole, else a primitive.
#include <algorithm>

#include "shm/base/errors.hpp"
#include "worker/exec/cpu/compiler.hpp"
#include "worker/exec/oracle_step.hpp"
#include "worker/ops/movement.hpp"

namespace shoal::worker::cpu {

Status Compiler::concat_in_place(const Node& node, const std::vector<Form>& parts, const Desc& desc) {
  const Form whole = new_form(desc);
  has_parts_.resize(plan_.buffers.size());
  has_parts_[static_cast<std::size_t>(whole.buffer)] = true;
  std::size_t offset = 0;
  for (const Form& form : parts) {
    put_into(whole.buffer, offset, form, describe(node));
    offset += form.desc.get_size();
  }
  add_form(node.outputs[0], whole);
  return {};
}

Compiler::Taken Compiler::concat(const Node& node) {
  const Shape& shape = value(node.outputs[0]).shape;
  const auto given = node.attributes.get<ConcatAttributes>().axis;
  const int axis = static_cast<int>(given < 0 ? given + shape.rank() : given);
  std::int64_t before = 1;
  for (int i = 0; i < axis; ++i) before *= shape[i];
  // Beyond this number oneDNN uses the values for other arguments.
  constexpr std::size_t kMostParts = DNNL_ARG_MULTIPLE_DST - DNNL_ARG_MULTIPLE_SRC;
  if (before > 1 && node.inputs.size() > kMostParts) return false;
  // The layout is blocked if some part is blocked and every part fills its blocks; otherwise it is plain.
  const Desc blocked = blocked_desc(dims_of(shape));
  bool fits_blocks = axis == 1 && blocked != Desc(), lies_blocked = false;
  for (const ValueId id : node.inputs) {
    fits_blocks = fits_blocks && value(id).shape[1] % channel_block() == 0;
    SHOAL_ASSIGN_OR_RETURN(const Form form, first_form(id));
    lies_blocked |= fits_blocks && form.desc == blocked_desc(dims_of(value(id).shape));
  }
  const bool in_blocks = fits_blocks && lies_blocked;
  const auto desc_of_part = [&](const Shape& part) { return in_blocks ? blocked_desc(dims_of(part)) : plain_desc(part); };
  std::vector<Form> parts;
  std::vector<Desc> descs;
  for (const ValueId id : node.inputs) {
    SHOAL_ASSIGN_OR_RETURN(const Form form, form_as(id, desc_of_part(value(id).shape)));
    parts.push_back(form);
    descs.push_back(form.desc);
  }
  const Desc desc = desc_of_part(shape);
  if (before == 1) {
    SHOAL_RETURN_IF_ERROR(concat_in_place(node, parts, desc));
    return true;
  }
  const dnnl::concat::primitive_desc pd(desc, axis, descs, engine(), attributes_for({}));
  const Form whole = new_form(desc);
  std::vector<Argument> arguments;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    arguments.push_back({DNNL_ARG_MULTIPLE_SRC + static_cast<int>(i), parts[i].desc, parts[i].buffer});
  }
  arguments.push_back({DNNL_ARG_DST, whole.desc, whole.buffer});
  add_step(describe(node), dnnl::concat(pd), pd.scratchpad_desc(), std::move(arguments));
  add_form(node.outputs[0], whole);
  return true;
}

}  // namespace shoal::worker::cpu

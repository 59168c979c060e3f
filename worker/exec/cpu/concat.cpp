// Concatenation: free if the parts become ranges of the whole, else a primitive. Channels last, a value of a chain of
// concatenations lies in the outermost one from the beginning, and only what is added is copied.
#include <algorithm>

#include "shm/base/errors.hpp"
#include "worker/exec/cpu/compiler.hpp"
#include "worker/exec/oracle_step.hpp"
#include "worker/graph/operators.hpp"
#include "worker/ops/movement.hpp"

namespace shoal::worker::cpu {
namespace {

constexpr std::int64_t kSmallRow = 64;  // elements of the result behind one another, up to which the kernel of Shoal is faster

/// The axis, counted from the front.
int axis_of(const Node& node, int rank) {
  const auto given = node.attributes.get<ConcatAttributes>().axis_of(rank);
  return static_cast<int>(given < 0 ? given + rank : given);
}

}  // namespace

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

// From the last node to the first, so that the outermost concatenation is known before those within it. A value that is in
// several concatenations lies in the last one.
void Compiler::find_places() {
  if (choices_.layout != kChannelsLast) return;
  for (auto node = graph_.nodes.rbegin(); node != graph_.nodes.rend(); ++node) {
    if (node->op != &ops::kConcat) continue;
    const int rank = value(node->outputs[0]).shape.rank();
    if (rank < 3 || rank > 5 || axis_of(*node, rank) != 1) continue;
    Place place = place_of(node->outputs[0]);
    for (const ValueId id : node->inputs) {
      if (type_of(id) == type_of(place.whole)) places_.try_emplace(id, place);
      place.first_channel += value(id).shape[1];
    }
  }
}

Compiler::Place Compiler::place_of(ValueId id) const {
  const auto found = places_.find(id);
  return found == places_.end() ? Place{id, 0} : found->second;
}

/// Channels of an outermost concatenation, whose buffer is made when it is first needed.
Compiler::Form Compiler::range_of_channels(ValueId id, const Place& place) {
  const Shape& shape = value(place.whole).shape;
  const auto [whole, is_new] = wholes_.try_emplace(place.whole, kNoBuffer);
  if (is_new) {
    whole->second = new_form(channels_last_desc(dims_of(shape), type_of(place.whole))).buffer;
    has_parts_.resize(plan_.buffers.size());
    has_parts_[static_cast<std::size_t>(whole->second)] = true;
  }
  const Desc desc = channel_range_desc(dims_of(value(id).shape), shape[1], type_of(place.whole));
  const std::size_t offset_bytes = static_cast<std::size_t>(place.first_channel) * element_bytes(desc);
  return {plan_.add_part(whole->second, offset_bytes, desc.get_size()), desc};
}

bool Compiler::lies_at(ValueId id, const Place& place) const {
  if (is_constant(id)) return false;
  const Form& form = forms_[static_cast<std::size_t>(id)].front();
  const Buffer& buffer = plan_.buffer(form.buffer);
  const auto whole = wholes_.find(place.whole);
  return has_gaps(form.desc) && whole != wholes_.end() && buffer.parent == whole->second &&
         buffer.offset_bytes == static_cast<std::size_t>(place.first_channel) * element_bytes(form.desc);
}

Status Compiler::concat_channels_last(const Node& node) {
  const Place place = place_of(node.outputs[0]);
  Place at = place;
  for (const ValueId id : node.inputs) {
    if (!lies_at(id, at)) {
      SHOAL_ASSIGN_OR_RETURN(const Form form, is_constant(id) ? plain_form(id) : forms(id).front());
      reorder_into(describe(node), form, range_of_channels(id, at));
    }
    at.first_channel += value(id).shape[1];
  }
  add_form(node.outputs[0], range_of_channels(node.outputs[0], place));
  return {};
}

Compiler::Taken Compiler::concat(const Node& node) {
  const Shape& shape = value(node.outputs[0]).shape;
  const int axis = axis_of(node, shape.rank());
  std::int64_t before = 1, behind = 1;
  for (int i = 0; i < axis; ++i) before *= shape[i];
  for (int i = axis + 1; i < shape.rank(); ++i) behind *= shape[i];
  // Beyond this number oneDNN uses the values for other arguments.
  constexpr std::size_t kMostParts = DNNL_ARG_MULTIPLE_DST - DNNL_ARG_MULTIPLE_SRC;
  if (before > 1 && node.inputs.size() > kMostParts) return false;
  // In a network with channels last the layout is that if it is some part's. Else it is blocked if some part is blocked and every
  // part fills its blocks; otherwise it is plain.
  const Type type = type_of(node.outputs[0]);
  const Desc blocked = blocked_desc(dims_of(shape), type);
  bool fits_blocks = axis == 1 && blocked != Desc(), lies_blocked = false, any_channels_last = false;
  for (const ValueId id : node.inputs) {
    fits_blocks = fits_blocks && value(id).shape[1] % channel_block() == 0;
    if (is_constant(id)) continue;
    const Desc& form = forms(id).front().desc;
    const dnnl::memory::dims dims = dims_of(value(id).shape);
    lies_blocked |= fits_blocks && form == blocked_desc(dims, form.data_type());
    any_channels_last |= lies_channels_last(form);
  }
  if (any_channels_last && choices_.layout == kChannelsLast && axis == 1 && behind > 1) {
    SHOAL_RETURN_IF_ERROR(concat_channels_last(node));
    return true;
  }
  const bool in_blocks = fits_blocks && lies_blocked;
  // oneDNN copies each piece of a row by itself, and small pieces slowly.
  if (type == Type::f32 && !in_blocks && before > 1 && shape[axis] * behind <= kSmallRow) return false;
  const auto desc_of_part = [&](const Shape& part) {
    return in_blocks ? blocked_desc(dims_of(part), type) : plain_desc(part, type);
  };
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

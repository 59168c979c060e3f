// The readers of a value, its forms, and when its buffer may be overwritten.
#include <algorithm>
#include <string_view>

#include "shm/base/errors.hpp"
#include "worker/exec/cpu/compiler.hpp"
#include "worker/exec/graph_plan.hpp"
#include "worker/exec/oracle_step.hpp"
#include "worker/graph/operators.hpp"
#include "worker/ops/arithmetic.hpp"

namespace shoal::worker::cpu {

void Compiler::find_families() {
  const std::size_t count = graph_.values.size();
  family_readers_.resize(count);
  family_is_output_.assign(count, false);
  is_absorbed_.assign(graph_.nodes.size(), false);
  for (std::size_t id = 0; id < count; ++id) roots_.push_back(static_cast<ValueId>(id));
  for (std::size_t index = 0; index < graph_.nodes.size(); ++index) {
    const Node& reader = graph_.nodes[index];
    emitted_at_.push_back(static_cast<NodeId>(index));
    // The outputs of these may become views of the input; AddN of one input is one.
    const bool is_view = reader.op->facts.is_view == Fact::kYes || (reader.op == &ops::kAddN && reader.inputs.size() == 1);
    for (const ValueId output : reader.outputs) {
      if (is_view) roots_[static_cast<std::size_t>(output)] = root_of(reader.inputs[0]);
    }
    for (const ValueId id : reader.inputs)
      family_readers_[static_cast<std::size_t>(root_of(id))].push_back(static_cast<NodeId>(index));
  }
  for (const GraphOutput& output : graph_.outputs) family_is_output_[static_cast<std::size_t>(root_of(output.value))] = true;
}

bool Compiler::is_float(ValueId id) const {
  const auto& v = value(id);
  return v.dtype == DType::kFloat32 && !v.expressions && v.shape.element_count() > 0 && v.shape.rank() > 0;
}

bool Compiler::is_dynamic(const Node& node) const {
  const auto depends_on_data = [this](ValueId id) { return value(id).expressions != nullptr; };
  return std::ranges::any_of(node.inputs, depends_on_data) || std::ranges::any_of(node.outputs, depends_on_data);
}

std::span<const Type> Compiler::types_of_products() const {
  static constexpr Type kTypes[] = {Type::bf16, Type::f32};
  return std::span(kTypes).subspan(precision_ == Precision::kBf16 ? 0 : 1);
}

bool Compiler::has_types(const Node& node, TypeSet types) const {
  const auto fits = [&](ValueId id) { return types.holds(value(id).dtype); };
  return std::ranges::all_of(node.inputs, fits) && std::ranges::all_of(node.outputs, fits);
}

bool Compiler::suits_onednn(const Node& node) const {
  const auto fits = [this](ValueId id) { return is_float(id); };
  return std::all_of(node.inputs.begin(), node.inputs.end(), fits) && std::all_of(node.outputs.begin(), node.outputs.end(), fits);
}

NodeId Compiler::sole_reader(ValueId id) const { return options_.fuse ? readers_.sole(id) : kNoNode; }

void Compiler::absorb(NodeId id) {
  absorbed_.push_back(id);
  is_absorbed_[static_cast<std::size_t>(id)] = true;
  emitted_at_[static_cast<std::size_t>(id)] = now_;
}

bool Compiler::is_dead_after_this(ValueId id) const {
  const auto root = static_cast<std::size_t>(root_of(id));
  if (family_is_output_[root]) return false;
  return std::all_of(family_readers_[root].begin(), family_readers_[root].end(),
                     [this](NodeId reader) { return emitted_at_[static_cast<std::size_t>(reader)] <= now_; });
}

bool Compiler::may_overwrite(ValueId id, BufferId buffer) const {
  const Buffer& memory = plan_.buffer(buffer);
  const bool has_parts = static_cast<std::size_t>(buffer) < has_parts_.size() && has_parts_[static_cast<std::size_t>(buffer)];
  return memory.home == Buffer::Home::kArena && memory.parent == kNoBuffer && !has_parts && is_dead_after_this(id);
}

bool Compiler::share_memory(BufferId a, BufferId b) const {
  const auto root = [this](BufferId id) {
    while (plan_.buffer(id).parent != kNoBuffer) id = plan_.buffer(id).parent;
    return id;
  };
  return root(a) == root(b);
}

void Compiler::put_into(BufferId whole, std::size_t offset_bytes, const Form& part, const std::string& name) {
  const std::size_t bytes = part.desc.get_size();
  Buffer& buffer = plan_.buffer(part.buffer);
  if (buffer.home == Buffer::Home::kArena && buffer.parent == kNoBuffer && buffer.bytes == bytes) {
    buffer.parent = whole;
    buffer.offset_bytes = offset_bytes;
  } else {
    plan_.steps.push_back(make_copy_step(name, part.buffer, plan_.add_part(whole, offset_bytes, bytes), bytes));
  }
}

void Compiler::add_form(ValueId id, Form form) {
  formed_.push_back(id);
  forms(id).push_back(std::move(form));
}

Compiler::Form Compiler::new_form(const Desc& desc) { return {plan_.add_buffer(desc.get_size()), desc}; }

Result<Compiler::Form> Compiler::first_form(ValueId id) {
  if (is_constant(id)) return plain_form(id);
  const Form form = forms(id).front();
  return has_gaps(form.desc) ? form_as(id, channels_last_desc(form.desc.dims(), form.desc.data_type())) : form;
}

Result<Compiler::Form> Compiler::first_form(ValueId id, Type type) {
  if (is_constant(id)) return plain_form(id, type);
  SHOAL_ASSIGN_OR_RETURN(const Form form, first_form(id));
  return form_as(id, as_type(form.desc, type));
}

Result<Compiler::Form> Compiler::plain_form(ValueId id, Type type) {
  if (is_float(id)) return form_as(id, plain_desc(value(id).shape, type));
  if (forms(id).empty()) {
    SHOAL_ASSIGN_OR_RETURN(const BufferId buffer, add_plain_constant(graph_, id, weights_, plan_));
    add_form(id, {buffer, Desc()});
  }
  return forms(id).front();
}

Result<Compiler::Form> Compiler::form_as(ValueId id, const Desc& desc) {
  for (const Form& form : forms(id)) {
    if (same_memory(form.desc, desc)) return Form{form.buffer, desc};
  }
  if (is_constant(id)) {
    SHOAL_ASSIGN_OR_RETURN(Form form, weights_form(chain_of(graph_, id), desc));
    add_form(id, form);
    return form;
  }
  Form form = reorder("reorder '" + value(id).name + "'", forms(id).front(), desc);
  add_form(id, form);
  return form;
}

Compiler::Form Compiler::reorder(const std::string& name, const Form& src, const Desc& desc) {
  const Form dst = new_form(desc);
  reorder_into(name, src, dst);
  return dst;
}

void Compiler::reorder_into(const std::string& name, const Form& src, const Form& dst) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::reorder::primitive_desc pd(engine(), src.desc, engine(), dst.desc, attr);
  add_step(name, dnnl::reorder(pd), pd.scratchpad_desc(),
           {{DNNL_ARG_FROM, src.desc, src.buffer}, {DNNL_ARG_TO, dst.desc, dst.buffer}});
}

void Compiler::add_step(const std::string& name, const dnnl::primitive& primitive, const Desc& scratchpad,
                        std::vector<Argument> arguments) {
  if (scratchpad.get_size() > 0) arguments.push_back({DNNL_ARG_SCRATCHPAD, scratchpad, plan_.add_buffer(scratchpad.get_size())});
  plan_.steps.push_back(make_onednn_step(name, primitive, std::move(arguments)));
}

}  // namespace shoal::worker::cpu

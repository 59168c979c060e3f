// Constants in the forms that primitives need: from the packed weights, or private to the plan if they lack a form.
#include <algorithm>
#include <cstring>

#include "shm/base/errors.hpp"
#include "worker/exec/cpu/compiler.hpp"

namespace shoal::worker::cpu {

namespace {

// In row-major order or in a layout of oneDNN's, in float32 or bf16.
Status write_form(const ConstantChain& chain, const WeightForm& form, std::span<std::byte> dst) {
  std::vector<float> scratch;
  const float* data = evaluate(chain, scratch);
  if (form == WeightForm{.dtype = DType::kFloat32}) {
    std::memcpy(dst.data(), data, dst.size());
    return {};
  }
  const auto count = static_cast<std::int64_t>(dst.size() / dtype_size_bytes(form.dtype));
  const Desc wanted = desc_of(form, plain_desc({count}));
  return pack(plain_desc(wanted.dims()), data, wanted, dst.data());
}

}  // namespace

Result<Desc> Compiler::packed_desc(int index, const Desc& plain) const {
  const WeightEntry& entry = weights_.entry(index);
  if (!is_form(entry.form)) return failed_precondition("packed weights '{}' have a layout that is none", entry.key);
  Desc desc = desc_of(entry.form, plain);
  SHOAL_RETURN_IF_ERROR(weights_.check_size(index, desc.get_size()));
  return desc;
}

Result<std::vector<Compiler::Packed>> Compiler::packed_forms(const std::string& key, const Desc& plain) const {
  std::vector<Packed> forms;
  for (const int index : weights_.forms_of(key)) {
    SHOAL_ASSIGN_OR_RETURN(Desc desc, packed_desc(index, plain));
    if (desc.dims() == plain.dims()) forms.push_back({index, std::move(desc)});
  }
  return forms;
}

Result<std::vector<Desc>> Compiler::packed_descs(const std::string& key, const Desc& plain, Type type) const {
  SHOAL_ASSIGN_OR_RETURN(std::vector<Packed> forms, packed_forms(key, plain));
  std::vector<Desc> descs;
  for (Packed& form : forms) {
    if (form.desc.data_type() == type) descs.push_back(std::move(form.desc));
  }
  return descs;
}

Result<Compiler::Form> Compiler::weights_form(const ConstantChain& chain, const Desc& wanted) {
  const std::string key = chain.key();
  const Desc plain = plain_desc(wanted.dims());
  // Compared as descriptors: their bytes contain unused fields.
  int index = -1;
  SHOAL_ASSIGN_OR_RETURN(const std::vector<Packed> packed, packed_forms(key, plain));
  for (const Packed& form : packed) {
    if (form.desc == wanted) index = form.index;
  }
  if (index < 0 && !weights_.is_sealed()) index = weights_.add(chain, form_of(wanted), wanted.get_size(), write_form);
  if (index >= 0) return Form{plan_.add_buffer(wanted.get_size(), Buffer::Home::kWeights, index), wanted};
  const auto readable = std::ranges::find_if_not(packed, is_opaque, &Packed::desc);
  if (readable == packed.end())
    return unimplemented("{}: its constants were not packed for these shapes; list them in `shapes`", describe(node(now_)));
  // When nodes run image by image, every image needs the same form.
  const auto is_wanted = [&](const Plan::Private& other) { return other.key == key && desc_of(other.form, plain) == wanted; };
  auto found = std::ranges::find_if(plan_.privates, is_wanted);
  if (found == plan_.privates.end()) {
    AlignedBytes memory = AlignedBytes::allocate(wanted.get_size());
    SHOAL_RETURN_IF_ERROR(pack(readable->desc, weights_.address(readable->index), wanted, memory.data.get()));
    found = plan_.privates.insert(found, {key, form_of(wanted), std::move(memory)});
  }
  const auto place = static_cast<int>(found - plan_.privates.begin());
  return Form{plan_.add_buffer(wanted.get_size(), Buffer::Home::kPrivate, place), wanted};
}

// The constants of a node that has nothing to compute for the shapes of now: for others it may have, and they find only what is
// packed.
Status Compiler::pack_for_other_shapes(const Node& node) {
  for (const ValueId id : node.inputs) {
    if (is_constant(id) && !is_empty(id)) SHOAL_RETURN_IF_ERROR(plain_form(id).status());
  }
  const NodeId norm_id = norms_[static_cast<std::size_t>(now_)];
  if (norm_id == kNoNode) return {};
  const Node& norm = this->node(norm_id);
  SHOAL_RETURN_IF_ERROR(weights_form(folded_weights(graph_, node, &norm), plain_desc(value(node.inputs[1]).shape)).status());
  const std::optional<ConstantChain> bias = folded_bias(graph_, node, &norm);
  return bias ? weights_form(*bias, plain_desc(value(norm.inputs[1]).shape)).status() : Status();
}

}  // namespace shoal::worker::cpu

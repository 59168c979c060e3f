// Constants in the forms that primitives need: from the packed weights, or private to the plan if they lack a form.
#include <algorithm>
#include <cstring>

#include "shm/base/errors.hpp"
#include "worker/exec/cpu/compiler.hpp"

namespace shoal::worker::cpu {

Compiler::PlainSource Compiler::source_of(ValueId id) const {
  return [constant = *value(id).constant](std::vector<float>& scratch) {
    const auto* bytes = constant.bytes.data();
    if (reinterpret_cast<std::uintptr_t>(bytes) % alignof(float) == 0) return reinterpret_cast<const float*>(bytes);
    scratch.resize(constant.bytes.size() / sizeof(float));
    std::memcpy(scratch.data(), bytes, scratch.size() * sizeof(float));
    return static_cast<const float*>(scratch.data());
  };
}

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

Result<Compiler::Form> Compiler::weights_form(const std::string& key, const Desc& plain, const Desc& wanted,
                                              const PlainSource& source) {
  // Compared as descriptors: their bytes contain unused fields.
  int index = -1;
  SHOAL_ASSIGN_OR_RETURN(const std::vector<Packed> packed, packed_forms(key, plain));
  for (const Packed& form : packed) {
    if (form.desc == wanted) index = form.index;
  }
  if (index < 0 && !weights_.is_sealed()) {
    index = weights_.add(key, form_of(wanted), wanted.get_size(), [plain, wanted, source](std::span<std::byte> dst) -> Status {
      std::vector<float> scratch;
      const float* data = source(scratch);
      if (plain != wanted) return pack(plain, data, wanted, dst.data());
      std::memcpy(dst.data(), data, dst.size());
      return {};
    });
  }
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

}  // namespace shoal::worker::cpu

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

Result<std::vector<Desc>> Compiler::packed_descs(const std::string& key, const Desc& plain) const {
  std::vector<Desc> descs;
  for (const int index : weights_.forms_of(key)) {
    SHOAL_ASSIGN_OR_RETURN(Desc desc, packed_desc(index, plain));
    descs.push_back(std::move(desc));
  }
  return descs;
}

Result<Compiler::Form> Compiler::weights_form(const std::string& key, const Desc& plain, const Desc& wanted,
                                              const PlainSource& source) {
  // Compared as descriptors: their bytes contain unused fields.
  int index = -1;
  const std::vector<int> packed = weights_.forms_of(key);
  SHOAL_ASSIGN_OR_RETURN(const std::vector<Desc> packed_as, packed_descs(key, plain));
  for (std::size_t i = 0; i < packed.size(); ++i) {
    if (packed_as[i] == wanted) index = packed[i];
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
  const auto readable = std::ranges::find_if_not(packed_as, is_opaque);
  if (readable == packed_as.end())
    return unimplemented("{}: its constants were not packed for these shapes; list them in `shapes`", describe(node(now_)));
  // When nodes run image by image, every image needs the same form.
  const auto is_wanted = [&](const Plan::Private& other) { return other.key == key && desc_of(other.form, plain) == wanted; };
  auto found = std::ranges::find_if(plan_.privates, is_wanted);
  if (found == plan_.privates.end()) {
    AlignedBytes memory = AlignedBytes::allocate(wanted.get_size());
    const int source_index = packed[static_cast<std::size_t>(readable - packed_as.begin())];
    SHOAL_RETURN_IF_ERROR(pack(*readable, weights_.address(source_index), wanted, memory.data.get()));
    found = plan_.privates.insert(found, {key, form_of(wanted), std::move(memory)});
  }
  const auto place = static_cast<int>(found - plan_.privates.begin());
  return Form{plan_.add_buffer(wanted.get_size(), Buffer::Home::kPrivate, place), wanted};
}

}  // namespace shoal::worker::cpu

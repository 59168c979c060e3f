// Constants in the forms that primitives want: from the packed weights, or private to the plan where those lack one.
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

std::vector<Desc> Compiler::packed_descs(const std::string& key, const Desc& plain) const {
  std::vector<Desc> descs;
  for (const int index : weights_.forms_of(key)) descs.push_back(desc_of(weights_.entry(index).form, plain));
  return descs;
}

Result<Compiler::Form> Compiler::weights_form(const std::string& key, const Desc& plain, const Desc& wanted,
                                              const PlainSource& source) {
  // Compared as descriptors: their bytes hold fields that mean nothing for this kind.
  int index = -1;
  for (const int packed : weights_.forms_of(key)) {
    if (desc_of(weights_.entry(packed).form, plain) == wanted) index = packed;
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
  const auto packed = weights_.forms_of(key);
  const auto readable =
      std::find_if(packed.begin(), packed.end(), [&](int form) { return !is_opaque(desc_of(weights_.entry(form).form, plain)); });
  if (readable == packed.end())
    return unimplemented("{}: its constants were not packed for these shapes; list them in `shapes`", describe(node(now_)));
  // Of what runs image by image every image asks for the same.
  const auto is_wanted = [&](const Plan::Private& other) { return other.key == key && desc_of(other.form, plain) == wanted; };
  auto found = std::ranges::find_if(plan_.privates, is_wanted);
  if (found == plan_.privates.end()) {
    AlignedBytes memory = AlignedBytes::allocate(wanted.get_size());
    SHOAL_RETURN_IF_ERROR(
        pack(desc_of(weights_.entry(*readable).form, plain), weights_.address(*readable), wanted, memory.data.get()));
    found = plan_.privates.insert(found, {key, form_of(wanted), std::move(memory)});
  }
  const auto place = static_cast<int>(found - plan_.privates.begin());
  return Form{plan_.add_buffer(wanted.get_size(), Buffer::Home::kPrivate, place), wanted};
}

}  // namespace shoal::worker::cpu

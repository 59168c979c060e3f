#include "shoal/model_info.hpp"

#include "shm/base/errors.hpp"
#include "shm/c/arguments.hpp"
#include "shm/c/call.hpp"

namespace shoal::c {
namespace {

const ModelInfo& info_of(const shoal_model_info* info) {
  static const ModelInfo none;
  return info ? *object_of(info) : none;
}

template <typename Member>
Result<const Member*> element_of(const std::vector<Member>& list, std::size_t index, const shoal_model_info* info,
                                 std::string_view what) {
  if (index < list.size()) return &list[index];
  return invalid_argument("model '{}' has no {} {}: it has {}", info_of(info).name, what, index, list.size());
}

Status describe_spec(const shoal_model_info* info, const std::vector<TensorSpec>& specs, std::size_t index, std::string_view what,
                     shoal_tensor_spec* place) {
  SHOAL_ASSIGN_OR_RETURN(const TensorSpec* const found, element_of(specs, index, info, what));
  shoal_tensor_spec spec{.name = found->name.c_str(),
                         .dtype = static_cast<shoal_dtype>(found->dtype),
                         .rank = found->shape.rank(),
                         .layout = found->layout.c_str()};
  for (int axis = 0; axis < found->shape.rank(); ++axis) {
    const auto i = static_cast<std::size_t>(axis);
    const std::int64_t size = found->shape[axis];
    const DimRange range = size >= 0 ? DimRange{size, size} : found->ranges.empty() ? DimRange() : found->ranges[i];
    spec.dims[i] = size;
    spec.lowest[i] = range.lowest;
    spec.highest[i] = range.highest;
  }
  return write_struct(spec, place, "SHOAL_TENSOR_SPEC_INIT");
}

}  // namespace
}  // namespace shoal::c

using namespace shoal::c;

const char* shoal_model_info_name(const shoal_model_info* info) { return info_of(info).name.c_str(); }
std::uint64_t shoal_model_info_version(const shoal_model_info* info) { return info ? info_of(info).version : 0; }
const char* shoal_model_info_precision(const shoal_model_info* info) { return info ? info_of(info).precision.c_str() : ""; }
std::size_t shoal_model_info_input_count(const shoal_model_info* info) { return info_of(info).inputs.size(); }
std::size_t shoal_model_info_output_count(const shoal_model_info* info) { return info_of(info).outputs.size(); }
std::size_t shoal_model_info_state_count(const shoal_model_info* info) { return info_of(info).state.size(); }
std::size_t shoal_model_info_label_count(const shoal_model_info* info) { return info_of(info).labels.size(); }

shoal_status* shoal_model_info_input(const shoal_model_info* info, std::size_t index, shoal_tensor_spec* spec) {
  SHOAL_C_NEEDS(info);
  SHOAL_C_NEEDS(spec);
  return call([&] { return describe_spec(info, info_of(info).inputs, index, "input", spec); });
}

shoal_status* shoal_model_info_output(const shoal_model_info* info, std::size_t index, shoal_tensor_spec* spec) {
  SHOAL_C_NEEDS(info);
  SHOAL_C_NEEDS(spec);
  return call([&] { return describe_spec(info, info_of(info).outputs, index, "output", spec); });
}

shoal_status* shoal_model_info_state(const shoal_model_info* info, std::size_t index, shoal_state_pair* pair) {
  SHOAL_C_NEEDS(info);
  SHOAL_C_NEEDS(pair);
  return call([&]() -> shoal::Status {
    SHOAL_ASSIGN_OR_RETURN(const shoal::StatePair* const found, element_of(info_of(info).state, index, info, "state"));
    const shoal_state_pair value{.output = found->out.c_str(), .input = found->in.c_str()};
    return write_struct(value, pair, "SHOAL_STATE_PAIR_INIT");
  });
}

shoal_status* shoal_model_info_preprocess(const shoal_model_info* info, shoal_preprocess* preprocess) {
  SHOAL_C_NEEDS(info);
  SHOAL_C_NEEDS(preprocess);
  return call([&]() -> shoal::Status {
    const auto& found = info_of(info).preprocess;
    if (!found) return shoal::not_found("model '{}' has no [preprocess] in its model.toml", info_of(info).name);
    const shoal_preprocess value{.resize = found->resize,
                                 .crop_height = found->crop_height,
                                 .crop_width = found->crop_width,
                                 .order = found->order.c_str(),
                                 .channel_count = std::min(found->mean.size(), found->scale.size()),
                                 .mean = found->mean.data(),
                                 .scale = found->scale.data(),
                                 .letterbox = found->letterbox,
                                 .border = found->border};
    return write_struct(value, preprocess, "SHOAL_PREPROCESS_INIT");
  });
}

const char* shoal_model_info_label(const shoal_model_info* info, std::size_t index) {
  return index < info_of(info).labels.size() ? info_of(info).labels[index].c_str() : "";
}
void shoal_model_info_free(shoal_model_info* info) { free_handle(info); }

#include "shoal/data_desc.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "shm/base/errors.hpp"
#include "shm/tensor/spec.hpp"

namespace shoal {
namespace {

DimRange range_of(const DataDesc& descriptor, int axis) {
  const auto i = static_cast<std::size_t>(axis);
  return i < descriptor.ranges.size() ? descriptor.ranges[i] : DimRange();
}

/// Whether the model takes every size that `given` allows. An open dimension without a range says nothing.
bool allows(const DataDesc& model, const DataDesc& given, int axis) {
  const DimRange wanted = range_of(model, axis), range = range_of(given, axis);
  if (given.shape[axis] >= 0)
    return model.shape[axis] == given.shape[axis] || (model.shape[axis] < 0 && wanted.contains(given.shape[axis]));
  return model.shape[axis] < 0 && (range == DimRange() || (wanted.contains(range.lowest) && wanted.contains(range.highest)));
}

/// Why `given` does not fit; nothing if it does.
std::optional<std::string> difference(const DataDesc& model, const DataDesc& given) {
  if (given.dtype != model.dtype) return "the types differ";
  const Shape& shape = given.shape.is_known() ? given.shape : model.shape;
  if (!given.layout.empty() && shape.is_known() && given.layout.size() != shape.dims().size())
    return "the layout needs one letter per dimension";
  if (!given.layout.empty() && !model.layout.empty() && given.layout != model.layout) return "the layouts differ";
  if (!given.shape.is_known() || !model.shape.is_known()) return {};
  if (given.shape.rank() != model.shape.rank()) return "the numbers of dimensions differ";
  for (int axis = 0; axis < model.shape.rank(); ++axis) {
    if (!allows(model, given, axis)) return format("dimension {} differs", axis);
  }
  return {};
}

/// The model's descriptor, with what `given`, which fits it, says more closely.
DataDesc narrowed(DataDesc model, const DataDesc& given) {
  if (model.layout.empty()) model.layout = given.layout;
  if (!given.shape.is_known()) return model;
  if (!model.shape.is_known()) {
    model.shape = given.shape;
    model.ranges = given.ranges;
    return model;
  }
  for (int axis = 0; axis < model.shape.rank(); ++axis) {
    if (model.shape[axis] >= 0) continue;
    model.shape[axis] = given.shape[axis];
    if (given.shape[axis] >= 0 || range_of(given, axis) == DimRange()) continue;
    model.ranges.resize(model.shape.dims().size());
    model.ranges[static_cast<std::size_t>(axis)] = range_of(given, axis);
  }
  return model;
}

}  // namespace

std::string descriptor_text(const DataDesc& descriptor) {
  return format("{} {}{}{}", dtype_name(descriptor.dtype), shape_text(descriptor), descriptor.layout.empty() ? "" : " ",
                descriptor.layout);
}

Result<std::vector<DataDesc>> match_descriptors(std::string_view where, std::string_view kind, std::span<const DataDesc> model,
                                                std::span<const DataDesc> given) {
  std::vector<DataDesc> matched(model.begin(), model.end());
  for (const DataDesc& expected : given) {
    const auto found = std::ranges::find(model, expected.name, &DataDesc::name);
    if (found == model.end())
      return invalid_argument("{}: there is no {} '{}' (it has: {})", where, kind, expected.name, names_of(model));
    if (const auto why = difference(*found, expected)) {
      return invalid_argument("{}: {} '{}' is {}, but the program expects {}: {}", where, kind, expected.name,
                              descriptor_text(*found), descriptor_text(expected), *why);
    }
    DataDesc& place = matched[static_cast<std::size_t>(found - model.begin())];
    place = narrowed(std::move(place), expected);
  }
  return matched;
}

}  // namespace shoal

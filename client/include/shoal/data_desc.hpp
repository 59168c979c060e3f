// DataDesc: the name, type, shape and layout of what goes into a model and comes out of it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/tensor.hpp"

namespace shoal {

/// A descriptor, as MXNet calls it: {"data", DType::kFloat32, {-1, 3, 224, 224}, {}, "NCHW"}. -1 is an open dimension. Those of a
/// model are in ModelInfo::inputs and ModelInfo::outputs.
using DataDesc = TensorSpec;

/// "float32 ?x3x224x224 NCHW"; ranges are written as in model.toml.
std::string descriptor_text(const DataDesc& descriptor);

/// The dimension that a letter of the layout names; -1 if there is none, or no layout.
constexpr int axis_of(const DataDesc& descriptor, char letter) {
  const std::size_t axis = descriptor.layout.find(letter);
  return axis == std::string::npos ? -1 : static_cast<int>(axis);
}

/// Checks the descriptors that a program expects against those of a model.
///   where   names the model in errors
///   kind    "input" or "output"
///   model   as the model describes itself
///   given   some of them, in any order. An open dimension without a range, Shape::any() and an empty layout say nothing
///   Returns  all of the model's, in its order; with the shape, ranges and layout of `given` where those say more
///   Errors   kInvalidArgument: names the model, the tensor, and what is expected and given. A descriptor must not allow a size
///            that the model does not take
Result<std::vector<DataDesc>> match_descriptors(std::string_view where, std::string_view kind, std::span<const DataDesc> model,
                                                std::span<const DataDesc> given);

}  // namespace shoal

#include "tools/shoal/bench/inputs.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <random>
#include <set>

#include "shm/base/errors.hpp"
#include "shm/tensor/spec.hpp"
#include "shoal/numbers.hpp"

namespace shoal::tool {
namespace {

Result<Shape> parse_shape(std::string_view text, const std::string& argument) {
  std::vector<std::int64_t> dims;
  while (text != "scalar") {
    std::int64_t dim = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), dim);
    const auto used = static_cast<std::size_t>(end - text.data());
    if (error != std::errc() || dim < 0 || (used < text.size() && text[used] != 'x'))
      return invalid_argument("--shape {}: write NAME=SIZExSIZE..., such as data=1x3x224x224, or NAME=scalar", argument);
    dims.push_back(dim);
    if (used == text.size()) break;
    text.remove_prefix(used + 1);
  }
  auto shape = Shape::make(dims);
  return shape.ok() ? std::move(shape) : shape.status().with_context("--shape " + argument);
}

Status fill(Tensor& tensor, const std::string& name, std::mt19937_64& random) {
  const DType dtype = tensor.dtype();
  const bool is_fraction =
      dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  std::vector<float> values(static_cast<std::size_t>(tensor.shape().element_count()));
  for (float& value : values) {
    const float number = static_cast<float>(random() >> 40) / (1 << 24);
    value = is_fraction ? number : number < 0.5f ? 0.0f : 1.0f;
  }
  return Numbers(values).copy_to(tensor.view(), name);
}

Shape shape_of(const TensorSpec& input, std::span<const TensorSpec> shapes) {
  const auto given = std::ranges::find(shapes, input.name, &TensorSpec::name);
  if (given != shapes.end()) return given->shape;
  Shape shape = input.shape.is_known() ? input.shape : Shape{4};
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const auto index = static_cast<std::size_t>(axis);
    const std::int64_t lowest = index < input.ranges.size() ? input.ranges[index].lowest : 0;
    if (shape[axis] < 0) shape[axis] = std::max<std::int64_t>(lowest, 1);
  }
  return shape;
}

}  // namespace

Result<std::vector<TensorSpec>> parse_shapes(std::span<const std::string> arguments) {
  std::vector<TensorSpec> shapes;
  for (const std::string& argument : arguments) {
    const std::size_t equals = argument.find('=');
    if (equals == std::string::npos || equals == 0)
      return invalid_argument("--shape {}: write NAME=SIZExSIZE..., such as data=1x3x224x224", argument);
    SHOAL_ASSIGN_OR_RETURN(const Shape shape, parse_shape(std::string_view(argument).substr(equals + 1), argument));
    shapes.push_back({.name = argument.substr(0, equals), .shape = shape});
  }
  return shapes;
}

Result<Tensors> make_inputs(const Client& client, const ModelInfo& info, const Tensors& files, std::span<const TensorSpec> shapes,
                            std::uint64_t seed) {
  std::set<std::string> names;
  for (const NamedTensor& file : files) names.insert(file.name);
  for (const TensorSpec& shape : shapes) names.insert(shape.name);
  SHOAL_RETURN_IF_ERROR(check_input_names(format("model '{}'", info.name), info.inputs, {}, names));
  std::mt19937_64 random(seed);
  Tensors inputs;
  for (const TensorSpec& input : info.inputs) {
    const auto file = std::ranges::find(files, input.name, &NamedTensor::name);
    const bool is_state = std::ranges::count(info.state, input.name, &StatePair::in) > 0;
    if (is_state && file == files.end()) continue;  // zeros
    const DType dtype = file == files.end() ? input.dtype : file->tensor.dtype();
    const Shape shape = file == files.end() ? shape_of(input, shapes) : file->tensor.shape();
    SHOAL_ASSIGN_OR_RETURN(Tensor tensor, client.loan(dtype, shape));
    if (file == files.end()) {
      SHOAL_RETURN_IF_ERROR(fill(tensor, input.name, random));
    } else if (tensor.size_bytes() > 0) {
      std::memcpy(tensor.view().data, file->tensor.view().data, tensor.size_bytes());
    }
    inputs.push_back({input.name, std::move(tensor)});
  }
  return inputs;
}

}  // namespace shoal::tool

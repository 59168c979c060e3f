#include "shm/c/arguments.hpp"

namespace shoal::c {
namespace {

constexpr std::size_t kLongestStruct = 4096;  // a larger size is a number that nobody has initialized

}  // namespace

Status check_array(const void* first, std::size_t count, std::string_view name) {
  if (!first && count > 0) return invalid_argument("{} is NULL, and their number is {}", name, count);
  if (count > kMostElements)
    return invalid_argument("{}: their number is {}, and at most {} are allowed", name, count, kMostElements);
  return {};
}

Status check_struct_size(std::size_t size, std::size_t first, std::string_view macro) {
  if (size >= first && size <= kLongestStruct) return {};
  return invalid_argument("a struct_size is {}, and not {}: initialize the struct with {}", size, first, macro);
}

Status check_unknown_members(std::span<const std::byte> bytes, std::string_view macro) {
  if (std::ranges::count(bytes, std::byte{0}) == std::ssize(bytes)) return {};
  return invalid_argument("{}: a member is set that this library does not know: it is older than the program", macro);
}

Result<Shape> shape_of(const std::int64_t* dims, std::size_t rank) {
  if (rank > kMaxRank) return invalid_argument("rank is {}: a shape has at most {} dimensions", rank, kMaxRank);
  if (!dims && rank > 0) return invalid_argument("dims is NULL, and rank is {}", rank);
  return Shape(std::span(dims, rank));
}

DType dtype_of(shoal_dtype dtype) {
  const bool is_known = dtype > 0 && dtype <= static_cast<shoal_dtype>(DType::kBool);
  return is_known ? static_cast<DType>(dtype) : DType::kInvalid;
}

Result<Tensors> tensors_of(const shoal_named_tensor* inputs, std::size_t count, const ModelInfo* info) {
  SHOAL_RETURN_IF_ERROR(check_array(inputs, count, "inputs"));
  Tensors tensors;
  tensors.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto& [name, tensor] = inputs[i];
    if (!tensor) return invalid_argument("inputs[{}].tensor is NULL", i);
    if (!name && !info) return invalid_argument("inputs[{}].name is NULL", i);
    if (!name && i >= info->inputs.size())
      return invalid_argument("inputs[{}].name is NULL, and model '{}' has {} inputs", i, info->name, info->inputs.size());
    tensors.push_back({name ? std::string(name) : info->inputs[i].name, object_of(tensor)});
  }
  return tensors;
}

Result<std::int8_t> priority_of(std::int64_t priority) {
  using Limits = std::numeric_limits<std::int8_t>;
  if (priority < Limits::min() || priority > Limits::max())
    return invalid_argument("priority {} is not in -128 to 127", priority);
  return static_cast<std::int8_t>(priority);
}

Result<SubmitOptions> submit_options_of(const shoal_submit_options* options) {
  SHOAL_ASSIGN_OR_RETURN(const shoal_submit_options read, read_struct(options, "SHOAL_SUBMIT_OPTIONS_INIT"));
  SHOAL_ASSIGN_OR_RETURN(const std::int8_t priority, priority_of(read.priority));
  return SubmitOptions{
      .timeout = std::chrono::nanoseconds(read.timeout_ns), .priority = priority, .version = read.version, .flow = read.flow};
}

Result<std::vector<TensorSpec>> descriptors_of(const shoal_data_desc* shapes, std::size_t count, std::string_view what) {
  SHOAL_RETURN_IF_ERROR(check_array(shapes, count, what));
  std::vector<TensorSpec> specs;
  for (std::size_t i = 0; i < count; ++i) {
    const shoal_data_desc& given = shapes[i];
    if (!given.name) return invalid_argument("{}[{}].name is NULL", what, i);
    if (given.rank < 0 || given.rank > kMaxRank)
      return invalid_argument("{}[{}] ('{}'): rank {} is not in 0 to {}", what, i, given.name, given.rank, kMaxRank);
    const DType dtype = given.dtype == 0 ? DType::kFloat32 : dtype_of(given.dtype);
    if (dtype == DType::kInvalid) return invalid_argument("{}[{}] ('{}'): {} is no dtype", what, i, given.name, given.dtype);
    const std::span dims(given.dims, static_cast<std::size_t>(given.rank));
    if (std::ranges::any_of(dims, [](std::int64_t dim) { return dim < -1; }))
      return invalid_argument("{}[{}] ('{}'): a size is below -1, which means open", what, i, given.name);
    specs.push_back({.name = given.name, .dtype = dtype, .shape = Shape(dims), .layout = text_or_empty(given.layout)});
  }
  return specs;
}

Result<int> number_of(std::string_view what, std::int64_t number, int missing, int lowest, int highest) {
  if (number == 0) return missing;
  if (number < lowest || number > highest)
    return invalid_argument("{} is {}, and must be {} to {}", what, number, lowest, highest);
  return static_cast<int>(number);
}

}  // namespace shoal::c

#include "client/predict/src/c_arguments.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <limits>

#include "shm/base/errors.hpp"
#include "shm/base/shortened.hpp"
#include "worker/import/mxnet/mxnet_types.hpp"

namespace shoal::predict {
namespace {

constexpr std::size_t kNameBytes = 100;  // of a name in a message
constexpr std::int64_t kMostElements = std::numeric_limits<std::uint32_t>::max();

enum Device : int { kCpu = 1, kGpu = 2, kPinnedCpu = 3, kSharedCpu = 5 };

Result<std::string> name_at(const char* argument, const char* const* names, std::uint32_t i) {
  SHOAL_RETURN_IF_ERROR(check_pointer(argument, names));
  if (names[i] == nullptr) return invalid_argument("{}[{}] is NULL", argument, i);
  return std::string(names[i]);
}

Result<Shape> shape_at(const ShapeArguments& arguments, std::uint32_t i, const std::string& name) {
  SHOAL_RETURN_IF_ERROR(check_pointer("input_shape_indptr", arguments.indptr));
  const std::uint32_t begin = arguments.indptr[i], end = arguments.indptr[i + 1];
  if (end <= begin) {
    return invalid_argument("input {} has no shape: input_shape_indptr[{}] is {} and input_shape_indptr[{}] is {}",
                            in_quotes(name), i, begin, i + 1, end);
  }
  const std::uint32_t rank = end - begin;
  if (rank > kMaxRank) {
    return invalid_argument("input {} has {} dimensions by input_shape_indptr[{}]; at most {} are supported", in_quotes(name),
                            rank, i + 1, kMaxRank);
  }
  SHOAL_RETURN_IF_ERROR(check_pointer("input_shape_data", arguments.data));
  std::array<std::int64_t, kMaxRank> dims{};
  for (std::uint32_t axis = 0; axis < rank; ++axis) {
    dims[axis] = arguments.data[begin + axis];
    if (dims[axis] == 0) return invalid_argument("dimension {} of input {} is 0: its size must be given", axis, in_quotes(name));
  }
  const Shape shape(std::span<const std::int64_t>(dims).first(rank));
  if (const std::int64_t count = shape.element_count(); count >= 0 && count <= kMostElements) return shape;
  return invalid_argument("input {} of shape {} is too large: MXPredSetInput() can set {} elements", in_quotes(name),
                          shape.to_string(), kMostElements);
}

}  // namespace

std::string in_quotes(std::string_view name) { return "'" + shortened(name, kNameBytes) + "'"; }

Status check_pointer(const char* name, const void* pointer) {
  if (pointer != nullptr) return {};
  return invalid_argument("{} is NULL", name);
}

Result<std::vector<TensorSpec>> shapes_of(const ShapeArguments& arguments) {
  std::vector<TensorSpec> inputs;
  for (std::uint32_t i = 0; i < arguments.count; ++i) {
    SHOAL_ASSIGN_OR_RETURN(std::string name, name_at("input_keys", arguments.keys, i));
    if (std::ranges::count(inputs, name, &TensorSpec::name) > 0)
      return invalid_argument("input_keys names {} twice", in_quotes(name));
    SHOAL_ASSIGN_OR_RETURN(const Shape shape, shape_at(arguments, i, name));
    inputs.push_back({std::move(name), DType::kFloat32, shape});
  }
  return inputs;
}

Result<InputTypes> types_of(const TypeArguments& arguments) {
  InputTypes types;
  for (std::uint32_t i = 0; i < arguments.count; ++i) {
    SHOAL_ASSIGN_OR_RETURN(std::string name, name_at("provided_arg_dtype_names", arguments.names, i));
    SHOAL_RETURN_IF_ERROR(check_pointer("provided_arg_dtypes", arguments.flags));
    const auto dtype = worker::dtype_of_flag(arguments.flags[i]);
    if (!dtype)
      return invalid_argument("provided_arg_dtypes has {} for {}, which is no type", arguments.flags[i], in_quotes(name));
    types[std::move(name)] = *dtype;
  }
  return types;
}

Result<std::vector<std::string>> outputs_of(const OutputArguments& arguments) {
  std::vector<std::string> outputs;
  for (std::uint32_t i = 0; i < arguments.count; ++i) {
    SHOAL_ASSIGN_OR_RETURN(const std::string name, name_at("output_keys", arguments.keys, i));
    outputs.push_back(name + "_output");
  }
  return outputs;
}

Result<std::span<const std::byte>> bytes_of(const char* name, const void* bytes, int size) {
  SHOAL_RETURN_IF_ERROR(check_pointer(name, bytes));
  if (size < 0) return invalid_argument("{} has {} bytes", name, size);
  return std::span(static_cast<const std::byte*>(bytes), static_cast<std::size_t>(size));
}

Status check_device(int type) {
  if (type == kCpu || type == kPinnedCpu || type == kSharedCpu) return {};
  if (type != kGpu) return invalid_argument("dev_type is {}: 1 is the CPU, 2 a GPU", type);
  static std::atomic<bool> has_warned{false};
  if (!has_warned.exchange(true)) std::fputs("libshoal_predict: dev_type 2 is a GPU; Shoal runs the model on the CPU\n", stderr);
  return {};
}

int flag_of(DType dtype) {
  for (int flag = 0; const auto known = worker::dtype_of_flag(flag); ++flag) {
    if (known == dtype) return flag;
  }
  return -1;
}

}  // namespace shoal::predict

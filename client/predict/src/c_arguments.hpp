// What C programs pass, checked and in types of C++.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/result.hpp"
#include "shoal/tensor.hpp"

namespace shoal::predict {

/// Element types by the names of inputs.
using InputTypes = std::map<std::string, DType, std::less<>>;

/// The arguments of C functions that say which inputs have which shapes.
struct ShapeArguments {
  std::uint32_t count;
  const char* const* keys;
  const std::uint32_t* indptr;
  const std::uint32_t* data;
};

/// Those that say which arguments of the symbol have which types.
struct TypeArguments {
  std::uint32_t count = 0;
  const char* const* names = nullptr;
  const int* flags = nullptr;
};
/// Those that say which nodes give the outputs.
struct OutputArguments {
  std::uint32_t count = 0;
  const char* const* keys = nullptr;
};

/// The inputs as float32.
///   Errors  kInvalidArgument: a pointer that is NULL, an input that is named twice, whose shape has no size, too many, a 0, or
///           more elements than 32 bits count
Result<std::vector<TensorSpec>> shapes_of(const ShapeArguments& arguments);

/// Errors: kInvalidArgument: a pointer that is NULL, a number that is no type.
Result<InputTypes> types_of(const TypeArguments& arguments);

/// The names of these nodes' outputs. Errors: kInvalidArgument: a pointer that is NULL.
Result<std::vector<std::string>> outputs_of(const OutputArguments& arguments);

/// Bytes that a program owns. `name` is that of the argument.
Result<std::span<const std::byte>> bytes_of(const char* name, const void* bytes, int size);

/// Takes every device that a program may name, and warns once in the process that a GPU is none.
///   Errors  kInvalidArgument: a number that is no device
Status check_device(int type);

/// MXNet's number of the type.
int flag_of(DType dtype);

/// `pointer`, an argument of that name. Errors: kInvalidArgument: it is NULL.
Status check_pointer(const char* name, const void* pointer);

/// A name of a program's in a message.
std::string in_quotes(std::string_view name);

}  // namespace shoal::predict

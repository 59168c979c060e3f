// What C programs pass, checked and in types of C++.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shm/base/errors.hpp"
#include "shm/c/handles.hpp"
#include "shoal/model_info.hpp"
#include "shoal/outcome.hpp"
#include "shoal/tensor.hpp"

namespace shoal::c {

/// Errors: kInvalidArgument: dims is null, too many dimensions.
Result<Shape> shape_of(const std::int64_t* dims, std::size_t rank);
/// A DType, or kInvalid for a number that is none.
DType dtype_of(shoal_dtype dtype);

/// The tensors of a request. A name that is null is that of the model's input at this place; without `info`, it is an error.
///   Errors  kInvalidArgument: a pointer is null
Result<Tensors> tensors_of(const shoal_named_tensor* inputs, std::size_t count, const ModelInfo* info);
/// Errors: kInvalidArgument: struct_size, a priority out of range.
Result<SubmitOptions> submit_options_of(const shoal_submit_options* options);
Result<std::int8_t> priority_of(std::int64_t priority);
/// The descriptors that a program gives; a size of -1 is open.
///   what    names the argument in errors
///   Errors  kInvalidArgument: a pointer that is null, a rank that is none, a size below -1
Result<std::vector<TensorSpec>> descriptors_of(const shoal_data_desc* shapes, std::size_t count, std::string_view what);
/// A whole number from `lowest` to `highest`; `missing` instead of 0.
Result<int> number_of(std::string_view what, std::int64_t number, int missing, int lowest,
                      int highest = std::numeric_limits<int>::max());
/// Null is empty.
inline std::string text_or_empty(const char* text) { return text ? text : ""; }

/// The most members of any array that a program passes: more are a number that nobody has initialized.
inline constexpr std::size_t kMostElements = 65536;
/// Errors: kInvalidArgument: the pointer to `count` members is null, or they are too many.
Status check_array(const void* first, std::size_t count, std::string_view name);

/// Errors: kInvalidArgument: the size of a struct is none that a release had.
///   first  its size in release 0.3, when all structs were new
///   macro  what initializes it: "SHOAL_POOL_OPTIONS_INIT"
Status check_struct_size(std::size_t size, std::size_t first, std::string_view macro);
/// Errors: kInvalidArgument: a byte that this library does not know is set.
Status check_unknown_members(std::span<const std::byte> bytes, std::string_view macro);

/// The struct that a program passed; all 0 for null. A newer program's may be longer, an older one's shorter.
template <typename Struct>
Result<Struct> read_struct(const Struct* given, std::string_view macro, std::size_t first = sizeof(Struct)) {
  Struct read{};
  if (!given) return read;
  const std::size_t size = given->struct_size, known = std::min(size, sizeof(Struct));
  SHOAL_RETURN_IF_ERROR(check_struct_size(size, first, macro));
  SHOAL_RETURN_IF_ERROR(check_unknown_members({reinterpret_cast<const std::byte*>(given) + known, size - known}, macro));
  std::memcpy(&read, given, known);
  return read;
}
/// Fills in the members that the program knows, and sets those to 0 that this library does not know.
template <typename Struct>
Status write_struct(Struct value, Struct* place, std::string_view macro, std::size_t first = sizeof(Struct)) {
  const std::size_t size = place->struct_size;
  SHOAL_RETURN_IF_ERROR(check_struct_size(size, first, macro));
  value.struct_size = size;
  std::memset(static_cast<void*>(place), 0, size);
  std::memcpy(static_cast<void*>(place), &value, std::min(size, sizeof(Struct)));
  return {};
}

}  // namespace shoal::c

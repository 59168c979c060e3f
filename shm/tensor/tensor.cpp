#include "shoal/tensor.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "shm/base/errors.hpp"
#include "shm/base/ranges.hpp"

namespace shoal {
namespace {

struct DTypeRow {
  DType dtype;
  std::size_t size_bytes;
  std::string_view name;
};
constexpr DTypeRow kDTypes[] = {
    {DType::kFloat32, 4, "float32"},   {DType::kFloat64, 8, "float64"}, {DType::kFloat16, 2, "float16"},
    {DType::kBFloat16, 2, "bfloat16"}, {DType::kUInt8, 1, "uint8"},     {DType::kInt8, 1, "int8"},
    {DType::kInt16, 2, "int16"},       {DType::kUInt16, 2, "uint16"},   {DType::kInt32, 4, "int32"},
    {DType::kUInt32, 4, "uint32"},     {DType::kInt64, 8, "int64"},     {DType::kUInt64, 8, "uint64"},
    {DType::kBool, 1, "bool"},
};
static_assert(std::size(kDTypes) == static_cast<std::size_t>(DType::kBool));

const DTypeRow* find_dtype(DType dtype) {
  const auto index = static_cast<std::size_t>(dtype) - 1;  // the rows have the order of the numbers
  return index < std::size(kDTypes) ? &kDTypes[index] : nullptr;
}

Status too_many_dimensions(std::size_t count) {
  return invalid_argument("a shape of {} dimensions: at most {} are supported", count, kMaxRank);
}

}  // namespace

std::size_t dtype_size_bytes(DType dtype) {
  const DTypeRow* row = find_dtype(dtype);
  return row ? row->size_bytes : 0;
}

std::string_view dtype_name(DType dtype) {
  const DTypeRow* row = find_dtype(dtype);
  return row ? row->name : "invalid";
}

Result<DType> parse_dtype(std::string_view name) {
  const auto row = std::find_if(std::begin(kDTypes), std::end(kDTypes), [&](const DTypeRow& r) { return r.name == name; });
  if (row == std::end(kDTypes)) return invalid_argument("dtype '{}' is not known; use NumPy's names, such as float32", name);
  return row->dtype;
}

Shape::Shape(std::span<const std::int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  if (dims.size() > kMaxRank) throw Error(too_many_dimensions(dims.size()));
  std::copy(dims.begin(), dims.end(), dims_.begin());
}

Result<Shape> Shape::make(std::span<const std::int64_t> dims) {
  if (dims.size() > kMaxRank) return too_many_dimensions(dims.size());
  return Shape(dims);
}

std::int64_t Shape::element_count() const {
  std::int64_t count = is_known() ? 1 : -1;
  for (const std::int64_t dim : dims()) {
    if (dim < 0 || __builtin_mul_overflow(count, dim, &count)) return -1;
  }
  return count;
}

std::string Shape::to_string() const {
  if (rank_ <= 0) return rank_ == 0 ? "scalar" : "any";
  std::string text;
  for (const std::int64_t dim : dims()) {
    if (!text.empty()) text += 'x';
    text += dim < 0 ? "?" : std::to_string(dim);
  }
  return text;
}

bool operator==(const Shape& a, const Shape& b) { return a.rank_ == b.rank_ && std::equal(a.begin(), a.end(), b.begin()); }

void TensorView::check_element(std::size_t size_bytes, bool is_floating_point) const {
  const bool is_half = dtype == DType::kFloat16 || dtype == DType::kBFloat16;  // no type of C++20 is one
  const bool is_float = dtype == DType::kFloat32 || dtype == DType::kFloat64;
  const bool matches = size_bytes == dtype_size_bytes(dtype) && (is_half || is_float == is_floating_point);
  if (matches && (data || this->size_bytes() == 0)) return;
  throw Error(matches
                  ? invalid_argument("a tensor of {} and shape {} has no bytes to read", dtype_name(dtype), shape.to_string())
                  : invalid_argument("the values of a tensor of {} and shape {} are read as a {} of {} bytes", dtype_name(dtype),
                                     shape.to_string(), is_floating_point ? "floating-point type" : "type", size_bytes));
}

Result<Tensor> Tensor::create(DType dtype, const Shape& shape) {
  const std::int64_t count = shape.element_count();
  const auto size = checked_multiply(static_cast<std::uint64_t>(count), dtype_size_bytes(dtype));
  if (count < 0 || dtype_size_bytes(dtype) == 0 || !size || *size > (std::uint64_t{1} << 46)) {
    return invalid_argument(
        "a tensor of {} and shape {} cannot be made: it needs a valid dtype, no open dimension, and at most 64 TiB",
        dtype_name(dtype), shape.to_string());
  }
  const std::size_t rounded = align_up(std::max<std::uint64_t>(*size, 1), 64);
  void* memory = std::aligned_alloc(64, rounded);
  if (!memory) return failed_precondition("out of memory: {} bytes for a tensor of shape {}", rounded, shape.to_string());
  std::memset(memory, 0, rounded);
  return Tensor(TensorView{dtype, shape, static_cast<std::byte*>(memory)}, std::shared_ptr<void>(memory, std::free));
}

}  // namespace shoal

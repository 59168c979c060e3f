#include "shoal/tensor.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "shm/base/check.hpp"
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
  const auto index = static_cast<std::size_t>(dtype) - 1;  // rows stand in the order of the numbers
  return index < std::size(kDTypes) ? &kDTypes[index] : nullptr;
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
  if (row == std::end(kDTypes)) return invalid_argument("dtype '{}' is not known (NumPy's names, such as float32)", name);
  return row->dtype;
}

Shape::Shape(std::span<const std::int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  SHOAL_CHECK(dims.size() <= kMaxRank);
  std::copy(dims.begin(), dims.end(), dims_.begin());
}

std::int64_t Shape::element_count() const {
  std::int64_t count = 1;
  for (const std::int64_t dim : dims()) {
    if (dim < 0 || __builtin_mul_overflow(count, dim, &count)) return -1;
  }
  return count;
}

std::string Shape::to_string() const {
  if (rank_ == 0) return "scalar";
  std::string text;
  for (const std::int64_t dim : dims()) {
    if (!text.empty()) text += 'x';
    text += dim < 0 ? "?" : std::to_string(dim);
  }
  return text;
}

bool operator==(const Shape& a, const Shape& b) { return std::ranges::equal(a.dims(), b.dims()); }

Result<Tensor> Tensor::create(DType dtype, const Shape& shape) {
  const std::int64_t count = shape.element_count();
  const auto size = checked_multiply(static_cast<std::uint64_t>(count), dtype_size_bytes(dtype));
  if (count < 0 || dtype_size_bytes(dtype) == 0 || !size || *size > (std::uint64_t{1} << 46)) {
    return invalid_argument("a tensor of {} and shape {} cannot be made", dtype_name(dtype), shape.to_string());
  }
  const std::size_t rounded = align_up(std::max<std::uint64_t>(*size, 1), 64);
  void* memory = std::aligned_alloc(64, rounded);
  if (!memory) return internal_error("out of memory: {} bytes for a tensor of shape {}", rounded, shape.to_string());
  std::memset(memory, 0, rounded);
  return Tensor(TensorView{dtype, shape, static_cast<std::byte*>(memory)}, std::shared_ptr<void>(memory, std::free));
}

}  // namespace shoal

#include "client/predict/src/array_list.hpp"

#include <cstring>
#include <limits>

#include "client/predict/src/c_arguments.hpp"
#include "shm/base/errors.hpp"
#include "worker/graph/types.hpp"
#include "worker/import/mxnet/mxnet_params.hpp"
#include "worker/import/sparse_array.hpp"

namespace shoal::predict {
namespace {

void convert(const worker::Constant& array, std::vector<float>& values) {
  worker::dispatch(worker::AnyTypes(), array.dtype, [&]<typename T>() {
    for (std::size_t i = 0; i < values.size(); ++i) {
      T value;
      std::memcpy(&value, array.bytes.data() + i * sizeof(T), sizeof(T));  // arrays of a file lie at any address
      values[i] = static_cast<float>(value);
    }
  });
}

Result<ArrayList::Array> to_array(const worker::NamedArray& from, worker::MemoryBudget& budget) {
  const worker::Constant& stored = from.array;
  if (stored.dtype == DType::kInvalid) return invalid_argument("array {} has no value", in_quotes(from.name));
  ArrayList::Array array{.name = from.name, .shape = {}, .values = {}};
  for (const std::int64_t size : stored.shape) {
    if (size > std::numeric_limits<std::uint32_t>::max())
      return invalid_argument("array {} has shape {}; 32 bits are too few for it", in_quotes(from.name),
                              stored.shape.to_string());
    array.shape.push_back(static_cast<std::uint32_t>(size));
  }
  const auto count = static_cast<std::size_t>(stored.shape.element_count());
  SHOAL_RETURN_IF_ERROR(budget.take("the arrays as float32", count, sizeof(float)));
  array.values.resize(count);
  convert(stored, array.values);
  return array;
}

}  // namespace

Result<ArrayList> ArrayList::read(std::span<const std::byte> bytes) {
  const worker::ForeignFile file{"nd_file_bytes", bytes, nullptr};
  worker::MemoryBudget budget(worker::ImportLimits{});
  SHOAL_ASSIGN_OR_RETURN(std::vector<worker::NamedArray> stored, worker::parse_mxnet_params(file, budget));
  SHOAL_RETURN_IF_ERROR(worker::make_dense(file, stored, budget));
  ArrayList list;
  for (worker::NamedArray& each : stored) {
    SHOAL_ASSIGN_OR_RETURN(Array array, to_array(each, budget));
    list.arrays_.push_back(std::move(array));
    each = {};  // of a sparse array, or a compressed one, two copies are enough
  }
  return list;
}

Result<const ArrayList::Array*> ArrayList::at(std::size_t index) const {
  if (index < arrays_.size()) return &arrays_[index];
  return invalid_argument("there is no array {}: the list has {}, and 0 is the first", index, arrays_.size());
}

}  // namespace shoal::predict

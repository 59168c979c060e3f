#include "worker/zygote/golden.hpp"

#include <algorithm>
#include <cstring>

#include "shm/base/errors.hpp"
#include "shm/tensor/spec.hpp"
#include "shm/tensor/state.hpp"
#include "worker/import/npz.hpp"
#include "worker/import/sparse_array.hpp"

namespace shoal::worker {
namespace {

Result<Tensor> zeros(const TensorSpec& input) {
  Shape shape = input.shape.is_known() ? input.shape : Shape();
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const DimRange range = input.ranges.empty() ? DimRange() : input.ranges[static_cast<std::size_t>(axis)];
    if (shape[axis] < 0) shape[axis] = std::max<std::int64_t>(range.lowest, 1);
  }
  return Tensor::create(input.dtype, shape);
}

// Copies the array, because the mapped file may be replaced while workers live.
Result<Tensor> copy_of(const Constant& array) {
  SHOAL_ASSIGN_OR_RETURN(Tensor tensor, Tensor::create(array.dtype, array.shape));
  if (!array.bytes.empty()) std::memcpy(tensor.view().data, array.bytes.data(), array.bytes.size());
  return tensor;
}

Result<GoldenCase> read(const ModelSource& source, const LoadedModel& loaded) {
  GoldenCase golden{.inputs = {}, .outputs = {}, .tolerance = source.config.golden_tolerance};
  if (source.config.golden_file.empty()) {
    for (const TensorSpec& input : loaded.inputs) {
      SHOAL_ASSIGN_OR_RETURN(Tensor tensor, zeros(input));
      golden.inputs.push_back(std::move(tensor));
    }
    return golden;
  }
  if (loaded.model->tuning().precision == Precision::kBf16)
    golden.tolerance = std::max(golden.tolerance, source.config.max_error);
  SHOAL_ASSIGN_OR_RETURN(const ForeignFile file, ForeignFile::open(source.config.golden_file));
  MemoryBudget budget(ImportLimits{.memory_bytes = static_cast<std::uint64_t>(source.config.import_mb) << 20});
  SHOAL_ASSIGN_OR_RETURN(std::vector<NamedArray> arrays, parse_npz(file, budget));
  SHOAL_RETURN_IF_ERROR(make_dense(file, arrays, budget));
  std::vector<TensorSpec> given;
  for (const NamedArray& array : arrays) given.push_back({array.name, array.array.dtype, array.array.shape});
  for (const TensorSpec& input : loaded.inputs) {
    const auto found = std::ranges::find(arrays, input.name, &NamedArray::name);
    if (const StatePair* const state = find_state(loaded.state, input.name); state && found == arrays.end()) {
      SHOAL_ASSIGN_OR_RETURN(const TensorSpec left_out, zero_state(loaded.inputs, loaded.state, *state, given));
      SHOAL_ASSIGN_OR_RETURN(Tensor tensor, zeros(left_out));
      golden.inputs.push_back(std::move(tensor));
      continue;
    }
    if (found == arrays.end()) return invalid_argument("there is no array for input '{}'", input.name);
    SHOAL_RETURN_IF_ERROR(check_matches(input, found->array.dtype, found->array.shape));
    SHOAL_ASSIGN_OR_RETURN(Tensor tensor, copy_of(found->array));
    golden.inputs.push_back(std::move(tensor));
  }
  for (const NamedArray& array : arrays) {
    if (std::ranges::count(loaded.inputs, array.name, &TensorSpec::name) > 0) continue;
    const auto output = std::ranges::find(loaded.outputs, array.name, &TensorSpec::name);
    if (output == loaded.outputs.end())
      return invalid_argument("array '{}' is neither an input nor an output of the model", array.name);
    if (const Status matches = check_matches(*output, array.array.dtype, array.array.shape); !matches.ok())
      return Status(matches.code(), "expected output: " + matches.message());
    SHOAL_ASSIGN_OR_RETURN(Tensor tensor, copy_of(array.array));
    golden.outputs.push_back({array.name, std::move(tensor)});
  }
  if (golden.outputs.empty()) return invalid_argument("there is no array for any output");
  return golden;
}

}  // namespace

Result<GoldenCase> read_golden(const ModelSource& source, const LoadedModel& loaded) {
  auto golden = read(source, loaded);
  if (!golden.ok()) return golden.status().with_context(format("model '{}': golden {}", source.name, source.config.golden_file));
  return golden;
}

}  // namespace shoal::worker

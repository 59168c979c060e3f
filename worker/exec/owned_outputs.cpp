#include "worker/exec/owned_outputs.hpp"

#include <algorithm>

#include "shm/base/errors.hpp"
#include "shm/tensor/spec.hpp"

namespace shoal::worker {

Result<OwnedOutputs> OwnedOutputs::make(const std::vector<TensorSpec>& outputs, const Tensors& given) {
  OwnedOutputs owned;
  for (const TensorSpec& output : outputs) {
    Tensor tensor;
    const auto own = std::ranges::find(given, output.name, &NamedTensor::name);
    if (own != given.end()) {
      SHOAL_RETURN_IF_ERROR(check_matches(output, own->tensor.dtype(), own->tensor.shape(), "the memory for output"));
      tensor = own->tensor;
      owned.views_.push_back(tensor.view());
    } else if (is_dynamic(output)) {
      owned.views_.push_back({output.dtype, output.shape, nullptr});
    } else {
      SHOAL_ASSIGN_OR_RETURN(tensor, Tensor::create(output.dtype, output.shape));
      owned.views_.push_back(tensor.view());
    }
    owned.tensors_.push_back({output.name, std::move(tensor)});
  }
  return owned;
}

Result<std::byte*> OwnedOutputs::place(std::size_t index, DType dtype, const Shape& shape) {
  if (const Tensor& own = tensors_[index].tensor; own.owner()) {
    SHOAL_RETURN_IF_ERROR(check_matches({tensors_[index].name, dtype, shape}, own.dtype(), own.shape(), "the memory for output"));
    return tensors_[index].tensor.view().data;
  }
  SHOAL_ASSIGN_OR_RETURN(tensors_[index].tensor, Tensor::create(dtype, shape));
  return tensors_[index].tensor.view().data;
}

}  // namespace shoal::worker

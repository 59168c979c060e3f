#include "worker/exec/owned_outputs.hpp"

#include "shm/base/errors.hpp"

namespace shoal::worker {

Result<OwnedOutputs> OwnedOutputs::make(const std::vector<TensorSpec>& outputs) {
  OwnedOutputs owned;
  for (const TensorSpec& output : outputs) {
    Tensor tensor;
    if (is_dynamic(output)) {
      owned.as_made_.push_back({output.dtype, output.shape, nullptr});
    } else {
      SHOAL_ASSIGN_OR_RETURN(tensor, Tensor::create(output.dtype, output.shape));
      owned.as_made_.push_back(tensor.view());
    }
    owned.tensors_.push_back({output.name, std::move(tensor)});
  }
  return owned;
}

std::span<TensorView> OwnedOutputs::views() {
  views_ = as_made_;
  return views_;
}

Result<std::byte*> OwnedOutputs::place(std::size_t index, DType dtype, const Shape& shape) {
  SHOAL_ASSIGN_OR_RETURN(tensors_[index].tensor, Tensor::create(dtype, shape));
  return tensors_[index].tensor.view().data;
}

}  // namespace shoal::worker

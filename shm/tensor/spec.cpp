#include "shm/tensor/spec.hpp"

#include "shm/base/errors.hpp"

namespace shoal {

Status check_matches(const TensorSpec& spec, DType dtype, const Shape& shape) {
  if (dtype != spec.dtype) {
    return invalid_argument("input '{}' is {} (wants {})", spec.name, dtype_name(dtype), dtype_name(spec.dtype));
  }
  bool matches = spec.shape.rank() == 0 || shape.rank() == spec.shape.rank();
  for (int axis = 0; matches && axis < spec.shape.rank(); ++axis) {
    matches = shape[axis] >= 0 && (spec.shape[axis] < 0 || shape[axis] == spec.shape[axis]);
  }
  if (!matches) {
    return invalid_argument("input '{}' has shape {} (wants {})", spec.name, shape.to_string(), spec.shape.to_string());
  }
  return {};
}

}  // namespace shoal

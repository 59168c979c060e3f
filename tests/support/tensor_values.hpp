// The elements of tensors of any type.
#pragma once

#include <vector>

#include "shm/base/check.hpp"
#include "worker/ops/elements.hpp"

namespace shoal::testing {

/// The elements as doubles. Integers beyond 2^53 are rounded.
inline std::vector<double> as_doubles(const TensorView& tensor) {
  std::vector<double> values(static_cast<std::size_t>(tensor.element_count()));
  if (tensor.dtype == DType::kBool) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(tensor.data[i]);
    return values;
  }
  worker::Node unnamed;
  unnamed.source_op = "test";
  SHOAL_CHECK(worker::dispatch<worker::Numbers>(unnamed, tensor.dtype, [&]<typename T>() {
                for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(worker::elements<T>(tensor)[i]);
                return Status();
              }).ok());
  return values;
}

}  // namespace shoal::testing

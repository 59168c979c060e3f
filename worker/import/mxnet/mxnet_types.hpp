// MXNet's numbers for element types.
#pragma once

#include <cstdint>
#include <optional>

#include "shoal/tensor.hpp"

namespace shoal::worker {

/// The type that a type flag means (in arrays, and in `__dtype__` of variables). Empty for unknown numbers.
inline std::optional<DType> dtype_of_flag(std::int64_t flag) {
  constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kUInt8, DType::kInt32,
                              DType::kInt8,    DType::kInt64,   DType::kBool,    DType::kInt16, DType::kUInt16,
                              DType::kUInt32,  DType::kUInt64,  DType::kBFloat16};
  if (flag < 0 || flag >= static_cast<std::int64_t>(std::size(kTypes))) return std::nullopt;
  return kTypes[flag];
}

}  // namespace shoal::worker

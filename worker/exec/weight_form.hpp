// WeightForm: how a backend wants a constant.
#pragma once

#include <string>

#include "shoal/tensor.hpp"

namespace shoal::worker {

/// The type of its elements and their layout. All entries of a WeightStore lie in the host's segment, where the host reads them
/// in place; a device with memory of its own copies them when its part is activated.
struct WeightForm {
  static constexpr const char* kPlain = "plain";  ///< row-major

  DType dtype = DType::kInvalid;
  std::string layout = kPlain;  ///< or the bytes of a library's memory descriptor

  auto operator<=>(const WeightForm&) const = default;
};

}  // namespace shoal::worker

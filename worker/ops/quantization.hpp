// Quantize, Dequantize, QuantizedStep: numbers of 8 or 32 bits that stand for real ones.
#pragma once

#include <optional>

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kQuantize, kDequantize, kQuantizedStep;
}  // namespace ops

struct QuantizeAttributes {
  std::optional<DType> dtype;
  bool half_more = false;
};
template <>
inline constexpr auto fields_of<QuantizeAttributes> = std::tuple{
    field("dtype", &QuantizeAttributes::dtype,
          "int8, uint8 or int32; none: that of the inputs behind the range, and int8 if they differ"),
    field("half_more", &QuantizeAttributes::half_more, "the range has half a step more: 127.5 or 255.5"),
};

struct DequantizeAttributes {
  bool half_more = false;
};
template <>
inline constexpr auto fields_of<DequantizeAttributes> = std::tuple{
    field("half_more", &DequantizeAttributes::half_more, "the range has half a step more: 127.5 or 255.5"),
};

}  // namespace shoal::worker

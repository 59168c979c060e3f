#include "worker/graph/promotion.hpp"

#include <algorithm>

#include "worker/graph/types.hpp"

namespace shoal::worker {
namespace {

constexpr TypeSet kFloats = Floats();
constexpr TypeSet kUnsigned = Types<std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t>();

DType common_type(DType a, DType b) {
  if (a == b || b == DType::kBool) return a;
  if (a == DType::kBool) return b;
  const std::size_t size_a = dtype_size_bytes(a), size_b = dtype_size_bytes(b);
  if (kFloats.holds(a) != kFloats.holds(b)) return kFloats.holds(a) ? a : b;
  if (size_a == size_b) return kFloats.holds(a) ? DType::kFloat32 : DType::kInvalid;  // float16 and bfloat16
  const DType wide = size_a > size_b ? a : b, narrow = size_a > size_b ? b : a;
  return kUnsigned.holds(wide) && !kUnsigned.holds(narrow) ? DType::kInvalid : wide;
}

}  // namespace

DType common_type(std::span<const DType> types) {
  if (types.empty()) return DType::kInvalid;
  DType common = types[0];
  for (const DType type : types.subspan(1)) {
    if (common == DType::kInvalid) break;
    common = common_type(common, type);
  }
  return common;
}

DType promoted_type(Promotion promotion, std::span<const DType> types) {
  const DType common = common_type(types);
  if (common == DType::kInvalid) return common;
  if (promotion == Promotion::kWidest) return kFloats.holds(common) ? DType::kFloat64 : DType::kInt64;
  if (kFloats.holds(common)) return common;
  if (promotion == Promotion::kReals) return DType::kFloat32;
  return promotion == Promotion::kNumbers && common == DType::kBool ? DType::kInt64 : common;
}

void promote_all(Promotion promotion, std::span<DType> types) {
  if (promotion == Promotion::kNone) return;
  const DType common = promoted_type(promotion, types);
  if (common != DType::kInvalid) std::ranges::fill(types, common);
}

}  // namespace shoal::worker

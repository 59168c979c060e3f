#include "worker/graph/convert.hpp"

#include <cstring>
#include <vector>

#include "shm/base/check.hpp"
#include "worker/graph/floats.hpp"

namespace shoal::worker {
namespace {

template <typename To, typename From>
void convert(const std::byte* src, std::byte* dst, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    From from;
    std::memcpy(&from, src + i * sizeof(From), sizeof(From));  // constants lie at any address
    To to;
    if constexpr (sizeof(To) > 2)
      to = static_cast<To>(from);
    else
      to = To(static_cast<float>(from));
    std::memcpy(dst + i * sizeof(To), &to, sizeof(To));
  }
}

/// Calls `visit` with a null pointer to the element type that dtype means.
template <typename Visit>
void with_float_type(DType dtype, Visit&& visit) {
  switch (dtype) {
    case DType::kFloat32:
      return visit(static_cast<float*>(nullptr));
    case DType::kFloat64:
      return visit(static_cast<double*>(nullptr));
    case DType::kFloat16:
      return visit(static_cast<Half*>(nullptr));
    case DType::kBFloat16:
      return visit(static_cast<BFloat16*>(nullptr));
    default:
      SHOAL_CHECK(!"a floating-point type");
  }
}

}  // namespace

Constant convert_constant(const Constant& constant, DType dtype) {
  const auto count = static_cast<std::size_t>(constant.shape.element_count());
  SHOAL_CHECK(constant.bytes.size() == count * dtype_size_bytes(constant.dtype));
  const auto bytes = std::make_shared<std::vector<std::byte>>(count * dtype_size_bytes(dtype));
  with_float_type(constant.dtype, [&]<typename From>(From*) {
    with_float_type(dtype, [&]<typename To>(To*) { convert<To, From>(constant.bytes.data(), bytes->data(), count); });
  });
  return {dtype, constant.shape, *bytes, bytes};
}

}  // namespace shoal::worker

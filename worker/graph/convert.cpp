#include "worker/graph/convert.hpp"

#include <cstring>
#include <vector>

#include "shm/base/check.hpp"
#include "worker/graph/types.hpp"

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

}  // namespace

Constant convert_constant(const Constant& constant, DType dtype) {
  const auto count = static_cast<std::size_t>(constant.shape.element_count());
  SHOAL_CHECK(constant.bytes.size() == count * dtype_size_bytes(constant.dtype));
  const auto bytes = std::make_shared<std::vector<std::byte>>(count * dtype_size_bytes(dtype));
  const bool are_floats = dispatch(Floats(), constant.dtype, [&]<typename From>() {
    SHOAL_CHECK(
        dispatch(Floats(), dtype, [&]<typename To>() { convert<To, From>(constant.bytes.data(), bytes->data(), count); }));
  });
  SHOAL_CHECK(are_floats);
  return {dtype, constant.shape, *bytes, bytes};
}

}  // namespace shoal::worker

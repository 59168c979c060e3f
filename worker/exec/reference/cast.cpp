// Cast and AmpMulticast.
#include <cmath>

#include "worker/exec/reference/elements.hpp"
#include "worker/exec/reference/kernels.hpp"

namespace shoal::worker {
namespace {

/// C's conversion, with an answer where C has none: a float beyond int64 becomes the nearest int64 and is then cut to the type.
template <typename To, typename From>
To convert(From value) {
  if constexpr (std::is_same_v<To, bool>) {
    return static_cast<Compute<From>>(value) != 0;
  } else if constexpr (std::is_integral_v<To> && !std::is_integral_v<From>) {
    constexpr double kLimit = 9223372036854774784.0;  // the largest double below 2^63
    const double x = static_cast<double>(value);
    if (std::is_same_v<To, std::uint64_t> && x > kLimit && x < 2 * kLimit) return static_cast<To>(x);
    return static_cast<To>(static_cast<std::int64_t>(x > kLimit ? kLimit : x > -kLimit ? x : -kLimit));  // NaN too
  } else {
    return to_element<To>(static_cast<Compute<From>>(value));
  }
}

template <typename From, typename To>
Status cast(const TensorView& src, TensorView& dst) {
  const From* from = elements<From>(src);
  To* to = elements<To>(dst);
  for (std::int64_t i = 0, count = src.element_count(); i < count; ++i) to[i] = convert<To>(from[i]);
  return {};
}

/// with_number, and bool.
template <typename Run>
Status with_any(const Node& node, DType dtype, Run&& run) {
  return dtype == DType::kBool ? run.template operator()<bool>() : with_number(node, dtype, std::forward<Run>(run));
}

}  // namespace

Status reference_cast(const Node& node, Sources src, Results dst) {
  for (std::size_t i = 0; i < src.size(); ++i) {
    if (!dst[i].data) continue;
    SHOAL_RETURN_IF_ERROR(with_any(node, src[i].dtype, [&]<typename From>() {
      return with_any(node, dst[i].dtype, [&]<typename To>() { return cast<From, To>(src[i], dst[i]); });
    }));
  }
  return {};
}

}  // namespace shoal::worker

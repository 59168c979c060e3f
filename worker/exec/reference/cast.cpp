// Cast and AmpMulticast.
#include <algorithm>

#include "worker/exec/reference/elements.hpp"
#include "worker/exec/reference/kernels.hpp"

namespace shoal::worker {
namespace {

template <typename To, typename From>
To convert(From value) {
  if constexpr (std::is_same_v<To, bool>) {
    return static_cast<Compute<From>>(value) != 0;
  } else if constexpr (std::is_integral_v<To> && !std::is_integral_v<From>) {
    return cut<To>(static_cast<double>(value));
  } else {
    return to_element<To>(static_cast<Compute<From>>(value));
  }
}

/// with_number, and bool.
template <typename Run>
Status with_any(const Node& node, DType dtype, Run&& run) {
  return dtype == DType::kBool ? run.template operator()<bool>() : with_number(node, dtype, std::forward<Run>(run));
}

/// The widest type of From's kind. It holds every value of From exactly.
template <typename From>
using Wide = std::conditional_t<!std::is_integral_v<From>, double,
                                std::conditional_t<std::is_same_v<From, std::uint64_t>, std::uint64_t, std::int64_t>>;

template <typename W>
Status store(const Node& node, std::span<const W> block, DType dtype, std::byte* dst) {
  return with_any(node, dtype, [&]<typename To>() {
    for (std::size_t i = 0; i < block.size(); ++i) reinterpret_cast<To*>(dst)[i] = convert<To>(block[i]);
    return Status();
  });
}

/// Converts block by block through the widest type. So there is one loop per type, not one per pair of types.
Status cast(const Node& node, const TensorView& src, TensorView& dst) {
  constexpr std::int64_t kBlock = 512;
  return with_any(node, src.dtype, [&]<typename From>() {
    // A bool in a file or from a client may be any byte, but a C++ bool must be 0 or 1.
    const auto element = [&](std::int64_t i) {
      if constexpr (std::is_same_v<From, bool>)
        return elements<std::uint8_t>(src)[i] != 0;
      else
        return static_cast<Compute<From>>(elements<From>(src)[i]);
    };
    Wide<From> block[kBlock];
    for (std::int64_t first = 0, count = src.element_count(); first < count; first += kBlock) {
      const std::int64_t size = std::min(kBlock, count - first);
      for (std::int64_t i = 0; i < size; ++i) block[i] = static_cast<Wide<From>>(element(first + i));
      std::byte* const to = dst.data + static_cast<std::size_t>(first) * dtype_size_bytes(dst.dtype);
      SHOAL_RETURN_IF_ERROR(store<Wide<From>>(node, {block, static_cast<std::size_t>(size)}, dst.dtype, to));
    }
    return Status();
  });
}

}  // namespace

Status reference_cast(const Node& node, Sources src, Results dst) {
  for (std::size_t i = 0; i < src.size(); ++i) {
    if (!dst[i].data) continue;
    SHOAL_RETURN_IF_ERROR(cast(node, src[i], dst[i]));
  }
  return {};
}

}  // namespace shoal::worker

// Lengths of sequences: inputs of which each element says how many steps of its sequence count.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "worker/ops/elements.hpp"

namespace shoal::worker {

/// The length at `at`, cut to 0 .. most; fractions are cut off, and NaN is 0. It is loaded once, because a client may change it
/// meanwhile.
template <typename T>
std::int64_t load_length(const T* at, std::int64_t most) {
  if constexpr (std::is_integral_v<T>) {
    const T length = load_once(at);
    if (std::cmp_less(length, 0)) return 0;
    return std::cmp_less(length, most) ? static_cast<std::int64_t>(length) : most;
  } else {
    using Word =
        std::conditional_t<sizeof(T) == 2, std::uint16_t, std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>;
    const auto length =
        static_cast<double>(static_cast<Compute<T>>(std::bit_cast<T>(load_once(reinterpret_cast<const Word*>(at)))));
    if (!(length > 0)) return 0;
    return length < static_cast<double>(most) ? static_cast<std::int64_t>(length) : most;
  }
}

/// load_length() of element `index` of a tensor.
using LengthReader = std::int64_t (*)(const std::byte* lengths, std::int64_t index, std::int64_t most);

/// The reader for lengths of a type, which is one of Numbers.
inline LengthReader length_reader(DType dtype) {
  LengthReader reader = nullptr;
  dispatch(Numbers(), dtype, [&]<typename T>() {
    reader = [](const std::byte* lengths, std::int64_t index, std::int64_t most) {
      return load_length(reinterpret_cast<const T*>(lengths) + index, most);
    };
  });
  return reader;
}

}  // namespace shoal::worker

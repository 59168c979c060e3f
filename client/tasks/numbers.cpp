#include "shoal/numbers.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstring>
#include <limits>
#include <utility>

#include "shm/base/errors.hpp"
#include "shm/tensor/floats.hpp"

namespace shoal {
namespace {

// Numbers are converted by way of the widest type of their kind, a block at a time, so that types are not paired with each other.
constexpr std::size_t kBlock = 512;
template <typename Wide>
using Block = std::array<Wide, kBlock>;

template <typename T>
using WideOf =
    std::conditional_t<!std::integral<T>, double, std::conditional_t<std::signed_integral<T>, std::int64_t, std::uint64_t>>;

template <typename T>
T element(const std::byte* data, std::size_t i) {
  T value;
  std::memcpy(&value, data + i * sizeof(T), sizeof(T));
  return value;
}

/// Calls function<T>() with the type of the elements.
template <typename Function>
Status dispatch(DType dtype, const Function& function) {
  switch (dtype) {
    case DType::kFloat32:
      return function.template operator()<float>();
    case DType::kFloat64:
      return function.template operator()<double>();
    case DType::kFloat16:
      return function.template operator()<Half>();
    case DType::kBFloat16:
      return function.template operator()<BFloat16>();
    case DType::kUInt8:
      return function.template operator()<std::uint8_t>();
    case DType::kInt8:
      return function.template operator()<std::int8_t>();
    case DType::kInt16:
      return function.template operator()<std::int16_t>();
    case DType::kUInt16:
      return function.template operator()<std::uint16_t>();
    case DType::kInt32:
      return function.template operator()<std::int32_t>();
    case DType::kUInt32:
      return function.template operator()<std::uint32_t>();
    case DType::kInt64:
      return function.template operator()<std::int64_t>();
    case DType::kUInt64:
      return function.template operator()<std::uint64_t>();
    case DType::kBool:
      return function.template operator()<bool>();
    case DType::kInvalid:
      break;
  }
  return invalid_argument("{} is not a type of elements", static_cast<int>(dtype));
}

/// Whether a whole number is exactly one of a floating-point type.
template <typename Float, std::integral Wide>
bool is_exact(Wide value) {
  const std::uint64_t magnitude = value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
  if (magnitude == 0) return true;
  return std::bit_width(magnitude) - std::countr_zero(magnitude) <= FloatLimits<Float>::kDigits &&
         static_cast<double>(magnitude) <= static_cast<double>(FloatLimits<Float>::kHighest);
}

/// The number as T. False if that would be another number.
template <typename T, typename Wide>
bool store(Wide value, T& dst) {
  if constexpr (std::same_as<T, bool>) {
    dst = value == 1;
    return value == 0 || value == 1;
  } else if constexpr (std::integral<T> && std::integral<Wide>) {
    dst = static_cast<T>(value);
    return std::in_range<T>(value);
  } else if constexpr (std::integral<T>) {
    // The limits are powers of two, so that double has them exactly. NaN fails every comparison.
    constexpr double kAbove = 2.0 * static_cast<double>(std::uint64_t{1} << (std::numeric_limits<T>::digits - 1));
    constexpr double kLowest = static_cast<double>(std::numeric_limits<T>::lowest());
    if (!(value >= kLowest && value < kAbove) || value != std::trunc(value)) return false;
    dst = static_cast<T>(value);
    return true;
  } else if constexpr (std::integral<Wide>) {
    dst = T(static_cast<float>(value));
    if constexpr (std::same_as<T, double>) dst = static_cast<double>(value);
    return is_exact<T>(value);
  } else if constexpr (std::same_as<T, double>) {
    dst = value;
    return true;
  } else {
    dst = T(static_cast<float>(value));
    return !std::isfinite(value) || std::isfinite(static_cast<float>(dst));
  }
}

template <typename T>
void load(const std::byte* data, std::size_t first, std::size_t count, Block<WideOf<T>>& block) {
  for (std::size_t i = 0; i < count; ++i) {
    if constexpr (std::same_as<T, bool>)
      block[i] = data[first + i] != std::byte{0};  // any byte may stand there
    else
      block[i] = static_cast<WideOf<T>>(element<T>(data, first + i));
  }
}

/// Writes `size` numbers, which `load` reads block by block, into dst.
template <typename Wide>
Status copy_all(void (*load)(const std::byte*, std::size_t, std::size_t, Block<Wide>&), const std::byte* src, std::size_t size,
                TensorView& dst, std::string_view what) {
  return dispatch(dst.dtype, [&]<typename To>() -> Status {
    Block<Wide> block;
    for (std::size_t first = 0; first < size; first += kBlock) {
      const std::size_t count = std::min(kBlock, size - first);
      load(src, first, count, block);
      for (std::size_t i = 0; i < count; ++i) {
        To value{};
        if (!store(block[i], value))
          return invalid_argument("{}: number {} is {}, which {} cannot hold", what, first + i, block[i], dtype_name(dst.dtype));
        std::memcpy(dst.data + (first + i) * sizeof(To), &value, sizeof(To));
      }
    }
    return {};
  });
}

}  // namespace

Numbers::Numbers(DType dtype, const void* data, std::size_t size)
    : view_{dtype, Shape{static_cast<std::int64_t>(size)}, static_cast<std::byte*>(const_cast<void*>(data))} {}

Numbers::Numbers(const TensorView& tensor)
    : Numbers(tensor.dtype, tensor.data,
              tensor.data ? static_cast<std::size_t>(std::max<std::int64_t>(tensor.element_count(), 0)) : 0) {}

Status Numbers::copy_to(TensorView dst, std::string_view what) const {
  if (dst.element_count() != view_.shape[0])
    return invalid_argument("{} has {} numbers, but {} has room for {}", what, size(), dst.shape.to_string(),
                            dst.element_count());
  if (size() == 0) return {};
  if (!dst.data) return invalid_argument("{}: the tensor that gets the numbers has no bytes", what);
  if (dst.dtype == dtype() && dtype() != DType::kBool) {
    std::memcpy(dst.data, view_.data, view_.size_bytes());
    return {};
  }
  return dispatch(dtype(), [&]<typename From>() { return copy_all<WideOf<From>>(&load<From>, view_.data, size(), dst, what); });
}

}  // namespace shoal

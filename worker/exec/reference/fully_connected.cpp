#include "worker/exec/reference/elements.hpp"
#include "worker/exec/reference/kernels.hpp"

namespace shoal::worker {
namespace {

constexpr std::int64_t kLanes = 16;  // independent partial sums: the compiler keeps them in vector registers

/// Sum of a[i] * b[i] in kLanes interleaved partial sums.
template <typename T, typename Sum>
Sum dot(const T* a, const T* b, std::int64_t count) {
  Sum partial[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane)
      partial[lane] += static_cast<Sum>(a[i + lane]) * static_cast<Sum>(b[i + lane]);
  }
  Sum sum = 0;
  for (; i < count; ++i) sum += static_cast<Sum>(a[i]) * static_cast<Sum>(b[i]);
  for (const Sum part : partial) sum += part;
  return sum;
}

}  // namespace

Status reference_fully_connected(const Node& node, Sources src, Results dst) {
  const std::int64_t units = src[1].shape[0], width = src[1].shape[1], rows = dst[0].element_count() / units;
  return with_float(node, src[0].dtype, [&]<typename T>() {
    using Sum = Compute<T>;
    const T* const bias = src.size() == 3 ? elements<T>(src[2]) : nullptr;
    T* out = elements<T>(dst[0]);
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t unit = 0; unit < units; ++unit) {
        const Sum sum = dot<T, Sum>(elements<T>(src[0]) + row * width, elements<T>(src[1]) + unit * width, width);
        *out++ = to_element<T>(sum + (bias ? static_cast<Sum>(bias[unit]) : Sum{0}));
      }
    }
    return Status();
  });
}

}  // namespace shoal::worker

// BatchNorm, LRN and L2Normalization.
#include <algorithm>
#include <cmath>
#include <vector>

#include "worker/exec/reference/elements.hpp"
#include "worker/exec/reference/kernels.hpp"

namespace shoal::worker {
namespace {

/// y = (x - mean) / sqrt(var + eps) * gamma + beta; P is the type of the parameters.
template <typename T, typename P>
void batch_norm(const BatchNormAttributes& norm, Sources src, Results dst) {
  const AxisView view(src[0].shape, positive_axis(norm.axis, src[0].shape));
  const P *gamma = elements<P>(src[1]), *beta = elements<P>(src[2]), *mean = elements<P>(src[3]), *var = elements<P>(src[4]);
  const T* x = elements<T>(src[0]);
  T* y = elements<T>(dst[0]);
  for (std::int64_t outer = 0; y && outer < view.outer; ++outer) {
    for (std::int64_t c = 0; c < view.size; ++c) {
      const P scale = static_cast<P>((norm.fix_gamma ? 1.0 : static_cast<double>(gamma[c])) /
                                     std::sqrt(static_cast<double>(var[c]) + norm.eps));
      for (std::int64_t i = 0; i < view.inner; ++i) *y++ = to_element<T>((static_cast<P>(*x++) - mean[c]) * scale + beta[c]);
    }
  }
  if (dst[1].data) std::copy_n(mean, view.size, elements<P>(dst[1]));
  for (std::int64_t c = 0; dst[2].data && c < view.size; ++c) {
    elements<P>(dst[2])[c] = static_cast<P>(1.0 / std::sqrt(static_cast<double>(var[c]) + norm.eps));
  }
}

/// norm[c] = knorm + alpha / nsize * (sum of x^2 over the window of channels around c); y = x * norm^-beta.
template <typename T>
void lrn(const LrnAttributes& lrn, const TensorView& src, Results dst) {
  using Sum = Compute<T>;
  const AxisView view(src.shape, 1);
  const std::int64_t reach = lrn.nsize / 2;
  const Sum alpha = static_cast<Sum>(lrn.alpha / static_cast<double>(lrn.nsize)), knorm = static_cast<Sum>(lrn.knorm),
            beta = static_cast<Sum>(-lrn.beta);
  std::vector<Sum> squares(static_cast<std::size_t>(view.inner));
  for (std::int64_t outer = 0; outer < view.outer; ++outer) {
    const T* const image = elements<T>(src) + outer * view.size * view.inner;
    for (std::int64_t c = 0; c < view.size; ++c) {
      std::fill(squares.begin(), squares.end(), Sum{0});
      for (std::int64_t near = std::max<std::int64_t>(0, c - reach); near <= std::min(view.size - 1, c + reach); ++near) {
        const T* const plane = image + near * view.inner;
        for (std::int64_t i = 0; i < view.inner; ++i)
          squares[static_cast<std::size_t>(i)] += static_cast<Sum>(plane[i]) * static_cast<Sum>(plane[i]);
      }
      const std::int64_t at = (outer * view.size + c) * view.inner;
      for (std::int64_t i = 0; i < view.inner; ++i) {
        const Sum norm = knorm + alpha * squares[static_cast<std::size_t>(i)];
        if (dst[0].data)
          elements<T>(dst[0])[at + i] = to_element<T>(static_cast<Sum>(image[c * view.inner + i]) * std::pow(norm, beta));
        if (dst[1].data) elements<T>(dst[1])[at + i] = to_element<T>(norm);
      }
    }
  }
}

/// Which elements share a root: `size` of them, `inner` apart.
AxisView rows_of(L2NormalizationMode mode, const Shape& shape) {
  if (mode == L2NormalizationMode::kChannel) return {shape, 1};
  const AxisView view(shape, mode == L2NormalizationMode::kInstance ? 0 : 1);
  return {Shape{view.outer * view.size, view.inner}, 1};
}

/// root = sqrt(sum of x^2 + eps) over each row; y = x / root.
template <typename T>
void l2_normalization(const L2NormalizationAttributes& norm, const TensorView& src, Results dst) {
  using F = Compute<T>;
  const AxisView view = rows_of(norm.mode, src.shape);
  for (std::int64_t outer = 0; outer < view.outer; ++outer) {
    for (std::int64_t inner = 0; inner < view.inner; ++inner) {
      const std::int64_t at = outer * view.size * view.inner + inner;
      const T* const x = elements<T>(src) + at;
      double sum = 0;
      for (std::int64_t i = 0; i < view.size; ++i) {
        const auto value = static_cast<double>(static_cast<F>(x[i * view.inner]));
        sum += value * value;
      }
      const F root = static_cast<F>(std::sqrt(sum + norm.eps));
      if (dst[1].data) elements<T>(dst[1])[outer * view.inner + inner] = to_element<T>(root);
      if (!dst[0].data) continue;
      T* const y = elements<T>(dst[0]) + at;
      for (std::int64_t i = 0; i < view.size; ++i) y[i * view.inner] = to_element<T>(static_cast<F>(x[i * view.inner]) / root);
    }
  }
}

}  // namespace

Status reference_l2_normalization(const Node& node, Sources src, Results dst) {
  return with_float(node, src[0].dtype, [&]<typename T>() {
    l2_normalization<T>(std::get<L2NormalizationAttributes>(node.attributes), src[0], dst);
    return Status();
  });
}

Status reference_batch_norm(const Node& node, Sources src, Results dst) {
  const auto& attributes = std::get<BatchNormAttributes>(node.attributes);
  return with_float(node, src[0].dtype, [&]<typename T>() {
    batch_norm<T, Compute<T>>(attributes, src, dst);
    return Status();
  });
}

Status reference_lrn(const Node& node, Sources src, Results dst) {
  return with_float(node, src[0].dtype, [&]<typename T>() {
    lrn<T>(std::get<LrnAttributes>(node.attributes), src[0], dst);
    return Status();
  });
}

}  // namespace shoal::worker

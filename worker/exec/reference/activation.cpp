// Activation and LeakyReLU.
#include <cmath>

#include "worker/exec/reference/elements.hpp"
#include "worker/exec/reference/kernels.hpp"
#include "worker/graph/axes.hpp"

namespace shoal::worker {
namespace {

template <typename T>
Status activate(ActivationKind kind, const TensorView& src, TensorView& dst) {
  using C = Compute<T>;
  using F = Float<T>;
  const auto floating = [&](auto function) {
    return map<T>(src, dst, [=](C x) { return from_float<C>(function(static_cast<F>(x))); });
  };
  switch (kind) {
    case ActivationKind::kRelu:
      return map<T>(src, dst, [](C x) { return x < 0 ? C{0} : x; });  // NaN passes
    case ActivationKind::kSigmoid:
      return floating([](F x) { return 1 / (1 + std::exp(-x)); });
    case ActivationKind::kTanh:
      return floating([](F x) { return std::tanh(x); });
    case ActivationKind::kSoftRelu:
      return floating([](F x) { return x > 20 ? x : std::log1p(std::exp(x)); });
    case ActivationKind::kSoftSign:
      return floating([](F x) { return x / (1 + std::abs(x)); });
  }
  return internal_error("an activation without a kernel");
}

/// Slopes of any shape that infer() lets through, laid along axes 0 and 1 of the data.
template <typename T>
Status prelu(const TensorView& src, const TensorView& gamma, TensorView& dst) {
  using F = Compute<T>;
  const Shape& shape = src.shape;
  const std::int64_t batch = shape.rank() > 1 ? shape[0] : 1, channels = shape[shape.rank() > 1 ? 1 : 0];
  const std::int64_t inner = src.element_count() / (batch * channels);
  const Shape slopes = *slopes_along(gamma.shape, shape);
  const std::int64_t rows = shape.rank() > 1 ? slopes[0] : 1, columns = slopes[shape.rank() > 1 ? 1 : 0];
  const auto slope_at = [&](std::int64_t i) {
    return gamma.dtype == src.dtype ? static_cast<F>(elements<T>(gamma)[i]) : static_cast<F>(elements<float>(gamma)[i]);
  };
  const T* from = elements<T>(src);
  T* to = elements<T>(dst);
  for (std::int64_t n = 0; n < batch; ++n) {
    for (std::int64_t c = 0; c < channels; ++c) {
      const F slope = slope_at((rows == 1 ? 0 : n) * columns + (columns == 1 ? 0 : c));
      for (std::int64_t i = 0; i < inner; ++i, ++from, ++to) {
        const F x = static_cast<F>(*from);
        *to = to_element<T>(x > 0 ? x : slope * x);
      }
    }
  }
  return {};
}

template <typename T>
Status leaky(const LeakyAttributes& leaky, Sources src, TensorView& dst) {
  using F = Compute<T>;
  constexpr double kScale = 1.0507009873554804934, kAlpha = 1.6732632423543772848;  // of selu
  const F slope = static_cast<F>(leaky.slope);
  switch (leaky.kind) {
    case LeakyKind::kLeaky:
      return map<T>(src[0], dst, [=](F x) { return x > 0 ? x : slope * x; });
    case LeakyKind::kPrelu:
      return prelu<T>(src[0], src[1], dst);
    case LeakyKind::kElu:
      return map<T>(src[0], dst, [=](F x) { return x > 0 ? x : slope * std::expm1(x); });
    case LeakyKind::kSelu:
      return map<T>(src[0], dst, [](F x) { return F(kScale) * (x > 0 ? x : F(kAlpha) * std::expm1(x)); });
    case LeakyKind::kGelu:
      return map<T>(src[0], dst, [](F x) { return x / 2 * (1 + std::erf(x / std::sqrt(F{2}))); });
  }
  return internal_error("a leaky activation without a kernel");
}

}  // namespace

Status reference_activation(const Node& node, Sources src, Results dst) {
  const ActivationKind kind = std::get<ActivationAttributes>(node.attributes).kind;
  return with_number(node, src[0].dtype, [&]<typename T>() { return activate<T>(kind, src[0], dst[0]); });
}

Status reference_leaky(const Node& node, Sources src, Results dst) {
  if (src.size() == 2 && src[1].dtype != src[0].dtype && src[1].dtype != DType::kFloat32) return no_kernel(node, src[1].dtype);
  return with_float(node, src[0].dtype,
                    [&]<typename T>() { return leaky<T>(std::get<LeakyAttributes>(node.attributes), src, dst[0]); });
}

}  // namespace shoal::worker

// BatchNorm, LRN, L2Normalization.
#include "worker/ops/normalization.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/elements.hpp"

namespace shoal::worker {
namespace {

Status infer_batch_norm(const Node& node, SourceValues src, ResultValues dst) {
  const TypedValue& data = src[0];
  SHOAL_RETURN_IF_ERROR(check_float(node, data));
  SHOAL_ASSIGN_OR_RETURN(const int axis, normalize_axis(node, node.attributes.get<BatchNormAttributes>().axis, data.shape));
  const SymbolicShape channels{data.shape[axis]};
  const DType type = statistics_type(data.dtype);
  constexpr const char* kRoles[] = {"data", "gamma", "beta", "moving_mean", "moving_var"};
  for (std::size_t i = 1; i < src.size(); ++i) {
    SHOAL_RETURN_IF_ERROR(check_shape(node, kRoles[i], src[i], channels));
    if (src[i].dtype != type) {
      return invalid_argument("{}: {} '{}' is {}; {} is needed with {} data", describe(node), kRoles[i], src[i].name,
                              dtype_name(src[i].dtype), dtype_name(type), dtype_name(data.dtype));
    }
  }
  set_result(dst[0], data.dtype, data.shape);
  set_result(dst[1], type, channels);
  set_result(dst[2], type, channels);
  return {};
}

void batch_norm_parameters(const Node& node, std::span<TypedValue> src) {
  const TypedValue& data = src[0];
  const Result<int> axis = normalize_axis(node, node.attributes.get<BatchNormAttributes>().axis, data.shape);
  if (!axis.ok()) return;
  for (TypedValue& parameter : src.subspan(1)) supply(parameter, statistics_type(data.dtype), SymbolicShape{data.shape[*axis]});
}

Status infer_lrn(const Node& node, SourceValues src, ResultValues dst) {
  const TypedValue& data = src[0];
  SHOAL_RETURN_IF_ERROR(check_float(node, data));
  SHOAL_RETURN_IF_ERROR(check_rank(node, data, 4, 4));
  set_result(dst[0], data.dtype, data.shape);
  set_result(dst[1], data.dtype, data.shape);
  return {};
}

Status infer_l2_normalization(const Node& node, SourceValues src, ResultValues dst) {
  const auto mode = node.attributes.get<L2NormalizationAttributes>().mode;
  const TypedValue& data = src[0];
  SHOAL_RETURN_IF_ERROR(check_float(node, data));
  SHOAL_RETURN_IF_ERROR(check_rank(node, data, mode == L2NormalizationMode::kInstance ? 1 : 3));
  SymbolicShape roots{data.shape[0]};
  if (mode == L2NormalizationMode::kChannel) {
    roots = data.shape;
    roots[1] = 1;
  } else if (mode == L2NormalizationMode::kSpatial) {
    roots = SymbolicShape{data.shape[0], data.shape[1]};
  }
  set_result(dst[0], data.dtype, data.shape);
  set_result(dst[1], data.dtype, roots);
  return {};
}

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

Status compute_batch_norm(const Node& node, Sources src, Results dst) {
  const auto& attributes = node.attributes.get<BatchNormAttributes>();
  return dispatch<Floats>(node, src[0].dtype, [&]<typename T>() {
    batch_norm<T, Compute<T>>(attributes, src, dst);
    return Status();
  });
}

Status compute_lrn(const Node& node, Sources src, Results dst) {
  return dispatch<Floats>(node, src[0].dtype, [&]<typename T>() {
    lrn<T>(node.attributes.get<LrnAttributes>(), src[0], dst);
    return Status();
  });
}

Status compute_l2_normalization(const Node& node, Sources src, Results dst) {
  return dispatch<Floats>(node, src[0].dtype, [&]<typename T>() {
    l2_normalization<T>(node.attributes.get<L2NormalizationAttributes>(), src[0], dst);
    return Status();
  });
}

bool batch_norm_rows(const BatchedNode& batched) {
  return batched.only_first_has_rows() && !batched.is_of_rows(batched.node.attributes.get<BatchNormAttributes>().axis);
}

}  // namespace

namespace ops {

const Operator kBatchNorm({
    .name = "BatchNorm",
    .inputs = 5,
    .outputs = 3,
    .attributes = &kSchema<BatchNormAttributes>,
    .infer = infer_batch_norm,
    .infer_parameters = batch_norm_parameters,
    .constant_types = ConstantTypes::kAtLeastF32,
    .first_constant_output = 1,
    .facts = layer_facts(batch_norm_rows),
    .oracle = compute_batch_norm,
    .formula = "data, gamma, beta, mean, var (one per channel): y = (x - mean) / sqrt(var + eps) * gamma + beta, always with "
               "these statistics. Outputs y, mean, 1 / sqrt(var + eps)",
    .source = "MXNet 1.9.1 src/operator/nn/batch_norm.cc",
});

const Operator kLrn({
    .name = "LRN",
    .outputs = 2,
    .attributes = &kSchema<LrnAttributes>,
    .infer = infer_lrn,
    .constant_types = ConstantTypes::kAsData,
    .facts = layer_facts(rows_of_first_input),
    .oracle = compute_lrn,
    .formula = "data (N, C, H, W): norm = knorm + alpha / nsize * (sum of x^2 over nsize channels around it). Outputs x "
               "norm^-beta, norm",
    .source = "MXNet 1.9.1 src/operator/nn/lrn.cc",
});

const Operator kL2Normalization({
    .name = "L2Normalization",
    .outputs = 2,
    .attributes = &kSchema<L2NormalizationAttributes>,
    .infer = infer_l2_normalization,
    .facts = layer_facts(rows_of_first_input),
    .oracle = compute_l2_normalization,
    .formula = "data: root = sqrt(sum of x^2 + eps). Outputs x / root, root",
    .source = "MXNet 1.9.1 src/operator/l2_normalization-inl.h",
});

}  // namespace ops

}  // namespace shoal::worker

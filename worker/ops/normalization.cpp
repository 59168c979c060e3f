// BatchNorm, LayerNorm, GroupNorm, LRN, L2Normalization.
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

Status infer_layer_norm(const Node& node, SourceValues src, ResultValues dst) {
  const TypedValue& data = src[0];
  SHOAL_RETURN_IF_ERROR(check_float(node, data));
  SHOAL_ASSIGN_OR_RETURN(const int axis, normalize_axis(node, node.attributes.get<LayerNormAttributes>().axis, data.shape));
  SHOAL_RETURN_IF_ERROR(check_same_dtype(node, src));
  SHOAL_RETURN_IF_ERROR(check_shape(node, "gamma", src[1], SymbolicShape{data.shape[axis]}));
  SHOAL_RETURN_IF_ERROR(check_shape(node, "beta", src[2], SymbolicShape{data.shape[axis]}));
  SymbolicShape statistics = data.shape;
  statistics[axis] = 1;
  set_result(dst[0], data.dtype, data.shape);
  set_result(dst[1], data.dtype, statistics);
  set_result(dst[2], data.dtype, statistics);
  return {};
}

void layer_norm_parameters(const Node& node, std::span<TypedValue> src) {
  const TypedValue& data = src[0];
  const Result<int> axis = normalize_axis(node, node.attributes.get<LayerNormAttributes>().axis, data.shape);
  if (!axis.ok()) return;
  for (TypedValue& parameter : src.subspan(1)) supply(parameter, data.dtype, SymbolicShape{data.shape[*axis]});
}

/// How many groups the channels of the data make.
Dim group_count(const GroupNormAttributes& norm, const SymbolicShape& data) {
  return norm.groups == 0 ? data[1] : Dim(norm.groups);
}

Status infer_group_norm(const Node& node, SourceValues src, ResultValues dst) {
  const auto& norm = node.attributes.get<GroupNormAttributes>();
  const TypedValue& data = src[0];
  SHOAL_RETURN_IF_ERROR(check_float(node, data));
  SHOAL_RETURN_IF_ERROR(check_rank(node, data, 3));
  SHOAL_RETURN_IF_ERROR(check_same_dtype(node, src));
  if (norm.groups < 0 || (norm.groups > 0 && known_indivisible(data.shape[1], norm.groups))) {
    return invalid_argument("{}: the channels of '{}' ({}) cannot be divided into {} groups", describe(node), data.name,
                            data.shape.to_string(), norm.groups);
  }
  const SymbolicShape groups{group_count(norm, data.shape)}, channels{data.shape[1]};
  if (known_unequal(src[1].shape, channels)) SHOAL_RETURN_IF_ERROR(check_shape(node, "gamma", src[1], groups));
  SHOAL_RETURN_IF_ERROR(check_shape(node, "beta", src[2], src[1].shape));
  set_result(dst[0], data.dtype, data.shape);
  set_result(dst[1], data.dtype, SymbolicShape{data.shape[0], groups[0]});
  set_result(dst[2], data.dtype, SymbolicShape{data.shape[0], groups[0]});
  return {};
}

void group_norm_parameters(const Node& node, std::span<TypedValue> src) {
  const TypedValue& data = src[0];
  if (is_open(data.shape) || data.shape.rank() < 2) return;
  const Dim groups = group_count(node.attributes.get<GroupNormAttributes>(), data.shape);
  for (TypedValue& parameter : src.subspan(1)) supply(parameter, data.dtype, SymbolicShape{groups});
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

/// The mean of `size` elements that are `stride` apart, and their mean squared distance from it.
struct Spread {
  double mean = 0, variance = 0;
};
template <typename T>
Spread spread_of(const T* x, std::int64_t size, std::int64_t stride) {
  const auto at = [=](std::int64_t i) { return static_cast<double>(static_cast<Compute<T>>(x[i * stride])); };
  Spread spread;
  for (std::int64_t i = 0; i < size; ++i) spread.mean += at(i);
  spread.mean /= static_cast<double>(size);
  for (std::int64_t i = 0; i < size; ++i) spread.variance += (at(i) - spread.mean) * (at(i) - spread.mean);
  spread.variance /= static_cast<double>(size);
  return spread;
}

/// (x - mean) / root * gamma + beta.
template <typename T>
T normalized(T x, const Spread& spread, double root, T gamma, T beta) {
  using F = Compute<T>;
  const auto unit = static_cast<F>((static_cast<double>(static_cast<F>(x)) - spread.mean) / root);
  return to_element<T>(unit * static_cast<F>(gamma) + static_cast<F>(beta));
}

template <typename T>
void layer_norm(const LayerNormAttributes& norm, Sources src, Results dst) {
  const AxisView view(src[0].shape, positive_axis(norm.axis, src[0].shape));
  const T *const gamma = elements<T>(src[1]), *const beta = elements<T>(src[2]);
  for (std::int64_t outer = 0; outer < view.outer; ++outer) {
    for (std::int64_t inner = 0; inner < view.inner; ++inner) {
      const std::int64_t at = outer * view.size * view.inner + inner, row = outer * view.inner + inner;
      const T* const x = elements<T>(src[0]) + at;
      const Spread spread = spread_of(x, view.size, view.inner);
      const double root = std::sqrt(spread.variance + norm.eps);
      if (dst[1].data) elements<T>(dst[1])[row] = to_element<T>(spread.mean);
      if (dst[2].data) elements<T>(dst[2])[row] = to_element<T>(root);
      if (!dst[0].data) continue;
      T* const y = elements<T>(dst[0]) + at;
      for (std::int64_t i = 0; i < view.size; ++i)
        y[i * view.inner] = normalized(x[i * view.inner], spread, root, gamma[i], beta[i]);
    }
  }
}

/// A group is contiguous: some channels, each `inner` elements.
template <typename T>
void group_norm(const GroupNormAttributes& norm, Sources src, Results dst) {
  const AxisView view(src[0].shape, 1);
  const std::int64_t groups = norm.groups == 0 ? view.size : norm.groups, channels = groups == 0 ? 0 : view.size / groups;
  const bool by_channel = src[1].shape[0] == view.size;  // else by group
  const T *const gamma = elements<T>(src[1]), *const beta = elements<T>(src[2]);
  for (std::int64_t row = 0; row < view.outer * groups; ++row) {
    const std::int64_t at = row * channels * view.inner;
    const T* x = elements<T>(src[0]) + at;
    const Spread spread = spread_of(x, channels * view.inner, 1);
    const double root = std::sqrt(spread.variance + norm.eps);
    if (dst[1].data) elements<T>(dst[1])[row] = to_element<T>(spread.mean);
    if (dst[2].data) elements<T>(dst[2])[row] = to_element<T>(norm.gives_variance ? spread.variance : root);
    if (!dst[0].data) continue;
    T* y = elements<T>(dst[0]) + at;
    for (std::int64_t channel = 0; channel < channels; ++channel) {
      const std::int64_t group = row % groups, k = by_channel ? group * channels + channel : group;
      for (std::int64_t i = 0; i < view.inner; ++i) *y++ = normalized(*x++, spread, root, gamma[k], beta[k]);
    }
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

Status compute_layer_norm(const Node& node, Sources src, Results dst) {
  return dispatch<Floats>(node, src[0].dtype, [&]<typename T>() {
    layer_norm<T>(node.attributes.get<LayerNormAttributes>(), src, dst);
    return Status();
  });
}

Status compute_group_norm(const Node& node, Sources src, Results dst) {
  return dispatch<Floats>(node, src[0].dtype, [&]<typename T>() {
    group_norm<T>(node.attributes.get<GroupNormAttributes>(), src, dst);
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

bool layer_norm_rows(const BatchedNode& batched) {
  return batched.only_first_has_rows() && !batched.is_of_rows(batched.node.attributes.get<LayerNormAttributes>().axis);
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
    .facts = layer_facts(batch_norm_rows, work_of_elements, Accuracy::kKept),
    .oracle = compute_batch_norm,
    .formula = "data, gamma, beta, mean, var (one per channel): y = (x - mean) / sqrt(var + eps) * gamma + beta, always with "
               "these statistics. Outputs y, mean, 1 / sqrt(var + eps)",
    .source = "MXNet 1.9.1 src/operator/nn/batch_norm.cc",
});

const Operator kLayerNorm({
    .name = "LayerNorm",
    .inputs = 3,
    .outputs = 3,
    .attributes = &kSchema<LayerNormAttributes>,
    .infer = infer_layer_norm,
    .infer_parameters = layer_norm_parameters,
    .constant_types = ConstantTypes::kAsData,
    .facts = layer_facts(layer_norm_rows, work_of_elements, Accuracy::kLost),
    .oracle = compute_layer_norm,
    .formula =
        "data, gamma, beta (one per element of the axis): root = sqrt(variance + eps), y = (x - mean) / root * gamma + beta. "
        "Outputs y, mean, root",
    .source = "MXNet 1.9.1 src/operator/nn/layer_norm-inl.h",
});

const Operator kGroupNorm({
    .name = "GroupNorm",
    .inputs = 3,
    .outputs = 3,
    .attributes = &kSchema<GroupNormAttributes>,
    .infer = infer_group_norm,
    .infer_parameters = group_norm_parameters,
    .constant_types = ConstantTypes::kAsData,
    .facts = layer_facts(rows_of_first_input, work_of_elements, Accuracy::kLost),
    .oracle = compute_group_norm,
    .formula =
        "data (N, C, ...), gamma, beta (one per group, or one per channel): as LayerNorm over each group of channels of an "
        "image. Outputs y, mean, root (N, groups)",
    .source = "MXNet 1.9.1 src/operator/nn/group_norm-inl.h, instance_norm-inl.h",
});

const Operator kLrn({
    .name = "LRN",
    .outputs = 2,
    .attributes = &kSchema<LrnAttributes>,
    .infer = infer_lrn,
    .constant_types = ConstantTypes::kAsData,
    .facts = layer_facts(rows_of_first_input, work_of_pairs, Accuracy::kKept),
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
    .facts = layer_facts(rows_of_first_input, work_of_elements, Accuracy::kLost),
    .oracle = compute_l2_normalization,
    .formula = "data: root = sqrt(sum of x^2 + eps). Outputs x / root, root",
    .source = "MXNet 1.9.1 src/operator/l2_normalization-inl.h",
});

}  // namespace ops

}  // namespace shoal::worker

// Shape rules of the layers: convolution, fully connected, normalization, pooling, softmax.
#include <algorithm>
#include <string>

#include "shm/base/errors.hpp"
#include "shm/base/ranges.hpp"
#include "worker/graph/axes.hpp"
#include "worker/graph/shapes.hpp"

namespace shoal::worker {
namespace {

/// The shape of the weight for data of this shape; a dimension that the data does not determine is -1.
Shape convolution_weight(const ConvolutionAttributes& conv, const Shape& data) {
  std::vector<std::int64_t> dims{conv.num_filter, data[1] / conv.num_group};
  dims.insert(dims.end(), conv.kernel.begin(), conv.kernel.end());
  return Shape(dims);
}

Shape fully_connected_weight(const FullyConnectedAttributes& fc, const Shape& data) {
  if (!fc.flatten) return {fc.num_hidden, data[data.rank() - 1]};
  return {fc.num_hidden, Shape(data.dims().subspan(1)).element_count()};  // -1 where the data is open, or too large
}

/// Channels of one PReLU slope array: axis 1, or axis 0 of 1-D data.
int slope_axis(const Shape& data) { return data.rank() > 1 ? 1 : 0; }

/// Sets a parameter's shape when it is not known yet.
void supply(Value& parameter, DType dtype, const Shape& shape) {
  if (is_open(parameter.shape)) set_result(parameter, dtype, shape);
}

DType statistics_type(DType data) { return data == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32; }

/// Kernels count the positions of a window in the padded image: a padded image may not be larger than a tensor. `first` is the
/// first axis of space. The numbers of `pad` have been checked.
Status check_padded(const Node& node, const Dims& pad, const Value& data, int first) {
  std::int64_t positions = 1;
  for (std::size_t i = 0; i < pad.size(); ++i) {
    const std::int64_t padded = data.shape[first + static_cast<int>(i)] + 2 * pad[i];
    const auto product = checked_multiply(positions, padded);
    if (!product || *product > kMaxElements) {
      return invalid_argument("{}: with pad {} '{}' ({}) has more than {} positions", describe(node), to_text(pad), data.name,
                              data.shape.to_string(), kMaxElements);
    }
    positions = *product;
  }
  return {};
}

/// Number of output positions along one pooled axis of extent `size`.
std::int64_t pooled(const PoolingAttributes& pool, std::size_t axis, std::int64_t size) {
  const std::int64_t padded = size + 2 * pool.pad[axis], room = padded - pool.kernel[axis], stride = pool.stride[axis];
  if (pool.convention == PoolingConvention::kOld) return std::min(room + stride - 1, padded - 1) / stride + 1;
  return 1 + (pool.convention == PoolingConvention::kFull ? (room + stride - 1) / stride : room / stride);
}

}  // namespace

Status infer_convolution(const Node& node, SourceValues src, ResultValues dst) {
  const auto& conv = std::get<ConvolutionAttributes>(node.attributes);
  const Value& data = *src[0];
  SHOAL_RETURN_IF_ERROR(check_float(node, data));
  SHOAL_RETURN_IF_ERROR(check_same_dtype(node, src));
  const int spatial = static_cast<int>(conv.kernel.size());
  if (data.shape.rank() != spatial + 2) {
    return invalid_argument("{}: '{}' has shape {}; a kernel of {} dimensions needs {} axes (batch, channels, space)",
                            describe(node), data.name, data.shape.to_string(), spatial, spatial + 2);
  }
  SHOAL_RETURN_IF_ERROR(check_numbers(node, "kernel", conv.kernel, 1));
  SHOAL_RETURN_IF_ERROR(check_numbers(node, "stride", conv.stride, 1));
  SHOAL_RETURN_IF_ERROR(check_numbers(node, "dilate", conv.dilate, 1));
  SHOAL_RETURN_IF_ERROR(check_numbers(node, "pad", conv.pad, 0));
  SHOAL_RETURN_IF_ERROR(check_numbers(node, "num_group", {conv.num_group}, 1));
  SHOAL_RETURN_IF_ERROR(check_padded(node, conv.pad, data, 2));
  if (data.shape[1] % conv.num_group != 0 || conv.num_filter % conv.num_group != 0) {
    return invalid_argument("{}: num_group {} does not divide the {} channels of '{}' ({}) and the {} filters", describe(node),
                            conv.num_group, data.shape[1], data.name, data.shape.to_string(), conv.num_filter);
  }
  SHOAL_RETURN_IF_ERROR(check_shape(node, "weight", *src[1], convolution_weight(conv, data.shape)));
  if (src.size() == 3) SHOAL_RETURN_IF_ERROR(check_shape(node, "bias", *src[2], Shape{conv.num_filter}));

  Shape out = data.shape;
  out[1] = conv.num_filter;
  for (int i = 0; i < spatial; ++i) {
    const auto axis = static_cast<std::size_t>(i);
    const std::int64_t extent = conv.dilate[axis] * (conv.kernel[axis] - 1) + 1;
    const std::int64_t padded = data.shape[i + 2] + 2 * conv.pad[axis];
    if (extent > padded) {
      return invalid_argument("{}: kernel {} with dilate {} spans {}, more than the {} of axis {} of '{}' ({}) with padding",
                              describe(node), conv.kernel[axis], conv.dilate[axis], extent, padded, i + 2, data.name,
                              data.shape.to_string());
    }
    out[i + 2] = (padded - extent) / conv.stride[axis] + 1;
  }
  set_result(*dst[0], data.dtype, out);
  return {};
}

void convolution_parameters(const Node& node, std::span<Value* const> src) {
  const auto& conv = std::get<ConvolutionAttributes>(node.attributes);
  const Value& data = *src[0];
  if (data.shape.rank() != static_cast<int>(conv.kernel.size()) + 2) return;
  supply(*src[1], data.dtype, convolution_weight(conv, data.shape));
  if (src.size() == 3) supply(*src[2], data.dtype, Shape{conv.num_filter});
}

Status infer_fully_connected(const Node& node, SourceValues src, ResultValues dst) {
  const auto& fc = std::get<FullyConnectedAttributes>(node.attributes);
  const Value& data = *src[0];
  SHOAL_RETURN_IF_ERROR(check_float(node, data));
  SHOAL_RETURN_IF_ERROR(check_same_dtype(node, src));
  if (data.shape.rank() == 0) return invalid_argument("{}: '{}' is a scalar", describe(node), data.name);
  SHOAL_RETURN_IF_ERROR(check_shape(node, "weight", *src[1], fully_connected_weight(fc, data.shape)));
  if (src.size() == 3 && src[2]->shape != Shape{fc.num_hidden, 1}) {
    SHOAL_RETURN_IF_ERROR(check_shape(node, "bias", *src[2], Shape{fc.num_hidden}));
  }
  Shape out{data.shape[0], fc.num_hidden};
  if (!fc.flatten) {
    out = data.shape;
    out[out.rank() - 1] = fc.num_hidden;
  }
  set_result(*dst[0], data.dtype, out);
  return {};
}

void fully_connected_parameters(const Node& node, std::span<Value* const> src) {
  const auto& fc = std::get<FullyConnectedAttributes>(node.attributes);
  const Value& data = *src[0];
  if (data.shape.rank() == 0) return;
  supply(*src[1], data.dtype, fully_connected_weight(fc, data.shape));
  if (src.size() == 3) supply(*src[2], data.dtype, Shape{fc.num_hidden});
}

Status infer_batch_norm(const Node& node, SourceValues src, ResultValues dst) {
  const Value& data = *src[0];
  SHOAL_RETURN_IF_ERROR(check_float(node, data));
  SHOAL_ASSIGN_OR_RETURN(const int axis, normalize_axis(node, std::get<BatchNormAttributes>(node.attributes).axis, data.shape));
  const Shape channels{data.shape[axis]};
  const DType type = statistics_type(data.dtype);
  constexpr const char* kRoles[] = {"data", "gamma", "beta", "moving_mean", "moving_var"};
  for (std::size_t i = 1; i < src.size(); ++i) {
    SHOAL_RETURN_IF_ERROR(check_shape(node, kRoles[i], *src[i], channels));
    if (src[i]->dtype != type) {
      return invalid_argument("{}: {} '{}' is {}; {} is needed with {} data", describe(node), kRoles[i], src[i]->name,
                              dtype_name(src[i]->dtype), dtype_name(type), dtype_name(data.dtype));
    }
  }
  set_result(*dst[0], data.dtype, data.shape);
  set_result(*dst[1], type, channels);
  set_result(*dst[2], type, channels);
  return {};
}

void batch_norm_parameters(const Node& node, std::span<Value* const> src) {
  const Value& data = *src[0];
  const Result<int> axis = normalize_axis(node, std::get<BatchNormAttributes>(node.attributes).axis, data.shape);
  if (!axis.ok()) return;
  for (Value* parameter : src.subspan(1)) supply(*parameter, statistics_type(data.dtype), Shape{data.shape[*axis]});
}

Status infer_leaky(const Node& node, SourceValues src, ResultValues dst) {
  const Value& data = *src[0];
  SHOAL_RETURN_IF_ERROR(check_float(node, data));
  if (src.size() == 2) {
    const Value& gamma = *src[1];
    SHOAL_RETURN_IF_ERROR(check_rank(node, data, 1));
    SHOAL_RETURN_IF_ERROR(check_float(node, gamma));
    if (gamma.dtype != data.dtype && gamma.dtype != DType::kFloat32) {
      return invalid_argument("{}: slopes '{}' are {}; {} or float32 is needed with {} data", describe(node), gamma.name,
                              dtype_name(gamma.dtype), dtype_name(data.dtype), dtype_name(data.dtype));
    }
    if (!slopes_along(gamma.shape, data.shape)) {
      return invalid_argument("{}: slopes '{}' of shape {} do not fit '{}' of shape {}", describe(node), gamma.name,
                              gamma.shape.to_string(), data.name, data.shape.to_string());
    }
  }
  set_result(*dst[0], data.dtype, data.shape);
  return {};
}

void leaky_parameters(const Node&, std::span<Value* const> src) {
  const Value& data = *src[0];
  if (src.size() == 2 && data.shape.rank() > 0) {
    supply(*src[1], statistics_type(data.dtype), Shape{data.shape[slope_axis(data.shape)]});
  }
}

Status infer_pooling(const Node& node, SourceValues src, ResultValues dst) {
  const auto& pool = std::get<PoolingAttributes>(node.attributes);
  const Value& data = *src[0];
  SHOAL_RETURN_IF_ERROR(check_float(node, data));
  const int rank = data.shape.rank(), spatial = rank - 2;
  const bool rank_fits = pool.global ? spatial >= 1 && spatial <= 3 : spatial == static_cast<int>(pool.kernel.size());
  if (!rank_fits) {
    return invalid_argument("{}: '{}' has shape {}; a kernel of {} dimensions needs batch, channels and as many axes of space",
                            describe(node), data.name, data.shape.to_string(), pool.kernel.size());
  }
  SHOAL_RETURN_IF_ERROR(check_numbers(node, "kernel", pool.kernel, 1));
  SHOAL_RETURN_IF_ERROR(check_numbers(node, "stride", pool.stride, 1));
  SHOAL_RETURN_IF_ERROR(check_numbers(node, "pad", pool.pad, 0));
  const int first = pool.channels_last ? 1 : 2;
  SHOAL_RETURN_IF_ERROR(check_padded(node, pool.pad, data, first));
  Shape out = data.shape;
  for (int i = 0; i < spatial; ++i) {
    const int axis = i + first;
    const auto k = static_cast<std::size_t>(i);
    if (pool.global) {
      out[axis] = 1;
      continue;
    }
    if (pool.kernel[k] > data.shape[axis] + 2 * pool.pad[k]) {
      return invalid_argument("{}: kernel {} exceeds the {} of axis {} of '{}' ({}) with padding {}", describe(node),
                              pool.kernel[k], data.shape[axis], axis, data.name, data.shape.to_string(), pool.pad[k]);
    }
    out[axis] = pooled(pool, k, data.shape[axis]);
  }
  set_result(*dst[0], data.dtype, out);
  return {};
}

Status infer_adaptive_pooling(const Node& node, SourceValues src, ResultValues dst) {
  const auto& pool = std::get<AdaptivePoolingAttributes>(node.attributes);
  const Value& data = *src[0];
  SHOAL_RETURN_IF_ERROR(check_float(node, data));
  SHOAL_RETURN_IF_ERROR(check_rank(node, data, 4, 4));
  set_result(*dst[0], data.dtype, Shape{data.shape[0], data.shape[1], pool.height, pool.width});
  return {};
}

Status infer_l2_normalization(const Node& node, SourceValues src, ResultValues dst) {
  const auto mode = std::get<L2NormalizationAttributes>(node.attributes).mode;
  const Value& data = *src[0];
  SHOAL_RETURN_IF_ERROR(check_float(node, data));
  SHOAL_RETURN_IF_ERROR(check_rank(node, data, mode == L2NormalizationMode::kInstance ? 1 : 3));
  Shape roots{data.shape[0]};
  if (mode == L2NormalizationMode::kChannel) {
    roots = data.shape;
    roots[1] = 1;
  } else if (mode == L2NormalizationMode::kSpatial) {
    roots = Shape{data.shape[0], data.shape[1]};
  }
  set_result(*dst[0], data.dtype, data.shape);
  set_result(*dst[1], data.dtype, roots);
  return {};
}

Status infer_lrn(const Node& node, SourceValues src, ResultValues dst) {
  const Value& data = *src[0];
  SHOAL_RETURN_IF_ERROR(check_float(node, data));
  SHOAL_RETURN_IF_ERROR(check_rank(node, data, 4, 4));
  set_result(*dst[0], data.dtype, data.shape);
  set_result(*dst[1], data.dtype, data.shape);
  return {};
}

Status infer_softmax(const Node& node, SourceValues src, ResultValues dst) {
  const auto& softmax = std::get<SoftmaxAttributes>(node.attributes);
  const Value& data = *src[0];
  SHOAL_RETURN_IF_ERROR(check_float(node, data));
  SHOAL_RETURN_IF_ERROR(check_rank(node, data, softmax.least_rank));
  if (!softmax.flatten_rest || softmax.use_length) {
    SHOAL_ASSIGN_OR_RETURN(const int axis, normalize_axis(node, softmax.axis, data.shape));
    if (softmax.use_length) {
      if (src.size() != 2) return invalid_argument("{}: use_length is set and there is no length input", describe(node));
      if (src[1]->dtype != DType::kInt32 && src[1]->dtype != DType::kInt64) {
        return invalid_argument("{}: length '{}' is {}; int32 or int64 is needed", describe(node), src[1]->name,
                                dtype_name(src[1]->dtype));
      }
      std::vector<std::int64_t> dims(data.shape.begin(), data.shape.end());
      dims.erase(dims.begin() + axis);
      if (dims.empty()) dims.push_back(1);
      SHOAL_RETURN_IF_ERROR(check_shape(node, "length", *src[1], Shape(dims)));
    }
  }
  set_result(*dst[0], softmax.dtype.value_or(data.dtype), data.shape);
  return {};
}

}  // namespace shoal::worker

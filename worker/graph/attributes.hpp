// The typed attributes of Shoal's operators. One struct per family; operators without any use std::monostate.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "shoal/tensor.hpp"

namespace shoal::worker {

using Dims = std::vector<std::int64_t>;

/// "Convolution": inputs data (N,C,spatial), weight (num_filter, C/num_group, kernel), [bias]; 1, 2 or 3 spatial axes.
/// The tuples always have one entry per spatial axis.
struct ConvolutionAttributes {
  Dims kernel, stride, dilate, pad;
  std::int64_t num_filter = 0, num_group = 1;
};

/// "FullyConnected": data, weight (num_hidden, in), [bias]; y = x W^T + b.
struct FullyConnectedAttributes {
  std::int64_t num_hidden = 0;
  bool flatten = true;  ///< data viewed as (d0, rest); false: the last axis is contracted, leading axes kept
};

/// "BatchNorm": data, gamma, beta, mean, var; outputs y, mean, inverse standard deviation. Always the moving statistics.
struct BatchNormAttributes {
  double eps = 1e-3;
  bool fix_gamma = true;  ///< gamma counts as 1 whatever it holds
  std::int64_t axis = 1;
};

/// "Activation": one input.
enum class ActivationKind { kRelu, kSigmoid, kTanh, kSoftRelu, kSoftSign };
struct ActivationAttributes {
  ActivationKind kind = ActivationKind::kRelu;
};

/// "Pooling": data (N,C,spatial) or, channels_last, (N,spatial,C). See reference/mxnet-operators.md for `legacy` (Pooling_v1).
enum class PoolingKind { kMax, kAvg, kSum, kLp };
enum class PoolingConvention { kValid, kFull, kSame };
struct PoolingAttributes {
  PoolingKind kind = PoolingKind::kMax;
  PoolingConvention convention = PoolingConvention::kValid;
  bool global = false;
  Dims kernel, stride, pad;  ///< one entry per spatial axis; empty when global
  std::int64_t p_value = 2;
  bool count_include_pad = true;
  bool channels_last = false;
  bool legacy = false;  ///< Pooling_v1: zeros in the border for max too, avg divides by the whole kernel
};

/// "Concat" over any number of inputs.
struct ConcatAttributes {
  std::int64_t axis = 1;  ///< may be negative
};

/// "Softmax": kind over `axis`, or over the flattened rest / the channel axis as output heads do it.
enum class SoftmaxKind { kSoftmax, kLogSoftmax, kSoftmin };
struct SoftmaxAttributes {
  SoftmaxKind kind = SoftmaxKind::kSoftmax;
  std::int64_t axis = -1;
  bool flatten_rest = false;  ///< over all axes after the first together (SoftmaxOutput's default)
  double temperature = 1;
  bool use_length = false;     ///< second input: lengths, shape = data's without `axis`
  std::optional<DType> dtype;  ///< of the output; none = the data's
};

/// "LRN" across channels.
struct LrnAttributes {
  double alpha = 1e-4, beta = 0.75, knorm = 2;
  std::int64_t nsize = 5;
};

/// "Reshape" with MXNet's codes (0, -1, -2, -3, -4), which ONNX's are a subset of.
struct ReshapeAttributes {
  Dims shape;
  bool reverse = false;
  bool legacy_target = false;  ///< `shape` is target_shape: a single 0 is inferred
  bool keep_highest = false;
};

/// "Cast".
struct CastAttributes {
  DType dtype = DType::kFloat32;
  bool floats_only = false;  ///< amp_cast: other types pass through
};

/// Scalar family ("AddScalar", "RSubScalar", ...).
struct ScalarAttributes {
  double scalar = 0;
  bool is_int = true;  ///< false: integer data becomes float64
};

/// "Clip".
struct ClipAttributes {
  double min = 0, max = 0;
};

/// "Transpose"; empty reverses.
struct TransposeAttributes {
  Dims axes;
};

/// "AmpMulticast".
struct MulticastAttributes {
  bool narrow = false;
};

/// "LeakyReLU": data, for prelu also gamma: 1-D along axis 1 (of 1-D data: axis 0) or of length 1; 2-D along axes 0 and 1.
enum class LeakyKind { kLeaky, kPrelu, kElu, kSelu, kGelu };
struct LeakyAttributes {
  LeakyKind kind = LeakyKind::kLeaky;
  double slope = 0.25;  ///< of leaky and elu
};

using Attributes =
    std::variant<std::monostate, ConvolutionAttributes, FullyConnectedAttributes, BatchNormAttributes, ActivationAttributes,
                 PoolingAttributes, ConcatAttributes, SoftmaxAttributes, LrnAttributes, ReshapeAttributes, CastAttributes,
                 ScalarAttributes, ClipAttributes, TransposeAttributes, MulticastAttributes, LeakyAttributes>;

}  // namespace shoal::worker

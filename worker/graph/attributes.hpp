// The typed attributes of Shoal's operators. One struct per family; operators without any use std::monostate. Devices
// recognize a family by its struct. So an operator that others register must not use one of these; it has CustomAttributes.
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
  bool fix_gamma = true;  ///< gamma counts as 1, whatever its value
  std::int64_t axis = 1;
};

/// "Activation": one input. Integers as in Unary.
enum class ActivationKind { kRelu, kSigmoid, kTanh, kSoftRelu, kSoftSign };
struct ActivationAttributes {
  ActivationKind kind = ActivationKind::kRelu;
};

/// "Pooling": data (N,C,spatial) or, channels_last, (N,spatial,C).
enum class PoolingKind { kMax, kAvg, kSum, kLp };
enum class PoolingConvention {
  kValid,  ///< windows that lie within the padded data
  kFull,   ///< like kValid, and one window that overhangs
  kSame,
  kOld,  ///< as kFull, but every window begins within the padded data: MXNet before 0.8
};
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
  bool flatten_rest = false;  ///< runs over all axes after the first together (SoftmaxOutput's default)
  int least_rank = 1;         ///< of the data
  double temperature = 1;
  bool use_length = false;     ///< second input: lengths, shape = data's without `axis`
  std::optional<DType> dtype;  ///< of the output; none = the data's
};

/// "L2Normalization": data / sqrt(sum of squares + eps); outputs the result and the root. The sum runs over everything but the
/// batch, over axis 1, or over the axes behind it.
enum class L2NormalizationMode { kInstance, kChannel, kSpatial };
struct L2NormalizationAttributes {
  double eps = 1e-10;
  L2NormalizationMode mode = L2NormalizationMode::kInstance;
};

/// "AdaptiveAvgPooling" of (N,C,H,W): window i of n covers floor(i H / n) up to ceil((i + 1) H / n).
struct AdaptivePoolingAttributes {
  std::int64_t height = 1, width = 1;
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

/// A function of two numbers a and b. Comparisons and logic give 0 or 1 in the type of the operands.
enum class BinaryKind {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMod,  ///< the sign of b, as in Python; a mod 0 is 0
  kPower,
  kMaximum,  ///< NaN when a or b is NaN
  kMinimum,
  kHypot,
  kEqual,
  kNotEqual,
  kGreater,
  kGreaterEqual,
  kLesser,
  kLesserEqual,
  kLogicalAnd,
  kLogicalOr,
  kLogicalXor,
  kSmoothL1,  ///< b^2 a^2 / 2 where |a| <= 1 / b^2, else |a| - 1 / (2 b^2)
};

/// "Binary": a, b. With broadcast by NumPy's rule, else of equal shapes.
struct BinaryAttributes {
  BinaryKind kind = BinaryKind::kAdd;
  bool broadcast = false;
};

/// "Scalar": Binary of the data and one number.
struct ScalarAttributes {
  BinaryKind kind = BinaryKind::kAdd;
  double scalar = 0;
  bool reversed = false;  ///< the number is a, the data b
  bool is_int = true;     ///< false: integer data becomes float64
};

/// "Unary": one input, output like it. Integers are computed in float32 and truncated, unless the result is always whole.
enum class UnaryKind {
  kAbs,
  kNegative,
  kSign,
  kSquare,
  kLogicalNot,
  kFloor,
  kCeil,
  kTrunc,
  kRound,  ///< halves away from zero
  kRint,   ///< halves to the lower integer
  kReciprocal,
  kSqrt,
  kRsqrt,
  kCbrt,
  kRcbrt,
  kExp,
  kExpm1,
  kLog,
  kLog2,
  kLog10,
  kLog1p,
  kSin,
  kCos,
  kTan,
  kArcsin,
  kArccos,
  kArctan,
  kSinh,
  kCosh,
  kArcsinh,
  kArccosh,
  kArctanh,
  kDegrees,
  kRadians,
  kErf,
  kErfinv,
  kGamma,
  kGammaln,
};
struct UnaryAttributes {
  UnaryKind kind = UnaryKind::kAbs;
};

/// "HardSigmoid": alpha x + beta, cut to 0 .. 1; NaN passes.
struct HardSigmoidAttributes {
  double alpha = 0.2, beta = 0.5;
};

/// "Reduce".
enum class ReduceKind { kSum, kMean, kProd, kNanSum, kNanProd, kMax, kMin };
struct ReduceAttributes {
  ReduceKind kind = ReduceKind::kSum;
  Dims axes;              ///< may be negative; none: all, with or without `exclude`
  bool keepdims = false;  ///< reduced axes stay with extent 1; else they are removed, and a full reduction has shape (1)
  bool exclude = false;   ///< the axes that are not listed are reduced
};

/// "Clip".
struct ClipAttributes {
  double min = 0, max = 0;
};

/// "Transpose"; empty reverses.
struct TransposeAttributes {
  Dims axes;
};

/// "SwapAxes"; may be negative.
struct SwapAxesAttributes {
  std::int64_t first = 0, second = 0;
};

/// "Slice": takes the elements begin, begin + step, ... before end of each listed axis, as NumPy does.
struct SliceRange {
  std::int64_t axis = 0;  ///< may be negative
  std::optional<std::int64_t> begin, end;
  std::int64_t step = 1;
};
struct SliceAttributes {
  std::vector<SliceRange> ranges;
  bool clips = true;  ///< a range beyond the axis is cut off; false: it is an error
};

/// "Split" into as many equal parts as the node has outputs.
struct SplitAttributes {
  std::int64_t axis = 1;  ///< may be negative
  std::int64_t parts = 1;
  bool squeeze = false;  ///< the parts lose the axis, which must then be 1 long
};

/// "Pad": two widths per axis, before and behind. The reflection does not repeat the border.
enum class PadMode { kConstant, kEdge, kReflect };
struct PadAttributes {
  PadMode mode = PadMode::kConstant;
  Dims widths;
  double value = 0;
};

/// "AmpMulticast".
struct MulticastAttributes {
  bool narrow = false;
};

/// "LeakyReLU": data; for prelu also gamma, whose axes slopes_along() defines.
enum class LeakyKind { kLeaky, kPrelu, kElu, kSelu, kGelu };
struct LeakyAttributes {
  LeakyKind kind = LeakyKind::kLeaky;
  double slope = 0.25;  ///< of leaky and elu
};

/// Any operator that is not Shoal's own (register_operator()).
struct CustomAttributes {
  double scalar = 0;
};

using Attributes =
    std::variant<std::monostate, ConvolutionAttributes, FullyConnectedAttributes, BatchNormAttributes, ActivationAttributes,
                 PoolingAttributes, ConcatAttributes, SoftmaxAttributes, LrnAttributes, ReshapeAttributes, CastAttributes,
                 BinaryAttributes, ScalarAttributes, UnaryAttributes, HardSigmoidAttributes, ReduceAttributes, ClipAttributes,
                 TransposeAttributes, MulticastAttributes, LeakyAttributes, L2NormalizationAttributes, AdaptivePoolingAttributes,
                 SwapAxesAttributes, SliceAttributes, SplitAttributes, PadAttributes, CustomAttributes>;

}  // namespace shoal::worker

// Layers: convolution, fully connected, normalization, pooling, activations, softmax and the heads of training graphs.
#include <algorithm>

#include "shm/base/format.hpp"
#include "worker/import/mxnet/lower_layers.hpp"
#include "worker/import/mxnet/mxnet_lowering.hpp"
#include "worker/ops/activation.hpp"
#include "worker/ops/convolution.hpp"
#include "worker/ops/fully_connected.hpp"
#include "worker/ops/normalization.hpp"
#include "worker/ops/pooling.hpp"
#include "worker/ops/softmax.hpp"

namespace shoal::worker {
namespace {

using Values = std::vector<ValueId>;

/// Checks the inputs: data, weight and, unless no_bias is set, bias.
void check_bias(MxnetLowering& lowering, bool no_bias) {
  const std::size_t wanted = no_bias ? 2 : 3;
  if (lowering.inputs.size() == wanted) return;
  lowering.attributes.fail_node(StatusCode::kInvalidArgument,
                                format("{} inputs; with no_bias={} it takes data, weight{}", lowering.inputs.size(),
                                       no_bias ? "True" : "False", no_bias ? "" : " and bias"));
}

}  // namespace

Dims kernel_tuple(AttributeReader& attributes, const char* key, std::size_t length, std::int64_t fill, std::int64_t least) {
  Dims dims = attributes.tuple(key, Dims{}, least);
  if (dims.empty()) dims.assign(length, fill);
  if (dims.size() != length) attributes.fail(key, format("has {} entries where kernel has {}", dims.size(), length));
  return dims;
}

void check_filters(MxnetLowering& lowering, std::size_t rank, bool no_bias) {
  AttributeReader& attributes = lowering.attributes;
  const std::size_t layout = attributes.choice("layout", {"None", "NCW", "NCHW", "NCDHW", "NWC", "NHWC", "NDHWC"}, 0);
  if (layout > 3) {
    attributes.fail_node(StatusCode::kUnimplemented,
                         "attribute layout: channels behind space are not supported (as on MXNet's CPU)");
  } else if (layout > 0 && layout != rank) {
    attributes.fail("layout", format("does not go with a kernel of {} dimensions", rank));
  }
  check_bias(lowering, attributes.flag("no_bias", no_bias));
  attributes.ignore({"workspace", "cudnn_tune", "cudnn_off"});
}

namespace {

Values convolution(MxnetLowering& lowering) {
  ConvolutionAttributes conv;
  read_filters(lowering, conv, /*no_bias=*/false);
  return lowering.add(ops::kConvolution, conv);
}

Values fully_connected(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  FullyConnectedAttributes fc;
  fc.num_hidden = attributes.integer("num_hidden", {}, 1);
  fc.flatten = attributes.flag("flatten", true);
  check_bias(lowering, attributes.flag("no_bias", false));
  return lowering.add(ops::kFullyConnected, fc);
}

Values batch_norm(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  BatchNormAttributes norm;
  norm.eps = attributes.number("eps", 1e-3);
  norm.fix_gamma = attributes.flag("fix_gamma", true);
  norm.axis = attributes.integer("axis", 1);
  attributes.number("momentum", 0.9);
  attributes.flag("use_global_stats", false);
  attributes.flag("output_mean_var", false);
  attributes.ignore({"cudnn_off", "min_calib_range", "max_calib_range", "ndev", "key"});
  return lowering.add(ops::kBatchNorm, norm);
}

/// The fourth output is a mask for training.
Values batch_norm_with_relu(MxnetLowering& lowering) {
  Values outputs = batch_norm(lowering);
  if (outputs.empty()) return {};  // the budget does not allow them
  const Values relu = lowering.add(ops::kActivation, ActivationAttributes{ActivationKind::kRelu}, {outputs[0]});
  if (relu.empty()) return {};
  outputs[0] = relu[0];
  outputs.push_back(kNoValue);
  return outputs;
}

Values activation_layer(MxnetLowering& lowering) {
  const auto kind = lowering.attributes.choice("act_type", {"relu", "sigmoid", "tanh", "softrelu", "softsign"});
  return lowering.add(ops::kActivation, ActivationAttributes{static_cast<ActivationKind>(kind)});
}

Values leaky(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  LeakyAttributes leaky;
  const auto kind = attributes.choice("act_type", {"leaky", "prelu", "elu", "selu", "gelu", "rrelu"}, 0);
  leaky.slope = attributes.real("slope", 0.25f);
  const float lower = attributes.real("lower_bound", 0.125f), upper = attributes.real("upper_bound", 0.334f);
  const bool random = kind == 5;
  if (random) leaky.slope = (lower + upper) / 2;  // inference uses the mean of the random slopes
  leaky.kind = random ? LeakyKind::kLeaky : static_cast<LeakyKind>(kind);
  const std::size_t wanted = leaky.kind == LeakyKind::kPrelu ? 2 : 1;
  if (lowering.inputs.size() != wanted) {
    attributes.fail_node(StatusCode::kInvalidArgument,
                         format("{} inputs; this act_type takes {}", lowering.inputs.size(), wanted));
  }
  Values outputs = lowering.add(ops::kLeakyRelu, leaky);
  if (random) outputs.push_back(kNoValue);  // the mask
  return outputs;
}

/// The attributes that Pooling and Pooling_v1 share.
PoolingAttributes window(AttributeReader& attributes) {
  PoolingAttributes pool;
  pool.global = attributes.flag("global_pool", false);
  pool.kernel = attributes.tuple("kernel", Dims{}, 1);
  const std::size_t rank = pool.kernel.size();
  if (!pool.global && rank == 0) attributes.fail("kernel", "is missing and global_pool is not set");
  if (rank > 3) attributes.fail("kernel", "has more than 3 entries");
  if (rank > 0) {
    pool.stride = kernel_tuple(attributes, "stride", rank, 1, 1);
    pool.pad = kernel_tuple(attributes, "pad", rank, 0, 0);
  } else {
    attributes.tuple("stride", Dims{}, 1);
    attributes.tuple("pad", Dims{}, 0);
  }
  if (pool.global) pool.kernel = pool.stride = pool.pad = {};
  return pool;
}

Values pooling(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  const std::size_t rank = [&] {
    const auto dims = attributes.has("kernel") ? parse_tuple(lowering.node.attributes.at("kernel")) : std::nullopt;
    return dims ? dims->size() : std::size_t{0};
  }();
  PoolingAttributes pool = window(attributes);
  pool.kind = static_cast<PoolingKind>(attributes.choice("pool_type", {"max", "avg", "sum", "lp"}, 0));
  pool.convention = static_cast<PoolingConvention>(attributes.choice("pooling_convention", {"valid", "full", "same"}, 0));
  if (pool.convention == PoolingConvention::kSame && !pool.global) {
    attributes.fail("pooling_convention", "has no working kernel in MXNet 1.9 and is not supported");
  }
  if (lowering.node.is_old_pooling) pool.convention = PoolingConvention::kOld;
  if (pool.kind == PoolingKind::kLp && !attributes.has("p_value"))
    attributes.fail("p_value", "is missing; pool_type lp needs it");
  if (attributes.has("p_value")) pool.p_value = attributes.integer("p_value", 2);
  if (pool.kind == PoolingKind::kLp && (pool.p_value < 1 || pool.p_value > 3)) attributes.fail("p_value", "is not 1, 2 or 3");
  if (attributes.has("count_include_pad")) pool.count_include_pad = attributes.flag("count_include_pad", true);
  const std::size_t layout = attributes.choice("layout", {"None", "NCW", "NCHW", "NCDHW", "NWC", "NHWC", "NDHWC"}, 0);
  pool.channels_last = layout > 3;
  if (layout > 0 && rank > 0 && (layout - 1) % 3 + 1 != rank) {
    attributes.fail("layout", format("does not go with a kernel of {} dimensions", rank));
  }
  if (attributes.has("output_size")) attributes.fail("output_size", "is not supported");  // an attribute of MXNet 2, usually None
  attributes.ignore({"cudnn_off", "p_value", "count_include_pad", "output_size"});
  Values outputs = lowering.add(ops::kPooling, pool);
  outputs.push_back(kNoValue);  // the workspace that a oneDNN build of MXNet adds
  return outputs;
}

Values pooling_v1(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  PoolingAttributes pool = window(attributes);
  if (!pool.kernel.empty() && pool.kernel.size() != 2) attributes.fail("kernel", "has not 2 entries");
  pool.kind = static_cast<PoolingKind>(attributes.choice("pool_type", {"max", "avg", "sum"}, 0));
  pool.convention = static_cast<PoolingConvention>(attributes.choice("pooling_convention", {"valid", "full"}, 0));
  pool.legacy = true;
  return lowering.add(ops::kPooling, pool);
}

Values lrn(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  LrnAttributes lrn;
  lrn.alpha = attributes.real("alpha", 1e-4f);
  lrn.beta = attributes.real("beta", 0.75f);
  lrn.knorm = attributes.real("knorm", 2.f);
  lrn.nsize = attributes.integer("nsize", {}, 1);
  if (lrn.nsize % 2 == 0) attributes.fail("nsize", "is not odd");
  return lowering.add(ops::kLrn, lrn);
}

template <SoftmaxKind kKind>
Values softmax(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  SoftmaxAttributes softmax;
  softmax.kind = kKind;
  softmax.axis = attributes.integer("axis", -1);
  if (attributes.has("temperature")) softmax.temperature = attributes.number("temperature", 1);
  if (attributes.has("dtype")) {
    if (attributes.choice("dtype", {"float16", "float32", "float64"}) < 3) softmax.dtype = attributes.dtype("dtype");
  }
  if (attributes.has("use_length")) softmax.use_length = attributes.flag("use_length", false);
  attributes.ignore({"temperature", "dtype", "use_length"});
  const std::size_t wanted = softmax.use_length ? 2 : 1;
  if (softmax.use_length && kKind != SoftmaxKind::kSoftmax) attributes.fail("use_length", "is for softmax only");
  if (lowering.inputs.size() != wanted) {
    attributes.fail_node(StatusCode::kInvalidArgument, format("{} inputs; with use_length={} it takes {}", lowering.inputs.size(),
                                                              softmax.use_length ? "True" : "False", wanted));
  }
  return lowering.add(ops::kSoftmax, softmax);
}

Values softmax_output(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  SoftmaxAttributes softmax;
  const bool channels = attributes.flag("multi_output", false), last = attributes.flag("preserve_shape", false);
  softmax.axis = channels ? 1 : -1;
  softmax.flatten_rest = !channels && !last;
  attributes.real("grad_scale", 1.f);
  attributes.real("ignore_label", -1.f);
  attributes.flag("use_ignore", false);
  attributes.flag("out_grad", false);
  attributes.real("smooth_alpha", 0.f);
  attributes.choice("normalization", {"null", "batch", "valid"}, 0);
  return lowering.add(ops::kSoftmax, softmax);
}

Values softmax_activation(MxnetLowering& lowering) {
  SoftmaxAttributes softmax;
  if (lowering.attributes.choice("mode", {"instance", "channel"}, 0) == 1) {
    softmax.axis = 1;
    softmax.least_rank = 3;
  }
  return lowering.add(ops::kSoftmax, softmax);
}

Values l2_normalization(MxnetLowering& lowering) {
  L2NormalizationAttributes norm;
  norm.eps = lowering.attributes.real("eps", 1e-10f);
  norm.mode = static_cast<L2NormalizationMode>(lowering.attributes.choice("mode", {"instance", "channel", "spatial"}, 0));
  return lowering.add(ops::kL2Normalization, norm);
}

Values adaptive_pooling(MxnetLowering& lowering) {
  const Dims size = lowering.attributes.tuple("output_size", Dims{}, 1);
  if (size.size() > 2) lowering.attributes.fail("output_size", "has more than 2 entries");
  AdaptivePoolingAttributes pool;
  if (!size.empty()) pool = {size.front(), size.back()};
  return lowering.add(ops::kAdaptiveAvgPooling, pool);
}

/// Regression heads return their data.
Values data_head(MxnetLowering& lowering) {
  lowering.attributes.ignore({"grad_scale", "margin", "regularization_coefficient", "use_linear"});
  return lowering.inputs;
}

Values logistic_head(MxnetLowering& lowering) {
  lowering.attributes.ignore({"grad_scale"});
  return lowering.add(ops::kActivation, ActivationAttributes{ActivationKind::kSigmoid});
}

}  // namespace

std::vector<MxnetOperator> layer_operators() {
  const std::vector<std::string> statistics{"output", "mean", "var"};
  const std::vector<std::string> weights{"weight", "bias"}, scales{"gamma", "beta", "moving_mean", "moving_var"};
  std::vector<MxnetOperator> all;
  add_aliases(all, {"", 2, 3, -1, convolution, -1, {}, weights}, {"Convolution", "_npx_convolution", "Convolution_v1"});
  add_aliases(all, {"", 2, 3, -1, fully_connected, -1, {}, weights}, {"FullyConnected", "_npx_fully_connected"});
  add_aliases(all, {"", 5, 5, -1, batch_norm, 3, statistics, scales},
              {"BatchNorm", "_npx_batch_norm", "BatchNorm_v1", "CuDNNBatchNorm", "_contrib_SyncBatchNorm"});
  all.push_back({"_contrib_BatchNormWithReLU", 5, 5, -1, batch_norm_with_relu, 3, {"output", "mean", "var", "mask"}, scales});
  add_aliases(all, {"", 1, 1, -1, activation_layer}, {"Activation", "_npx_activation"});
  add_aliases(all, {"", 1, 2, -1, leaky, -1, {"output", "mask"}, {"gamma"}}, {"LeakyReLU", "_npx_leaky_relu"});
  add_aliases(all, {"", 1, 1, -1, pooling, -1, {"output", "workspace"}}, {"Pooling", "_npx_pooling"});
  all.push_back({"Pooling_v1", 1, 1, -1, pooling_v1});
  all.push_back({"LRN", 1, 1, -1, lrn, -1, {"output", "tmp_norm"}});
  all.push_back({"L2Normalization", 1, 1, -1, l2_normalization, -1, {"output", "norm"}});
  all.push_back({"_contrib_AdaptiveAvgPooling2D", 1, 1, -1, adaptive_pooling});
  all.push_back({"SoftmaxActivation", 1, 1, -1, softmax_activation});
  add_aliases(all, {"", 1, 2, -1, softmax<SoftmaxKind::kSoftmax>}, {"softmax", "_npx_softmax"});
  add_aliases(all, {"", 1, 1, -1, softmax<SoftmaxKind::kLogSoftmax>}, {"log_softmax", "_npx_log_softmax"});
  all.push_back({"softmin", 1, 1, -1, softmax<SoftmaxKind::kSoftmin>});
  add_aliases(all, {"", 1, 2, 1, softmax_output}, {"SoftmaxOutput", "Softmax"});
  add_aliases(all, {"", 1, 2, 1, data_head}, {"LinearRegressionOutput", "MAERegressionOutput", "SVMOutput"});
  all.push_back({"LogisticRegressionOutput", 1, 2, 1, logistic_head});
  return all;
}

}  // namespace shoal::worker

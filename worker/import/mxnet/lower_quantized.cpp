// Quantized operators, as MXNet's quantization writes them: each number of 8 or 32 bits comes with the range that it stands for.
//
// They are computed with the real numbers between a Dequantize and a Quantize. MXNet computes with the quantized ones. Its
// results are at most one step away. The ranges, and how 8 bits divide them, are those of MXNet 1.9.1's build for CPUs.
#include <cstring>
#include <memory>
#include <optional>

#include "shm/base/format.hpp"
#include "worker/import/mxnet/mxnet_lowering.hpp"
#include "worker/ops/activation.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/cast.hpp"
#include "worker/ops/movement.hpp"
#include "worker/ops/normalization.hpp"
#include "worker/ops/quantization.hpp"
#include "worker/ops/reduce.hpp"
#include "worker/ops/reshape.hpp"
#include "worker/ops/selection.hpp"
#include "worker/ops/unary.hpp"

namespace shoal::worker {
namespace {

using Values = std::vector<ValueId>;

/// The ends of a range, each of shape (1).
struct Range {
  ValueId min = kNoValue, max = kNoValue;
};

struct Quantized {
  ValueId data = kNoValue;
  Range range;
};

/// Adds nodes with one output each. After an error all values are kNoValue, and nothing more is added.
class QuantizedLowering {
 public:
  explicit QuantizedLowering(MxnetLowering& lowering) : lowering_(lowering) {}

  ValueId add(const Operator& op, Attributes attributes, Values sources) {
    for (const ValueId source : sources) {
      if (source == kNoValue) return kNoValue;
    }
    const Values outputs = lowering_.add(op, std::move(attributes), std::move(sources));
    return outputs.empty() ? kNoValue : outputs[0];
  }
  ValueId binary(BinaryKind kind, ValueId a, ValueId b) { return add(ops::kBinary, BinaryAttributes{kind}, {a, b}); }
  ValueId broadcast(BinaryKind kind, ValueId a, ValueId b) { return add(ops::kBinary, BinaryAttributes{kind, true}, {a, b}); }
  ValueId scalar(BinaryKind kind, ValueId a, double number) {
    return add(ops::kScalar, ScalarAttributes{.kind = kind, .scalar = number}, {a});
  }
  ValueId negative(ValueId a) { return add(ops::kUnary, UnaryAttributes{UnaryKind::kNegative}, {a}); }

  /// A float32 of the file as a tensor of shape (1).
  ValueId number(float value) {
    if (const Status taken = lowering_.budget.take("a range", 1, value_bytes(lowering_.node.name)); !taken.ok()) {
      lowering_.attributes.fail_node(taken.code(), taken.message());
      return kNoValue;
    }
    const auto bytes = std::make_shared<std::vector<std::byte>>(sizeof value);
    std::memcpy(bytes->data(), &value, sizeof value);
    return lowering_.graph.add_value({.name = lowering_.node.name + "_range",
                                      .dtype = DType::kFloat32,
                                      .shape = Shape{1},
                                      .constant = Constant{DType::kFloat32, Shape{1}, *bytes, bytes}});
  }

  ValueId dequantize(ValueId data, const Range& range, bool half_more = false) {
    return add(ops::kDequantize, DequantizeAttributes{half_more}, {data, range.min, range.max});
  }
  ValueId dequantize(const Quantized& given) { return dequantize(given.data, given.range); }
  ValueId quantize(ValueId data, const Range& range, DType dtype, bool half_more = false) {
    return add(ops::kQuantize, QuantizeAttributes{dtype, half_more}, {data, range.min, range.max});
  }
  /// In the type of the others.
  ValueId quantize_like(ValueId data, const Range& range, const Values& others, bool half_more = false) {
    Values sources{data, range.min, range.max};
    sources.insert(sources.end(), others.begin(), others.end());
    return add(ops::kQuantize, QuantizeAttributes{.half_more = half_more}, std::move(sources));
  }

  /// The larger of |min| and |max|.
  ValueId reach(const Range& range) {
    const auto absolute = [this](ValueId value) { return add(ops::kUnary, UnaryAttributes{UnaryKind::kAbs}, {value}); };
    return binary(BinaryKind::kMaximum, absolute(range.min), absolute(range.max));
  }
  Range both_signs(ValueId reach) { return {negative(reach), reach}; }

  ValueId step_of(const Quantized& of) { return add(ops::kQuantizedStep, {}, {of.data, of.range.min, of.range.max}); }
  /// The range of numbers of 32 bits with that step.
  Range range_of_step(ValueId step) {
    constexpr double kMost = 2147483647;
    return both_signs(scalar(BinaryKind::kMul, step, kMost));
  }
  /// Of those of which one step is the product of a step of `a` and one of `b`.
  Range range_of_products(const Quantized& a, const Quantized& b) {
    return range_of_step(binary(BinaryKind::kMul, step_of(a), step_of(b)));
  }

  /// Reads a calibrated range; none: the file has none.
  std::optional<Range> calibrated() {
    AttributeReader& attributes = lowering_.attributes;
    const bool has = attributes.has("min_calib_range") && attributes.has("max_calib_range");
    attributes.ignore({"min_calib_range", "max_calib_range"});
    if (!has) return std::nullopt;
    const float min = attributes.real("min_calib_range"), max = attributes.real("max_calib_range");
    is_positive_ = min >= 0;
    return Range{number(min), number(max)};
  }
  /// The range of the real numbers of a run, all rows of a batch together, as MXNet takes it where none is calibrated.
  Range range_of(ValueId real) {
    const auto extreme = [&](ReduceKind kind) { return add(ops::kReduce, ReduceAttributes{.kind = kind}, {real}); };
    return {extreme(ReduceKind::kMin), extreme(ReduceKind::kMax)};
  }
  Range calibrated_or_range_of(ValueId real) {
    const auto range = calibrated();
    return range ? *range : range_of(real);
  }
  /// The type that `out_type` names; auto is uint8 where the range has no negative number.
  DType out_type(std::size_t missing) {
    const std::size_t type = lowering_.attributes.choice("out_type", {"auto", "int8", "uint8"}, missing);
    return type == 2 || (type == 0 && is_positive_) ? DType::kUInt8 : DType::kInt8;
  }

  /// The outputs of a node: quantized numbers and their range.
  Values outputs(ValueId data, const Range& range) const {
    return data == kNoValue || range.min == kNoValue || range.max == kNoValue ? Values() : Values{data, range.min, range.max};
  }

  /// Runs the lowering of another operator of MXNet, which has the attributes of this one, on these inputs.
  ValueId real(const char* op, Values sources) {
    for (const ValueId source : sources) {
      if (source == kNoValue) return kNoValue;
    }
    MxnetLowering inner{lowering_.graph, lowering_.node, lowering_.attributes, lowering_.budget, std::move(sources)};
    const Values outputs = find_mxnet_operator(op)->lower(inner);
    return outputs.empty() ? kNoValue : outputs[0];
  }

 private:
  MxnetLowering& lowering_;
  bool is_positive_ = false;
};

/// int8 is quantized symmetrically, and its range is given so.
Values quantize_within(QuantizedLowering& quantized, ValueId data, const Range& range, DType dtype, bool half_more = false) {
  const Range given = dtype == DType::kInt8 ? quantized.both_signs(quantized.reach(range)) : range;
  return quantized.outputs(quantized.quantize(data, given, dtype, half_more), given);
}

Values quantize(MxnetLowering& lowering) {
  QuantizedLowering quantized(lowering);
  const bool is_signed = lowering.attributes.choice("out_type", {"int8", "uint8"}, 1) == 0;
  return quantize_within(quantized, lowering.inputs[0], {lowering.inputs[1], lowering.inputs[2]},
                         is_signed ? DType::kInt8 : DType::kUInt8);
}

/// MXNet's CPU build divides the ranges of quantize_v2, dequantize, sums and products into 127.5 or 255.5 steps, and others into
/// 127 or 255.
Values quantize_v2(MxnetLowering& lowering) {
  QuantizedLowering quantized(lowering);
  const Range range = quantized.calibrated_or_range_of(lowering.inputs[0]);
  const DType dtype = quantized.out_type(1);
  return quantize_within(quantized, lowering.inputs[0], range, dtype, /*half_more=*/true);
}

Values dequantize(MxnetLowering& lowering) {
  lowering.attributes.choice("out_type", {"float32"}, 0);
  return lowering.add(ops::kDequantize, DequantizeAttributes{.half_more = true});
}

/// From 32 bits to 8.
Values requantize(MxnetLowering& lowering) {
  QuantizedLowering quantized(lowering);
  const ValueId real = quantized.dequantize(lowering.inputs[0], {lowering.inputs[1], lowering.inputs[2]});
  const Range range = quantized.calibrated_or_range_of(real);
  const DType dtype = quantized.out_type(1);
  const Range from_zero{quantized.number(0), quantized.reach(range)};
  return quantize_within(quantized, real, dtype == DType::kUInt8 ? from_zero : range, dtype);
}

/// Data, weights and bias, each with a range behind all of them.
struct QuantizedLayer {
  Quantized data, weight;
  std::optional<Quantized> bias;

  static QuantizedLayer of(MxnetLowering& lowering) {
    const Values& inputs = lowering.inputs;
    const bool no_bias = lowering.attributes.flag("no_bias", false);
    if (inputs.size() != (no_bias ? 6 : 9)) {
      lowering.attributes.fail_node(StatusCode::kInvalidArgument,
                                    format("{} inputs; with no_bias={} it takes {}", inputs.size(), no_bias ? "True" : "False",
                                           no_bias ? "data, weight and their ranges" : "data, weight, bias and their ranges"));
    }
    const std::size_t wanted = inputs.size() / 3;
    const auto input = [&](std::size_t i) { return Quantized{inputs[i], {inputs[wanted + 2 * i], inputs[wanted + 2 * i + 1]}}; };
    QuantizedLayer layer{input(0), input(1), std::nullopt};
    if (!no_bias) layer.bias = input(wanted - 1);
    return layer;
  }
};

/// The product is a number of 32 bits, of which one step is the product of a step of the data and one of the weights.
Values quantized_fully_connected(MxnetLowering& lowering) {
  QuantizedLowering quantized(lowering);
  const QuantizedLayer layer = QuantizedLayer::of(lowering);
  Values sources{quantized.dequantize(layer.data), quantized.dequantize(layer.weight)};
  if (layer.bias) sources.push_back(quantized.dequantize(*layer.bias));
  const ValueId real = quantized.real("FullyConnected", sources);
  const Range range = quantized.range_of_products(layer.data, layer.weight);
  return quantized.outputs(quantized.quantize(real, range, DType::kInt32), range);
}

/// As a layer. But MXNet 1.9.1 computes it for uint8 only (on CPUs), and then says a range as if the data were int8, and adds the
/// numbers of the bias as they are, whatever their range is. With int8 it computes on GPUs, as one expects.
Values quantized_convolution(MxnetLowering& lowering) {
  QuantizedLowering quantized(lowering);
  const QuantizedLayer layer = QuantizedLayer::of(lowering);
  const ValueId signed_step = quantized.scalar(BinaryKind::kDiv, quantized.reach(layer.data.range), 127);
  const ValueId step = quantized.step_of(layer.data), weight_step = quantized.step_of(layer.weight);
  Values sources{quantized.dequantize(layer.data), quantized.dequantize(layer.weight)};
  if (layer.bias) {
    const ValueId numbers = quantized.add(ops::kCast, CastAttributes{DType::kFloat32}, {layer.bias->data});
    const ValueId as_it_is =
        quantized.broadcast(BinaryKind::kMul, numbers, quantized.binary(BinaryKind::kMul, step, weight_step));
    const ValueId is_signed = quantized.broadcast(BinaryKind::kEqual, quantized.scalar(BinaryKind::kMul, numbers, 0),
                                                  quantized.binary(BinaryKind::kSub, step, signed_step));
    sources.push_back(quantized.add(ops::kWhere, WhereAttributes{}, {is_signed, quantized.dequantize(*layer.bias), as_it_is}));
  }
  const ValueId real = quantized.real("Convolution", sources);
  const Range range = quantized.range_of_step(quantized.binary(BinaryKind::kMul, step, weight_step));
  const Range said = quantized.range_of_step(quantized.binary(BinaryKind::kMul, signed_step, weight_step));
  return quantized.outputs(quantized.quantize(real, range, DType::kInt32), said);
}

Values quantized_pooling(MxnetLowering& lowering) {
  QuantizedLowering quantized(lowering);
  const Range range{lowering.inputs[1], lowering.inputs[2]};
  const ValueId pooled = quantized.real("Pooling", {quantized.dequantize(lowering.inputs[0], range)});
  return quantized.outputs(quantized.quantize_like(pooled, range, {lowering.inputs[0]}), range);
}

Values quantized_flatten(MxnetLowering& lowering) {
  QuantizedLowering quantized(lowering);
  return quantized.outputs(quantized.add(ops::kFlatten, {}, {lowering.inputs[0]}), {lowering.inputs[1], lowering.inputs[2]});
}

Values quantized_activation(MxnetLowering& lowering) {
  QuantizedLowering quantized(lowering);
  lowering.attributes.choice("act_type", {"relu"});
  const ValueId relu = quantized.add(ops::kActivation, ActivationAttributes{ActivationKind::kRelu}, {lowering.inputs[0]});
  // MXNet says int8 for uint8 too, and keeps the bytes.
  const ValueId bytes = quantized.add(ops::kCast, CastAttributes{DType::kInt8}, {relu});
  return quantized.outputs(bytes, {lowering.inputs[1], lowering.inputs[2]});
}

/// The range of the result contains 0 and the ranges of all pieces.
Values quantized_concat(MxnetLowering& lowering) {
  QuantizedLowering quantized(lowering);
  const Values& inputs = lowering.inputs;
  const std::size_t pieces = inputs.size() / 3;
  const std::int64_t axis = lowering.attributes.integer("dim", 1);
  const auto named = static_cast<std::size_t>(lowering.attributes.integer("num_args", static_cast<std::int64_t>(pieces), 1));
  if (inputs.size() % 3 != 0 || named != pieces) {
    lowering.attributes.fail("num_args", format("and the node has {} inputs: three are needed for each piece", inputs.size()));
    return {};
  }
  Values real;
  Range all{quantized.number(0), quantized.number(0)};
  for (std::size_t i = 0; i < pieces; ++i) {
    const Range range{inputs[pieces + 2 * i], inputs[pieces + 2 * i + 1]};
    real.push_back(quantized.dequantize(inputs[i], range));
    all = {quantized.binary(BinaryKind::kMinimum, all.min, range.min),
           quantized.binary(BinaryKind::kMaximum, all.max, range.max)};
  }
  const ValueId joined = quantized.add(ops::kConcat, ConcatAttributes{axis}, real);
  return quantized.outputs(
      quantized.quantize_like(joined, all, {inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(pieces)}), all);
}

/// Without a calibrated range the result has 32 bits and the range of both operands together.
Values quantized_add(MxnetLowering& lowering) {
  QuantizedLowering quantized(lowering);
  const Values& inputs = lowering.inputs;
  const Range left{inputs[2], inputs[3]}, right{inputs[4], inputs[5]};
  const auto real = [&](std::size_t i, const Range& range) { return quantized.dequantize(inputs[i], range, /*half_more=*/true); };
  const ValueId sum = quantized.binary(BinaryKind::kAdd, real(0, left), real(1, right));
  if (const auto range = quantized.calibrated())
    return quantized.outputs(quantized.quantize_like(sum, *range, {inputs[0], inputs[1]}, /*half_more=*/true), *range);
  const Range range = quantized.both_signs(quantized.binary(BinaryKind::kAdd, quantized.reach(left), quantized.reach(right)));
  return quantized.outputs(quantized.quantize(sum, range, DType::kInt32), range);
}

/// Without a calibrated range the result has 32 bits, of which one step is the product of a step of each operand. With one, MXNet
/// cuts the result to 8 bits: it neither rounds nor stops at the ends.
Values quantized_multiply(MxnetLowering& lowering) {
  QuantizedLowering quantized(lowering);
  const Values& inputs = lowering.inputs;
  const Range left{inputs[2], inputs[3]}, right{inputs[4], inputs[5]};
  const auto calibrated = quantized.calibrated();
  const bool is_real = lowering.attributes.flag("enable_float_output", false), is_whole = !is_real && !calibrated;
  const ValueId product = quantized.binary(BinaryKind::kMul, quantized.dequantize(inputs[0], left, !is_whole),
                                           quantized.dequantize(inputs[1], right, !is_whole));
  if (is_real) return product == kNoValue ? Values() : Values{product};
  if (calibrated) {
    const ValueId scale =
        quantized.add(ops::kScalar, ScalarAttributes{.kind = BinaryKind::kDiv, .scalar = 127.5, .reversed = true},
                      {quantized.reach(*calibrated)});
    const ValueId steps = quantized.broadcast(BinaryKind::kMul, product, scale);
    return quantized.outputs(quantized.add(ops::kCast, CastAttributes{DType::kInt8}, {steps}), *calibrated);
  }
  const Range range = quantized.range_of_products({inputs[0], left}, {inputs[1], right});
  return quantized.outputs(quantized.quantize(product, range, DType::kInt32), range);
}

/// The parameters are real numbers, and gamma counts: MXNet does not look at fix_gamma here.
Values quantized_batch_norm(MxnetLowering& lowering) {
  QuantizedLowering quantized(lowering);
  const Values& inputs = lowering.inputs;
  const auto range = quantized.calibrated();
  if (!range) {
    lowering.attributes.fail_node(StatusCode::kInvalidArgument,
                                  "it has no min_calib_range and max_calib_range, and MXNet runs it with both only");
    return {};
  }
  const BatchNormAttributes norm{.eps = lowering.attributes.number("eps", 1e-3), .fix_gamma = false};
  if (lowering.attributes.integer("axis", 1) != 1) lowering.attributes.fail("axis", "is not 1, which is not supported");
  lowering.attributes.ignore({"fix_gamma", "momentum", "use_global_stats", "output_mean_var", "cudnn_off"});
  Values sources{quantized.dequantize(inputs[0], {inputs[5], inputs[6]})};
  sources.insert(sources.end(), inputs.begin() + 1, inputs.begin() + 5);
  return quantized.outputs(quantized.quantize(quantized.add(ops::kBatchNorm, norm, sources), *range, DType::kInt8), *range);
}

Values quantized_embedding(MxnetLowering& lowering) {
  QuantizedLowering quantized(lowering);
  const Values& inputs = lowering.inputs;
  return quantized.outputs(quantized.real("Embedding", {inputs[0], inputs[1]}), {inputs[2], inputs[3]});
}

}  // namespace

std::vector<MxnetOperator> quantized_operators() {
  const std::vector<std::string> names{"output", "min_output", "max_output"};
  std::vector<MxnetOperator> all;
  all.push_back({"_contrib_quantize", 3, 3, -1, quantize});
  all.push_back({"_contrib_quantize_v2", 1, 1, -1, quantize_v2});
  all.push_back({"_contrib_dequantize", 3, 3, -1, dequantize});
  all.push_back({"_contrib_requantize", 3, 3, -1, requantize});
  all.push_back({"_contrib_quantized_conv", 6, 9, -1, quantized_convolution, -1, names});
  all.push_back({"_contrib_quantized_fully_connected", 6, 9, -1, quantized_fully_connected, -1, names});
  all.push_back({"_contrib_quantized_pooling", 3, 3, -1, quantized_pooling, -1, names});
  all.push_back({"_contrib_quantized_flatten", 3, 3, -1, quantized_flatten, -1, names});
  all.push_back({"_contrib_quantized_act", 3, 3, -1, quantized_activation, -1, names});
  all.push_back({"_contrib_quantized_concat", 3, -1, -1, quantized_concat, -1, names});
  all.push_back({"_contrib_quantized_elemwise_add", 6, 6, -1, quantized_add, -1, names});
  all.push_back({"_contrib_quantized_elemwise_mul", 6, 6, -1, quantized_multiply, -1, names});
  all.push_back({"_contrib_quantized_batch_norm", 7, 7, -1, quantized_batch_norm, -1, names});
  all.push_back({"_contrib_quantized_embedding", 4, 4, -1, quantized_embedding, -1, names});
  return all;
}

}  // namespace shoal::worker

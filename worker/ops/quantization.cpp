// Quantize, Dequantize, QuantizedStep.
#include "worker/ops/quantization.hpp"

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/elements.hpp"
#include "worker/ops/quantization_functions.hpp"

namespace shoal::worker {
namespace {

constexpr std::size_t kRangeEnd = 3;  ///< inputs: the numbers, the lowest and the highest of the range

Status check_quantized(const Node& node, const TypedValue& src) {
  if (TypeSet(QuantizedTypes()).holds(src.dtype)) return {};
  return invalid_argument("{}: '{}' is {}; int8, uint8 or int32 is needed", describe(node), src.name, dtype_name(src.dtype));
}

Status check_range(const Node& node, SourceValues src) {
  for (const TypedValue& end : src.subspan(1, kRangeEnd - 1)) {
    SHOAL_RETURN_IF_ERROR(check_shape(node, "range", end, SymbolicShape{1}));
    if (end.dtype == DType::kFloat32) continue;
    return invalid_argument("{}: range '{}' is {}; float32 is needed", describe(node), end.name, dtype_name(end.dtype));
  }
  return {};
}

Status infer_quantize(const Node& node, SourceValues src, ResultValues dst) {
  if (src[0].dtype != DType::kFloat32)
    return invalid_argument("{}: '{}' is {}; float32 is needed", describe(node), src[0].name, dtype_name(src[0].dtype));
  SHOAL_RETURN_IF_ERROR(check_range(node, src));
  DType dtype = node.attributes.get<QuantizeAttributes>().dtype.value_or(DType::kInvalid);
  if (dtype == DType::kInvalid) {
    if (src.size() == kRangeEnd) return invalid_argument("{}: neither a type nor an input that has it", describe(node));
    for (const TypedValue& like : src.subspan(kRangeEnd)) {
      SHOAL_RETURN_IF_ERROR(check_quantized(node, like));
      dtype = dtype == DType::kInvalid || dtype == like.dtype ? like.dtype : DType::kInt8;
    }
  }
  set_result(dst[0], dtype, src[0].shape);
  return check_quantized(node, dst[0]);
}

Status infer_dequantize(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_RETURN_IF_ERROR(check_quantized(node, src[0]));
  SHOAL_RETURN_IF_ERROR(check_range(node, src));
  set_result(dst[0], DType::kFloat32, src[0].shape);
  return {};
}

Status infer_step(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_RETURN_IF_ERROR(infer_dequantize(node, src, dst));
  dst[0].shape = SymbolicShape{1};
  return {};
}

Status compute_quantize(const Node& node, Sources src, Results dst) {
  const float min = *elements<float>(src[1]), max = *elements<float>(src[2]);
  const bool half_more = node.attributes.get<QuantizeAttributes>().half_more;
  return dispatch<QuantizedTypes>(node, dst[0].dtype, [&]<typename Q>() {
    const float* const from = elements<float>(src[0]);
    Q* const to = elements<Q>(dst[0]);
    for (std::int64_t i = 0, count = dst[0].element_count(); i < count; ++i) to[i] = quantized<Q>(from[i], min, max, half_more);
    return Status();
  });
}

Status compute_dequantize(const Node& node, Sources src, Results dst) {
  const float min = *elements<float>(src[1]), max = *elements<float>(src[2]);
  const bool half_more = node.attributes.get<DequantizeAttributes>().half_more;
  return dispatch<QuantizedTypes>(node, src[0].dtype, [&]<typename Q>() {
    const Q* const from = elements<Q>(src[0]);
    float* const to = elements<float>(dst[0]);
    for (std::int64_t i = 0, count = dst[0].element_count(); i < count; ++i) to[i] = dequantized<Q>(from[i], min, max, half_more);
    return Status();
  });
}

Status compute_step(const Node& node, Sources src, Results dst) {
  return dispatch<QuantizedTypes>(node, src[0].dtype, [&]<typename Q>() {
    *elements<float>(dst[0]) = static_cast<float>(step_of<Q>(*elements<float>(src[1]), *elements<float>(src[2])));
    return Status();
  });
}

/// The range is the same for all rows.
bool quantize_rows(const BatchedNode& batched) {
  return batched.has_rows_in(0) && !batched.has_rows_in(1) && !batched.has_rows_in(2);
}

bool step_rows(const BatchedNode& batched) { return !batched.has_rows_in(1) && !batched.has_rows_in(2); }

constexpr const char* kOrigin = "MXNet 1.9.1 src/operator/quantization/quantization_utils.h";

}  // namespace

namespace ops {

const Operator kQuantize({
    .name = "Quantize",
    .inputs = {3, Arity::kAny},
    .attributes = &kSchema<QuantizeAttributes>,
    .infer = infer_quantize,
    .facts = elementwise_facts(quantize_rows, Accuracy::kLost),
    .oracle = compute_quantize,
    .formula =
        "data, the lowest and the highest number of its range, [inputs of which only the type counts]: the nearest of the "
        "steps, halves to even. 0 is 0, and the highest number of the type stands for the larger end of the range, by magnitude. "
        "What lies beyond the type becomes its end",
    .source = kOrigin,
});

const Operator kDequantize({
    .name = "Dequantize",
    .inputs = 3,
    .attributes = &kSchema<DequantizeAttributes>,
    .infer = infer_dequantize,
    .facts = elementwise_facts(quantize_rows, Accuracy::kLost),
    .oracle = compute_dequantize,
    .formula = "data, the lowest and the highest number of its range: the real numbers for which its steps stand",
    .source = kOrigin,
});

const Operator kQuantizedStep({
    .name = "QuantizedStep",
    .inputs = 3,
    .infer = infer_step,
    .first_constant_output = 0,
    .facts = layer_facts(step_rows, work_of_elements, Accuracy::kLost),
    .oracle = compute_step,
    .formula =
        "data, of which only the type counts, the lowest and the highest number of its range: the size of a step, of shape (1)",
    .source = kOrigin,
});

}  // namespace ops

}  // namespace shoal::worker

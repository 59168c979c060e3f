// Activation, LeakyReLU, HardSigmoid.
#include "worker/ops/activation.hpp"

#include <algorithm>

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/elements.hpp"
#include "worker/ops/unary_functions.hpp"

namespace shoal::worker {
namespace {

/// Channels of one PReLU slope array: axis 1, or axis 0 of 1-D data.
int slope_axis(const SymbolicShape& data) { return data.rank() > 1 ? 1 : 0; }

Status infer_leaky(const Node& node, SourceValues src, ResultValues dst) {
  const TypedValue& data = src[0];
  SHOAL_RETURN_IF_ERROR(check_float(node, data));
  if (src.size() == 2) {
    const TypedValue& gamma = src[1];
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
  set_result(dst[0], data.dtype, data.shape);
  return {};
}

void leaky_parameters(const Node&, std::span<TypedValue> src) {
  const TypedValue& data = src[0];
  if (src.size() == 2 && !is_open(data.shape) && data.shape.rank() > 0) {
    supply(src[1], statistics_type(data.dtype), SymbolicShape{data.shape[slope_axis(data.shape)]});
  }
}

template <typename T>
Status activate(ActivationKind kind, const TensorView& src, TensorView& dst) {
  using C = Compute<T>;
  if (!is_of_reals(kind, std::is_integral_v<C>))
    return with_function_of_numbers<C>(kind, [&](auto function) { return map<T>(src, dst, function); });
  return with_function_of_reals<RealOf<C>>(kind, [&](auto function) {
    return map<T>(src, dst, [function](C x) { return from_float<C>(function(static_cast<RealOf<C>>(x))); });
  });
}

/// Slopes of any shape that infer() lets through, laid along axes 0 and 1 of the data.
template <typename T>
Status prelu(const TensorView& src, const TensorView& gamma, TensorView& dst) {
  using F = Compute<T>;
  const Shape& shape = src.shape;
  const std::int64_t batch = shape.rank() > 1 ? shape[0] : 1, channels = shape[shape.rank() > 1 ? 1 : 0];
  const std::int64_t inner = src.element_count() / (batch * channels);
  const Shape slopes = slopes_along(gamma.shape, shape)->bound();
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
  if (leaky.kind == LeakyKind::kPrelu) return prelu<T>(src[0], src[1], dst);
  return with_leaky_function<Compute<T>>(leaky, [&](auto function) { return map<T>(src[0], dst, function); });
}

Status compute_activation(const Node& node, Sources src, Results dst) {
  const ActivationKind kind = node.attributes.get<ActivationAttributes>().kind;
  return dispatch<Numbers>(node, src[0].dtype, [&]<typename T>() { return activate<T>(kind, src[0], dst[0]); });
}

Status compute_leaky(const Node& node, Sources src, Results dst) {
  if (src.size() == 2 && src[1].dtype != src[0].dtype && src[1].dtype != DType::kFloat32) return no_kernel(node, src[1].dtype);
  return dispatch<Floats>(node, src[0].dtype,
                          [&]<typename T>() { return leaky<T>(node.attributes.get<LeakyAttributes>(), src, dst[0]); });
}

Status compute_hard_sigmoid(const Node& node, Sources src, Results dst) {
  const auto& gate = node.attributes.get<HardSigmoidAttributes>();
  return dispatch<Floats>(node, src[0].dtype, [&]<typename T>() {
    return map<T>(src[0], dst[0], [&](Compute<T> x) { return hard_sigmoid(gate, x); });
  });
}

}  // namespace

std::optional<SymbolicShape> slopes_along(const SymbolicShape& slopes, const SymbolicShape& data) {
  SymbolicShape laid = data;
  int next = slopes.rank() - 1;  // the extent to be placed
  for (int axis = data.rank() - 1; axis >= 0; --axis) {
    const bool fits = next >= 0 && axis <= 1 && (slopes[next] == 1 || !known_unequal(slopes[next], data[axis]));
    laid[axis] = fits ? slopes[next--] : Dim(1);
  }
  return next < 0 ? std::optional(laid) : std::nullopt;
}

namespace ops {

const Operator kActivation({
    .name = "Activation",
    .attributes = &kSchema<ActivationAttributes>,
    .infer = infer_numeric,
    .constant_types = ConstantTypes::kAsData,
    .facts = elementwise_facts(rows_of_first_input, Accuracy::kKept),
    .oracle = compute_activation,
    .formula = "data: a function of each element. Integers as in Unary",
    .source = "MXNet 1.9.1 src/operator/nn/activation-inl.h",
});

const Operator kLeakyRelu({
    .name = "LeakyReLU",
    .inputs = {1, 2},
    .attributes = &kSchema<LeakyAttributes>,
    .infer = infer_leaky,
    .infer_parameters = leaky_parameters,
    .constant_types = ConstantTypes::kAtLeastF32,
    .facts = elementwise_facts(rows_of_first_input, Accuracy::kKept),
    .oracle = compute_leaky,
    .formula = "data, for prelu also its slopes along axes 0 and 1: x where x > 0, else slope x; or another function",
    .source = "MXNet 1.9.1 src/operator/leaky_relu-inl.h",
});

const Operator kHardSigmoid({
    .name = "HardSigmoid",
    .attributes = &kSchema<HardSigmoidAttributes>,
    .infer = infer_float_elementwise,
    .facts = elementwise_facts(rows_of_first_input, Accuracy::kKept),
    .oracle = compute_hard_sigmoid,
    .formula = "data: alpha x + beta, cut to 0 .. 1; NaN passes",
    .source = "MXNet 1.9.1 src/operator/tensor/elemwise_unary_op_basic.cc",
});

}  // namespace ops

}  // namespace shoal::worker

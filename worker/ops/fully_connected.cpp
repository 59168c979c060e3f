// FullyConnected.
#include "worker/ops/fully_connected.hpp"

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/elements.hpp"
#include "worker/ops/matrix_product.hpp"

namespace shoal::worker {
namespace {

SymbolicShape fully_connected_weight(const FullyConnectedAttributes& fc, const SymbolicShape& data) {
  if (!fc.flatten) return {fc.num_hidden, data[data.rank() - 1]};
  return {fc.num_hidden, SymbolicShape(data.dims().subspan(1)).element_count()};
}

Status infer_fully_connected(const Node& node, SourceValues src, ResultValues dst) {
  const auto& fc = node.attributes.get<FullyConnectedAttributes>();
  const TypedValue& data = src[0];
  SHOAL_RETURN_IF_ERROR(check_float(node, data));
  SHOAL_RETURN_IF_ERROR(check_same_dtype(node, src));
  if (data.shape.rank() == 0) return invalid_argument("{}: '{}' is a scalar", describe(node), data.name);
  SHOAL_RETURN_IF_ERROR(check_shape(node, "weight", src[1], fully_connected_weight(fc, data.shape)));
  if (src.size() == 3 && known_unequal(src[2].shape, SymbolicShape{fc.num_hidden, 1})) {
    SHOAL_RETURN_IF_ERROR(check_shape(node, "bias", src[2], SymbolicShape{fc.num_hidden}));
  }
  SymbolicShape out{data.shape[0], fc.num_hidden};
  if (!fc.flatten) {
    out = data.shape;
    out[out.rank() - 1] = fc.num_hidden;
  }
  set_result(dst[0], data.dtype, out);
  return {};
}

void fully_connected_parameters(const Node& node, std::span<TypedValue> src) {
  const auto& fc = node.attributes.get<FullyConnectedAttributes>();
  const TypedValue& data = src[0];
  if (is_open(data.shape) || data.shape.rank() == 0) return;
  supply(src[1], data.dtype, fully_connected_weight(fc, data.shape));
  if (src.size() == 3) supply(src[2], data.dtype, SymbolicShape{fc.num_hidden});
}

Status compute_fully_connected(const Node& node, Sources src, Results dst) {
  const std::int64_t units = src[1].shape[0], width = src[1].shape[1], rows = dst[0].element_count() / units;
  return dispatch<Floats>(node, src[0].dtype, [&]<typename T>() {
    using Sum = Compute<T>;
    const T* const bias = src.size() == 3 ? elements<T>(src[2]) : nullptr;
    T* out = elements<T>(dst[0]);
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t unit = 0; unit < units; ++unit) {
        const Sum sum = dot_product<Sum>(elements<T>(src[0]) + row * width, elements<T>(src[1]) + unit * width, width);
        *out++ = to_element<T>(sum + (bias ? static_cast<Sum>(bias[unit]) : Sum{0}));
      }
    }
    return Status();
  });
}

}  // namespace

namespace ops {

const Operator kFullyConnected({
    .name = "FullyConnected",
    .inputs = {2, 3},
    .attributes = &kSchema<FullyConnectedAttributes>,
    .infer = infer_fully_connected,
    .infer_parameters = fully_connected_parameters,
    .constant_types = ConstantTypes::kAsData,
    .facts = layer_facts(rows_of_first_input, work_of_weights, Accuracy::kKept),
    .oracle = compute_fully_connected,
    .formula = "data, weight (num_hidden, in), [bias (num_hidden)]: y = x W^T + b",
    .source = "MXNet 1.9.1 src/operator/nn/fully_connected-inl.h",
});

}  // namespace ops

}  // namespace shoal::worker

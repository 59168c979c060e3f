// Convolution.
#include "worker/ops/convolution.hpp"

#include <algorithm>
#include <vector>

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/convolution_geometry.hpp"
#include "worker/ops/elements.hpp"

namespace shoal::worker {
namespace {

/// The shape of the weight for data of this shape.
SymbolicShape convolution_weight(const ConvolutionAttributes& conv, const SymbolicShape& data) {
  Sizes dims{conv.num_filter, floor_div(data[1], conv.num_group)};
  dims.insert(dims.end(), conv.kernel.begin(), conv.kernel.end());
  return SymbolicShape(dims);
}

Status infer_convolution(const Node& node, SourceValues src, ResultValues dst) {
  const auto& conv = node.attributes.get<ConvolutionAttributes>();
  const TypedValue& data = src[0];
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
  if (known_indivisible(data.shape[1], conv.num_group) || conv.num_filter % conv.num_group != 0) {
    return invalid_argument("{}: num_group {} does not divide the {} channels of '{}' ({}) and the {} filters", describe(node),
                            conv.num_group, data.shape[1].to_string(), data.name, data.shape.to_string(), conv.num_filter);
  }
  SHOAL_RETURN_IF_ERROR(check_shape(node, "weight", src[1], convolution_weight(conv, data.shape)));
  if (src.size() == 3) SHOAL_RETURN_IF_ERROR(check_shape(node, "bias", src[2], SymbolicShape{conv.num_filter}));

  SymbolicShape out = data.shape;
  out[1] = conv.num_filter;
  for (int i = 0; i < spatial; ++i) {
    const auto axis = static_cast<std::size_t>(i);
    const std::int64_t extent = conv.dilate[axis] * (conv.kernel[axis] - 1) + 1;
    const Dim padded = data.shape[i + 2] + 2 * conv.pad[axis];
    if (known_less(padded, extent)) {
      return invalid_argument("{}: kernel {} with dilate {} spans {}, more than the {} of axis {} of '{}' ({}) with padding",
                              describe(node), conv.kernel[axis], conv.dilate[axis], extent, padded.to_string(), i + 2, data.name,
                              data.shape.to_string());
    }
    out[i + 2] = floor_div(padded - extent, conv.stride[axis]) + 1;
  }
  set_result(dst[0], data.dtype, out);
  return {};
}

void convolution_parameters(const Node& node, std::span<TypedValue> src) {
  const auto& conv = node.attributes.get<ConvolutionAttributes>();
  const TypedValue& data = src[0];
  if (is_open(data.shape) || data.shape.rank() != static_cast<int>(conv.kernel.size()) + 2 || conv.num_group < 1) return;
  supply(src[1], data.dtype, convolution_weight(conv, data.shape));
  if (src.size() == 3) supply(src[2], data.dtype, SymbolicShape{conv.num_filter});
}

/// sum[x] += weight * row[x * stride + shift] wherever that lies in the row.
template <typename T, typename Sum>
void add_row(const ConvolutionGeometry& g, const ConvolutionGeometry::Columns& columns, Sum weight, const T* row, Sum* sum) {
  const auto& [first, last, shift] = columns;
  if (g.stride[2] == 1) {
    const T* const from = row + shift;
    for (std::int64_t x = first; x < last; ++x) sum[x] += weight * static_cast<Sum>(from[x]);
  } else {
    for (std::int64_t x = first; x < last; ++x) sum[x] += weight * static_cast<Sum>(row[x * g.stride[2] + shift]);
  }
}

/// All taps of one input channel into the sums of one output plane.
template <typename T, typename Sum>
void add_channel(const ConvolutionGeometry& g, const T* src, const T* weight, Sum* sums) {
  each_row_of_taps(g, [&](std::int64_t tap, const ConvolutionGeometry::Columns& columns, std::int64_t from, std::int64_t to) {
    add_row(g, columns, static_cast<Sum>(weight[tap]), src + from, sums + to);
  });
}

template <typename T>
void convolve(const ConvolutionGeometry& g, const T* src, const T* weight, const T* bias, T* dst) {
  using Sum = Compute<T>;
  const std::int64_t group_in = g.in_channels / g.groups, group_out = g.out_channels / g.groups;
  std::vector<Sum> sums(static_cast<std::size_t>(g.out_plane()));
  for (std::int64_t n = 0; n < g.batch; ++n) {
    for (std::int64_t o = 0; o < g.out_channels; ++o) {
      std::fill(sums.begin(), sums.end(), bias ? static_cast<Sum>(bias[o]) : Sum{0});
      const T* const group = src + (n * g.in_channels + o / group_out * group_in) * g.in_plane();
      for (std::int64_t c = 0; c < group_in; ++c) {
        add_channel(g, group + c * g.in_plane(), weight + (o * group_in + c) * g.taps(), sums.data());
      }
      T* const plane = dst + (n * g.out_channels + o) * g.out_plane();
      std::transform(sums.begin(), sums.end(), plane, to_element<T, Sum>);
    }
  }
}

Status compute_convolution(const Node& node, Sources src, Results dst) {
  const auto& conv = node.attributes.get<ConvolutionAttributes>();
  const ConvolutionGeometry geometry(conv, conv.pad, src[0].shape, dst[0].shape);
  return dispatch<Floats>(node, src[0].dtype, [&]<typename T>() {
    convolve(geometry, elements<T>(src[0]), elements<T>(src[1]), src.size() == 3 ? elements<T>(src[2]) : nullptr,
             elements<T>(dst[0]));
    return Status();
  });
}

}  // namespace

namespace ops {

const Operator kConvolution({
    .name = "Convolution",
    .inputs = {2, 3},
    .attributes = &kSchema<ConvolutionAttributes>,
    .infer = infer_convolution,
    .infer_parameters = convolution_parameters,
    .constant_types = ConstantTypes::kAsData,
    .facts = layer_facts(rows_of_first_input, work_of_weights, Accuracy::kKept),
    .oracle = compute_convolution,
    .formula = "data (N, C, spatial), weight (num_filter, C / num_group, kernel), [bias (num_filter)] with 1 to 3 spatial axes: "
               "the sum over channels of the group and taps of weight * data, and the bias",
    .source = "MXNet 1.9.1 src/operator/nn/convolution-inl.h",
});

}  // namespace ops

}  // namespace shoal::worker

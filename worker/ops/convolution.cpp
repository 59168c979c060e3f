// Convolution.
#include "worker/ops/convolution.hpp"

#include <algorithm>
#include <vector>

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
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

/// One convolution as three spatial axes; missing ones in front have extent 1.
struct ConvolutionGeometry {
  std::int64_t batch, in_channels, out_channels, groups;
  std::int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, dilate[3] = {1, 1, 1},
               pad[3] = {0, 0, 0};

  ConvolutionGeometry(const ConvolutionAttributes& conv, const Shape& src, const Shape& dst)
      : batch(src[0]), in_channels(src[1]), out_channels(dst[1]), groups(conv.num_group) {
    const std::size_t rank = conv.kernel.size();
    for (std::size_t i = 0; i < rank; ++i) {
      const std::size_t axis = 3 - rank + i;
      in[axis] = src[static_cast<int>(i) + 2];
      out[axis] = dst[static_cast<int>(i) + 2];
      kernel[axis] = conv.kernel[i];
      stride[axis] = conv.stride[i];
      dilate[axis] = conv.dilate[i];
      pad[axis] = conv.pad[i];
    }
  }
  std::int64_t in_plane() const { return in[0] * in[1] * in[2]; }
  std::int64_t out_plane() const { return out[0] * out[1] * out[2]; }
  std::int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }

  /// Where output position `at` with kernel tap `tap` reads along an axis; outside [0, in) there is padding.
  std::int64_t source(int axis, std::int64_t at, std::int64_t tap) const {
    return at * stride[axis] - pad[axis] + tap * dilate[axis];
  }
};

/// sum[x] += weight * row[x * stride - pad + tap * dilate] wherever that lies in the row.
template <typename T, typename Sum>
void add_row(const ConvolutionGeometry& g, std::int64_t tap, Sum weight, const T* row, Sum* sum) {
  const std::int64_t shift = g.source(2, 0, tap), stride = g.stride[2];
  const std::int64_t first = shift < 0 ? (-shift + stride - 1) / stride : 0;
  const std::int64_t last = shift >= g.in[2] ? 0 : std::min(g.out[2], (g.in[2] - 1 - shift) / stride + 1);
  if (stride == 1) {
    const T* const from = row + shift;
    for (std::int64_t x = first; x < last; ++x) sum[x] += weight * static_cast<Sum>(from[x]);
  } else {
    for (std::int64_t x = first; x < last; ++x) sum[x] += weight * static_cast<Sum>(row[x * stride + shift]);
  }
}

/// All taps of one input channel into the sums of one output plane.
template <typename T, typename Sum>
void add_channel(const ConvolutionGeometry& g, const T* src, const T* weight, Sum* sums) {
  for (std::int64_t kd = 0; kd < g.kernel[0]; ++kd) {
    for (std::int64_t kh = 0; kh < g.kernel[1]; ++kh) {
      for (std::int64_t kw = 0; kw < g.kernel[2]; ++kw) {
        const Sum w = static_cast<Sum>(weight[(kd * g.kernel[1] + kh) * g.kernel[2] + kw]);
        for (std::int64_t d = 0; d < g.out[0]; ++d) {
          const std::int64_t z = g.source(0, d, kd);
          if (z < 0 || z >= g.in[0]) continue;
          for (std::int64_t h = 0; h < g.out[1]; ++h) {
            const std::int64_t y = g.source(1, h, kh);
            if (y < 0 || y >= g.in[1]) continue;
            add_row(g, kw, w, src + (z * g.in[1] + y) * g.in[2], sums + (d * g.out[1] + h) * g.out[2]);
          }
        }
      }
    }
  }
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
  const ConvolutionGeometry geometry(node.attributes.get<ConvolutionAttributes>(), src[0].shape, dst[0].shape);
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
    .facts = layer_facts(rows_of_first_input),
    .oracle = compute_convolution,
    .formula = "data (N, C, spatial), weight (num_filter, C / num_group, kernel), [bias (num_filter)] with 1 to 3 spatial axes: "
               "the sum over channels of the group and taps of weight * data, and the bias",
    .source = "MXNet 1.9.1 src/operator/nn/convolution-inl.h",
});

}  // namespace ops

}  // namespace shoal::worker

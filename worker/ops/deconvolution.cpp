// Deconvolution.
#include "worker/ops/deconvolution.hpp"

#include <algorithm>
#include <vector>

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/convolution_geometry.hpp"
#include "worker/ops/elements.hpp"

namespace shoal::worker {
namespace {

/// The shape of the weight for data of this shape.
SymbolicShape deconvolution_weight(const DeconvolutionAttributes& deconv, const SymbolicShape& data) {
  Sizes dims{data[1], deconv.num_filter / deconv.num_group};
  dims.insert(dims.end(), deconv.kernel.begin(), deconv.kernel.end());
  return SymbolicShape(dims);
}

/// How far the kernels reach along an axis of `size`.
Dim whole_extent(const DeconvolutionAttributes& deconv, std::size_t axis, Dim size) {
  return Dim(deconv.stride[axis]) * (size - 1) + deconv.dilate[axis] * (deconv.kernel[axis] - 1) + 1;
}

/// The size of the result along an axis.
Result<Dim> result_size(const Node& node, const DeconvolutionAttributes& deconv, std::size_t axis, const TypedValue& data) {
  const int place = static_cast<int>(axis) + 2;
  const Dim whole = whole_extent(deconv, axis, data.shape[place]);
  if (known_less(kMaxElements, whole)) {
    return invalid_argument("{}: axis {} of '{}' ({}) with stride {} becomes longer than {}", describe(node), place, data.name,
                            data.shape.to_string(), deconv.stride[axis], kMaxElements);
  }
  if (!deconv.target_shape.empty()) {
    const std::int64_t target = deconv.target_shape[axis];
    const Dim excess = whole - target;
    if (known_less(excess, 0)) {
      return invalid_argument("{}: target_shape {} is larger than the {} that axis {} of '{}' ({}) becomes", describe(node),
                              to_text(deconv.target_shape), whole.to_string(), place, data.name, data.shape.to_string());
    }
    if (known_less(deconv.stride[axis] - 1, excess - 2 * floor_div(excess, 2))) {
      return invalid_argument(
          "{}: target_shape {} cuts an odd number off the {} that axis {} of '{}' ({}) becomes: the stride "
          "{} does not allow that",
          describe(node), to_text(deconv.target_shape), whole.to_string(), place, data.name, data.shape.to_string(),
          deconv.stride[axis]);
    }
    return Dim(target);
  }
  if (deconv.adj[axis] >= deconv.stride[axis]) {
    return invalid_argument("{}: adj {} is not less than stride {}", describe(node), to_text(deconv.adj), to_text(deconv.stride));
  }
  const Dim size = whole - 2 * deconv.pad[axis] + deconv.adj[axis];
  if (known_less(size, 1)) {
    return invalid_argument("{}: pad {} leaves nothing of the {} that axis {} of '{}' ({}) becomes", describe(node),
                            to_text(deconv.pad), whole.to_string(), place, data.name, data.shape.to_string());
  }
  return size;
}

Status infer_deconvolution(const Node& node, SourceValues src, ResultValues dst) {
  const auto& deconv = node.attributes.get<DeconvolutionAttributes>();
  const TypedValue& data = src[0];
  SHOAL_RETURN_IF_ERROR(check_float(node, data));
  SHOAL_RETURN_IF_ERROR(check_same_dtype(node, src));
  const int spatial = static_cast<int>(deconv.kernel.size());
  if (data.shape.rank() != spatial + 2) {
    return invalid_argument("{}: '{}' has shape {}; a kernel of {} dimensions needs {} axes (batch, channels, space)",
                            describe(node), data.name, data.shape.to_string(), spatial, spatial + 2);
  }
  SHOAL_RETURN_IF_ERROR(check_numbers(node, "kernel", deconv.kernel, 1));
  SHOAL_RETURN_IF_ERROR(check_numbers(node, "stride", deconv.stride, 1));
  SHOAL_RETURN_IF_ERROR(check_numbers(node, "dilate", deconv.dilate, 1));
  SHOAL_RETURN_IF_ERROR(check_numbers(node, "pad", deconv.pad, 0));
  SHOAL_RETURN_IF_ERROR(check_numbers(node, "adj", deconv.adj, 0));
  SHOAL_RETURN_IF_ERROR(check_numbers(node, "target_shape", deconv.target_shape, 1));
  SHOAL_RETURN_IF_ERROR(check_numbers(node, "num_group", {deconv.num_group}, 1));
  if (known_indivisible(data.shape[1], deconv.num_group) || deconv.num_filter % deconv.num_group != 0) {
    return invalid_argument("{}: num_group {} does not divide the {} channels of '{}' ({}) and the {} filters", describe(node),
                            deconv.num_group, data.shape[1].to_string(), data.name, data.shape.to_string(), deconv.num_filter);
  }
  SHOAL_RETURN_IF_ERROR(check_shape(node, "weight", src[1], deconvolution_weight(deconv, data.shape)));
  if (src.size() == 3) SHOAL_RETURN_IF_ERROR(check_shape(node, "bias", src[2], SymbolicShape{deconv.num_filter}));
  SymbolicShape out = data.shape;
  out[1] = deconv.num_filter;
  for (int i = 0; i < spatial; ++i) {
    SHOAL_ASSIGN_OR_RETURN(out[i + 2], result_size(node, deconv, static_cast<std::size_t>(i), data));
  }
  set_result(dst[0], data.dtype, out);
  return {};
}

void deconvolution_parameters(const Node& node, std::span<TypedValue> src) {
  const auto& deconv = node.attributes.get<DeconvolutionAttributes>();
  const TypedValue& data = src[0];
  if (is_open(data.shape) || data.shape.rank() != static_cast<int>(deconv.kernel.size()) + 2 || deconv.num_group < 1) return;
  supply(src[1], data.dtype, deconvolution_weight(deconv, data.shape));
  if (src.size() == 3) supply(src[2], data.dtype, SymbolicShape{deconv.num_filter});
}

/// sums[x * stride + shift] += weight * row[x] wherever that lies in the result.
template <typename T, typename Sum>
void spread_row(const ConvolutionGeometry& g, const ConvolutionGeometry::Columns& columns, Sum weight, const T* row, Sum* sums) {
  const auto& [first, last, shift] = columns;
  if (g.stride[2] == 1) {
    Sum* const to = sums + shift;
    for (std::int64_t x = first; x < last; ++x) to[x] += weight * static_cast<Sum>(row[x]);
  } else {
    for (std::int64_t x = first; x < last; ++x) sums[x * g.stride[2] + shift] += weight * static_cast<Sum>(row[x]);
  }
}

/// `g` goes from the result to the data.
template <typename T>
void deconvolve(const ConvolutionGeometry& g, const T* src, const T* weight, const T* bias, T* dst) {
  using Sum = Compute<T>;
  const std::int64_t filters = g.in_channels, group_filters = filters / g.groups, group_channels = g.out_channels / g.groups;
  std::vector<Sum> sums(static_cast<std::size_t>(g.in_plane()));
  for (std::int64_t n = 0; n < g.batch; ++n) {
    for (std::int64_t f = 0; f < filters; ++f) {
      std::fill(sums.begin(), sums.end(), bias ? static_cast<Sum>(bias[f]) : Sum{0});
      const std::int64_t first = f / group_filters * group_channels;
      for (std::int64_t c = first; c < first + group_channels; ++c) {
        const T* const plane = src + (n * g.out_channels + c) * g.out_plane();
        const T* const taps = weight + (c * group_filters + f % group_filters) * g.taps();
        each_row_of_taps(g,
                         [&](std::int64_t tap, const ConvolutionGeometry::Columns& columns, std::int64_t to, std::int64_t from) {
                           spread_row(g, columns, static_cast<Sum>(taps[tap]), plane + from, sums.data() + to);
                         });
      }
      std::transform(sums.begin(), sums.end(), dst + (n * filters + f) * g.in_plane(), to_element<T, Sum>);
    }
  }
}

Status compute_deconvolution(const Node& node, Sources src, Results dst) {
  const auto& deconv = node.attributes.get<DeconvolutionAttributes>();
  const ConvolutionGeometry geometry(deconv, cut_before(deconv, src[0].shape), dst[0].shape, src[0].shape);
  return dispatch<Floats>(node, src[0].dtype, [&]<typename T>() {
    deconvolve(geometry, elements<T>(src[0]), elements<T>(src[1]), src.size() == 3 ? elements<T>(src[2]) : nullptr,
               elements<T>(dst[0]));
    return Status();
  });
}

// Each element of the data is multiplied by a row of the weights.
Work deconvolution_work(const Node&, Sources src, Sources dst) {
  const Shape& weights = src[1].shape;
  const double data = elements_of(src.first(1));
  const double flops = data == 0 ? 0 : 2 * data * static_cast<double>(weights.element_count() / weights[0]);
  return {.operations = elements_of(src) + elements_of(dst) + flops, .flops = flops};
}

}  // namespace

Dims cut_before(const DeconvolutionAttributes& attributes, const Shape& data) {
  if (attributes.target_shape.empty()) return attributes.pad;
  Dims pad;
  for (std::size_t axis = 0; axis < attributes.kernel.size(); ++axis) {
    const std::int64_t whole = whole_extent(attributes, axis, data[static_cast<int>(axis) + 2]).number();
    pad.push_back((whole - attributes.target_shape[axis] + 1) / 2);
  }
  return pad;
}

namespace ops {

const Operator kDeconvolution({
    .name = "Deconvolution",
    .inputs = {2, 3},
    .attributes = &kSchema<DeconvolutionAttributes>,
    .infer = infer_deconvolution,
    .infer_parameters = deconvolution_parameters,
    .constant_types = ConstantTypes::kAsData,
    .facts = layer_facts(rows_of_first_input, deconvolution_work, Accuracy::kLost),
    .oracle = compute_deconvolution,
    .formula =
        "data (N, C, spatial), weight (C, num_filter / num_group, kernel), [bias (num_filter)] with 1 to 3 spatial axes: each "
        "element of the data times the kernels of its channel is added to the result from stride times its place on; "
        "then pad is cut off. An axis of x becomes stride (x - 1) + dilate (kernel - 1) + 1 - 2 pad + adj long",
    .source = "MXNet 1.9.1 src/operator/nn/deconvolution-inl.h",
});

}  // namespace ops

}  // namespace shoal::worker

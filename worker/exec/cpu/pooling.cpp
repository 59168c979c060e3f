// Pooling, if oneDNN computes exactly the operator's result; and operators that are pooling by another name.
#include <algorithm>
#include <bit>
#include <climits>
#include <cstdint>
#include <numeric>

#include "shm/base/errors.hpp"
#include "worker/exec/cpu/compiler.hpp"
#include "worker/ops/pooling.hpp"
#include "worker/ops/reduce.hpp"

namespace shoal::worker::cpu {
namespace {

struct Window {
  dnnl::memory::dims kernel, stride, pad_begin, pad_end;
  dnnl::algorithm algorithm = dnnl::algorithm::undef;
  float scale = 1;  ///< of the result

  double area() const {
    return std::accumulate(kernel.begin(), kernel.end(), 1.0, [](double area, auto k) { return area * static_cast<double>(k); });
  }
};

// oneDNN counts the positions along an axis, and those of a window, in int.
bool counts_positions_of(const Window& window, const Shape& src) {
  for (std::size_t at = 0; at < window.kernel.size(); ++at) {
    const std::int64_t behind = std::max<std::int64_t>(window.pad_end[at], 0);
    if (src[static_cast<int>(at) + 2] + window.pad_begin[at] + behind > INT_MAX) return false;
  }
  return window.area() <= INT_MAX;
}

// None if oneDNN would compute something else.
std::optional<Window> window_of(const PoolingAttributes& attributes, const Shape& src, const Shape& dst) {
  if (attributes.channels_last || attributes.legacy) return std::nullopt;
  if (attributes.kind == PoolingKind::kLp) return std::nullopt;
  Window window;
  bool overhangs = false, padded = false;
  for (int axis = 2; axis < src.rank(); ++axis) {
    const auto at = static_cast<std::size_t>(axis - 2);
    const std::int64_t kernel = attributes.global ? src[axis] : attributes.kernel[at];
    const std::int64_t stride = attributes.global ? 1 : attributes.stride[at];
    const std::int64_t pad = attributes.global ? 0 : attributes.pad[at];
    // How far the last window extends beyond the input; negative when it ends before the input does.
    const std::int64_t reach = (dst[axis] - 1) * stride + kernel - src[axis] - pad;
    if (pad >= kernel || reach >= kernel) return std::nullopt;  // a window without a single pixel
    overhangs |= reach > pad;
    padded |= pad > 0;
    window.kernel.push_back(kernel);
    window.stride.push_back(stride);
    window.pad_begin.push_back(pad);
    window.pad_end.push_back(reach);
  }
  if (attributes.kind == PoolingKind::kMax) {
    window.algorithm = dnnl::algorithm::pooling_max;
  } else if (attributes.kind == PoolingKind::kSum) {
    // A sum of whole numbers stays whole only if the mean is divided, and multiplied again, by a power of two.
    if (!std::has_single_bit(static_cast<std::uint64_t>(window.area()))) return std::nullopt;
    window.algorithm = dnnl::algorithm::pooling_avg_include_padding;  // always divides by the size of the whole kernel
    window.scale = static_cast<float>(window.area());
  } else if (!attributes.count_include_pad || !padded) {
    // Without padding the divisor counts real pixels only, also in an overhang of the "full" convention.
    window.algorithm = dnnl::algorithm::pooling_avg_exclude_padding;
  } else if (!overhangs) {
    window.algorithm = dnnl::algorithm::pooling_avg_include_padding;
  } else {
    return std::nullopt;  // the divisor counts the padding but not the overhang
  }
  return window;
}

// The mean over all spatial axes; none if the node computes something else. A sum is no product of the mean: it would be inexact.
std::optional<Window> whole_window(const Node& node, const Shape& src) {
  Window window{.algorithm = dnnl::algorithm::pooling_avg_include_padding};
  const auto axes = static_cast<std::size_t>(src.rank() - 2);
  window.kernel.assign(src.begin() + 2, src.end());
  window.stride.assign(axes, 1);
  window.pad_begin = window.pad_end = dnnl::memory::dims(axes, 0);
  if (const auto* const pooling = node.attributes.get_if<AdaptivePoolingAttributes>()) {
    if (pooling->height != 1 || pooling->width != 1) return std::nullopt;
    return window;
  }
  const auto& reduce = node.attributes.get<ReduceAttributes>();
  if (reduce.kind != ReduceKind::kMean) return std::nullopt;
  const std::vector<bool> reduced = reduced_axes(reduce, src.rank());
  const auto is_spatial = [&](std::size_t axis) { return reduced[axis] == (axis >= 2); };
  for (std::size_t axis = 0; axis < reduced.size(); ++axis) {
    if (!is_spatial(axis)) return std::nullopt;
  }
  return window;
}

}  // namespace

struct Compiler::PoolingWindow : Window {};

Compiler::Taken Compiler::pooling(const Node& node) {
  const Shape& src = value(node.inputs[0]).shape;
  if (src.rank() < 3 || src.rank() > 5) return false;
  const auto window = window_of(node.attributes.get<PoolingAttributes>(), src, value(node.outputs[0]).shape);
  return window ? pool(node, {*window}) : Taken(false);
}

Compiler::Taken Compiler::spatial_mean(const Node& node) {
  const Shape& src = value(node.inputs[0]).shape;
  if (src.rank() < 3 || src.rank() > 5) return false;
  const auto window = whole_window(node, src);
  return window ? pool(node, {*window}) : Taken(false);
}

Compiler::Taken Compiler::pool(const Node& node, const PoolingWindow& window) {
  const Shape &src_shape = value(node.inputs[0]).shape, &dst_shape = value(node.outputs[0]).shape;
  if (!counts_positions_of(window, src_shape)) return false;
  // A reduction may drop the axes that pooling leaves with extent 1.
  dnnl::memory::dims dst_dims = dims_of(dst_shape);
  dst_dims.resize(static_cast<std::size_t>(src_shape.rank()), 1);
  const PostOp scaling{.functions = {{ElementFunction::Kind::kLinear, window.scale, 0}}};
  const auto attr = attributes_for(std::span(&scaling, window.scale == 1 ? 0 : 1));
  const Type type = type_of(node.outputs[0]);
  SHOAL_ASSIGN_OR_RETURN(const Form first, first_form(node.inputs[0]));
  const Desc candidates[] = {as_type(first.desc, type), blocked_desc(dims_of(src_shape), type), plain_desc(src_shape, type)};
  for (const Desc& from : candidates) {
    if (from == Desc()) continue;
    const dnnl::pooling_forward::desc desc(dnnl::prop_kind::forward_inference, window.algorithm, from, any_desc(dst_dims, type),
                                           window.stride, window.kernel, window.pad_begin, window.pad_end);
    const dnnl::pooling_forward::primitive_desc pd(desc, attr, engine(), /*allow_empty=*/true);
    if (!pd || !is_optimized(pd)) continue;
    SHOAL_ASSIGN_OR_RETURN(const Form src, form_as(node.inputs[0], from));
    Form dst = new_form(pd.dst_desc());
    add_step(describe(node), dnnl::pooling_forward(pd), pd.scratchpad_desc(),
             {{DNNL_ARG_SRC, src.desc, src.buffer}, {DNNL_ARG_DST, dst.desc, dst.buffer}});
    if (dst_shape.rank() < src_shape.rank()) {
      const Desc plain = plain_desc(dst_dims, type);
      if (!same_memory(dst.desc, plain)) dst = reorder(describe(node), dst, plain);
      dst.desc = plain_desc(dst_shape, type);
    }
    add_form(node.outputs[0], dst);
    return true;
  }
  return false;
}

}  // namespace shoal::worker::cpu

// Pooling, where oneDNN's meaning is exactly the operator's.
#include <algorithm>

#include "shm/base/errors.hpp"
#include "worker/exec/cpu/compiler.hpp"
#include "worker/graph/operators.hpp"

namespace shoal::worker::cpu {
namespace {

struct Window {
  dnnl::memory::dims kernel, stride, pad_begin, pad_end;
  dnnl::algorithm algorithm = dnnl::algorithm::undef;
};

// Nothing when oneDNN would compute something else.
std::optional<Window> window_of(const PoolingAttributes& attributes, const Shape& src, const Shape& dst) {
  if (attributes.channels_last || attributes.legacy) return std::nullopt;
  if (attributes.kind != PoolingKind::kMax && attributes.kind != PoolingKind::kAvg) return std::nullopt;
  Window window;
  bool overhangs = false, padded = false;
  for (int axis = 2; axis < src.rank(); ++axis) {
    const auto at = static_cast<std::size_t>(axis - 2);
    const std::int64_t kernel = attributes.global ? src[axis] : attributes.kernel[at];
    const std::int64_t stride = attributes.global ? 1 : attributes.stride[at];
    const std::int64_t pad = attributes.global ? 0 : attributes.pad[at];
    // How far the last window reaches behind the input; negative when it does not reach its end.
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

}  // namespace

Compiler::Taken Compiler::pooling(const Node& node) {
  const auto& attributes = std::get<PoolingAttributes>(node.attributes);
  const Shape &src_shape = value(node.inputs[0]).shape, &dst_shape = value(node.outputs[0]).shape;
  if (src_shape.rank() < 3 || src_shape.rank() > 5) return false;
  const auto window = window_of(attributes, src_shape, dst_shape);
  if (!window) return false;
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  SHOAL_ASSIGN_OR_RETURN(const Form first, first_form(node.inputs[0]));
  const Desc candidates[] = {first.desc, blocked_desc(dims_of(src_shape)), plain_desc(src_shape)};
  for (const Desc& from : candidates) {
    if (from == Desc()) continue;
    const dnnl::pooling_forward::desc desc(dnnl::prop_kind::forward_inference, window->algorithm, from,
                                           any_desc(dims_of(dst_shape)), window->stride, window->kernel, window->pad_begin,
                                           window->pad_end);
    const dnnl::pooling_forward::primitive_desc pd(desc, attr, engine(), /*allow_empty=*/true);
    if (!pd || !is_optimised(pd)) continue;
    SHOAL_ASSIGN_OR_RETURN(const Form src, form_as(node.inputs[0], from));
    const Form dst = new_form(pd.dst_desc());
    add_step(describe(node), dnnl::pooling_forward(pd), pd.scratchpad_desc(),
             {{DNNL_ARG_SRC, src.desc, src.buffer}, {DNNL_ARG_DST, dst.desc, dst.buffer}});
    add_form(node.outputs[0], dst);
    return true;
  }
  return false;
}

}  // namespace shoal::worker::cpu

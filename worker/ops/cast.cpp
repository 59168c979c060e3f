// Cast, AmpMulticast.
#include "worker/ops/cast.hpp"

#include <algorithm>
#include <utility>

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/elements.hpp"

namespace shoal::worker {
namespace {

Status infer_cast(const Node& node, SourceValues src, ResultValues dst) {
  const auto& cast = node.attributes.get<CastAttributes>();
  const DType from = src[0].dtype;
  const bool passes = cast.floats_only && (!is_float(from) || from == DType::kFloat64);
  set_result(dst[0], passes ? from : cast.dtype, src[0].shape);
  return {};
}

Status infer_multicast(const Node& node, SourceValues src, ResultValues dst) {
  const bool narrow = node.attributes.get<MulticastAttributes>().narrow;
  DType common = DType::kInvalid;
  for (const TypedValue& value : src) {
    if (!is_float(value.dtype)) continue;
    const std::size_t size = dtype_size_bytes(value.dtype), chosen = dtype_size_bytes(common);
    if (common == DType::kInvalid || (narrow ? size < chosen : size > chosen)) common = value.dtype;
  }
  for (std::size_t i = 0; i < src.size(); ++i) {
    set_result(dst[i], is_float(src[i].dtype) ? common : src[i].dtype, src[i].shape);
  }
  return {};
}

template <typename W>
Status store(const Node& node, std::span<const W> block, DType dtype, std::byte* dst) {
  return dispatch<AnyTypes>(node, dtype, [&]<typename To>() {
    for (std::size_t i = 0; i < block.size(); ++i) reinterpret_cast<To*>(dst)[i] = convert<To>(block[i]);
    return Status();
  });
}

/// Converts block by block through the widest type. So there is one loop per type, not one per pair of types.
Status cast(const Node& node, const TensorView& src, TensorView& dst) {
  constexpr std::int64_t kBlock = 512;
  return dispatch<AnyTypes>(node, src.dtype, [&]<typename From>() {
    // A bool in a file or from a client may be any byte, but a C++ bool must be 0 or 1.
    const auto element = [&](std::int64_t i) {
      if constexpr (std::is_same_v<From, bool>)
        return elements<std::uint8_t>(src)[i] != 0;
      else
        return static_cast<Compute<From>>(elements<From>(src)[i]);
    };
    Wide<From> block[kBlock];
    for (std::int64_t first = 0, count = src.element_count(); first < count; first += kBlock) {
      const std::int64_t size = std::min(kBlock, count - first);
      for (std::int64_t i = 0; i < size; ++i) block[i] = static_cast<Wide<From>>(element(first + i));
      std::byte* const to = dst.data + static_cast<std::size_t>(first) * dtype_size_bytes(dst.dtype);
      SHOAL_RETURN_IF_ERROR(store<Wide<From>>(node, {block, static_cast<std::size_t>(size)}, dst.dtype, to));
    }
    return Status();
  });
}

Status compute_cast(const Node& node, Sources src, Results dst) {
  for (std::size_t i = 0; i < src.size(); ++i) {
    if (!dst[i].data) continue;
    SHOAL_RETURN_IF_ERROR(cast(node, src[i], dst[i]));
  }
  return {};
}

}  // namespace

namespace ops {

const Operator kCast({
    .name = "Cast",
    .attributes = &kSchema<CastAttributes>,
    .infer = infer_cast,
    .facts = elementwise_facts(rows_of_first_input, Accuracy::kLost),
    .oracle = compute_cast,
    .formula = "data in another type. Floats are cut to integers as x86 does it",
    .source = "MXNet 1.9.1 src/operator/tensor/elemwise_unary_op.h, amp_cast.h",
});

const Operator kAmpMulticast({
    .name = "AmpMulticast",
    .inputs = {1, Arity::kAny},
    .outputs = {1, Arity::kAny},
    .attributes = &kSchema<MulticastAttributes>,
    .infer = infer_multicast,
    .facts = layer_facts(rows_of_all_inputs, work_of_elements, Accuracy::kLost),
    .oracle = compute_cast,
    .formula = "any number of inputs, each in the widest (or narrowest) floating-point type among them",
    .source = "MXNet 1.9.1 src/operator/tensor/amp_cast.h",
});

}  // namespace ops

}  // namespace shoal::worker

// Resize, Crop.
#include "worker/ops/resize.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/resize_functions.hpp"

namespace shoal::worker {
namespace {

/// floor(scale * size), in float32 as MXNet computes it; a new symbol if that is no product of whole numbers.
Dim scaled(const TypedValue& dst, int axis, float scale, Dim size) {
  constexpr float kMost = 0x1p31F;
  if (scale >= 1 && scale < kMost && scale == std::floor(scale)) return size * static_cast<std::int64_t>(scale);
  const auto product = [&](std::int64_t whole) {
    const float exact = scale * static_cast<float>(whole);
    return exact >= 0 ? static_cast<std::int64_t>(std::min(exact, kMost)) : 0;  // NaN, too, is 0
  };
  return size.is_number() ? Dim(product(size.number())) : size_from_data(dst, axis, product(size.highest()) + 1);
}

/// The size of one axis of the result.
Dim size_to(const ResizeAttributes& resize, const TypedValue& dst, int axis, bool is_height, Dim size, Dim like) {
  const float scale = is_height ? resize.scale_height : resize.scale_width;
  switch (resize.to) {
    case ResizeTo::kSize:
    case ResizeTo::kShorterSide:
      break;
    case ResizeTo::kScaled:
      return scaled(dst, axis, scale, size);
    case ResizeTo::kOddScaled:
      if (!size.is_number()) return size_from_data(dst, axis, scaled(dst, axis, scale, size.highest()) + 1);
      return size.number() % 2 == 0 ? scaled(dst, axis, scale, size) : scaled(dst, axis, scale, size - 1) + 1;
    case ResizeTo::kLike:
      return scaled(dst, axis, scale, like);
    case ResizeTo::kEvenDown:
      return 2 * floor_div(size, 2);
    case ResizeTo::kEvenUp:
      return 2 * ceil_div(size, 2);
    case ResizeTo::kOddDown:
      return 2 * ceil_div(size, 2) - 1;
    case ResizeTo::kOddUp:
      return 2 * floor_div(size, 2) + 1;
  }
  return is_height ? resize.height : resize.width;
}

/// The longer side of a picture whose other side becomes `shorter` long.
Dim longer_side(const TypedValue& dst, int axis, std::int64_t shorter, Dim size, Dim other) {
  if (size.is_number() && other.is_number()) {
    // Of two equal sides both become `shorter` long.
    return size.number() > other.number() ? floor_div(size * shorter, other) : Dim(shorter);
  }
  return size_from_data(dst, axis, Dim(shorter) * size.highest());
}

Status infer_resize(const Node& node, SourceValues src, ResultValues dst) {
  const auto& resize = node.attributes.get<ResizeAttributes>();
  const TypedValue& data = src[0];
  const int rank = data.shape.rank(), first = resize.channels_last ? rank - 3 : rank - 2;
  SHOAL_RETURN_IF_ERROR(check_rank(node, data, resize.channels_last ? 3 : 4, 4));
  const bool takes_bytes = resize.kind == ResizeKind::kOpenCvLinear && data.dtype == DType::kUInt8;
  if (is_linear(resize.kind) && !takes_bytes) SHOAL_RETURN_IF_ERROR(check_float(node, data));
  SHOAL_RETURN_IF_ERROR(check_numbers(node, "size", {resize.height, resize.width}, 1));
  const bool has_like = resize.to == ResizeTo::kLike;
  if (src.size() != (has_like ? 2U : 1U)) return invalid_argument("{}: {} inputs", describe(node), src.size());
  if (has_like) SHOAL_RETURN_IF_ERROR(check_rank(node, src[1], 4, 4));
  if (known_less(min(data.shape[first], data.shape[first + 1]), 1))
    return invalid_argument("{}: '{}' has shape {}: no pixels", describe(node), data.name, data.shape.to_string());
  SymbolicShape out = data.shape;
  for (int i = 0; i < 2; ++i) {
    const int axis = first + i;
    const Dim size = data.shape[axis];
    out[axis] = resize.to == ResizeTo::kShorterSide
                    ? longer_side(dst[0], axis, resize.height, size, data.shape[first + 1 - i])
                    : size_to(resize, dst[0], axis, i == 0, size, has_like ? src[1].shape[2 + i] : Dim());
    if (known_less(out[axis], 1)) {
      return invalid_argument("{}: axis {} of '{}' ({}) would become {} long", describe(node), axis, data.name,
                              data.shape.to_string(), out[axis].to_string());
    }
    if (resize.kind == ResizeKind::kRepeat && size.is_number() && known_indivisible(out[axis], size)) {
      return invalid_argument("{}: the {} of axis {} of '{}' ({}) cannot each be repeated to become {}", describe(node),
                              size.to_string(), axis, data.name, data.shape.to_string(), out[axis].to_string());
    }
  }
  set_result(dst[0], data.dtype, out);
  return {};
}

Status infer_crop(const Node& node, SourceValues src, ResultValues dst) {
  const auto& crop = node.attributes.get<CropAttributes>();
  const TypedValue& data = src[0];
  for (const TypedValue& picture : src) SHOAL_RETURN_IF_ERROR(check_rank(node, picture, 4, 4));
  SHOAL_RETURN_IF_ERROR(check_numbers(node, "offset", {crop.top, crop.left}, 0));
  if (src.size() == 1) SHOAL_RETURN_IF_ERROR(check_numbers(node, "h_w", {crop.height, crop.width}, 1));
  SymbolicShape out = data.shape;
  for (int i = 0; i < 2; ++i) {
    const int axis = 2 + i;
    const std::int64_t given = i == 0 ? crop.height : crop.width, offset = i == 0 ? crop.top : crop.left;
    out[axis] = src.size() == 2 ? src[1].shape[axis] : Dim(given);
    if (known_less(data.shape[axis], out[axis] + (crop.centered ? 0 : offset))) {
      return invalid_argument("{}: {} from {} on are not in axis {} of '{}' ({})", describe(node), out[axis].to_string(),
                              crop.centered ? 0 : offset, axis, data.name, data.shape.to_string());
    }
  }
  set_result(dst[0], data.dtype, out);
  return {};
}

Status compute_resize(const Node& node, Sources src, Results dst) {
  const ResizePictures pictures(node.attributes.get<ResizeAttributes>(), src[0].shape, dst[0].shape);
  const bool is_known = with_resize_rows(pictures, dst[0].dtype, [&](const auto& rows) {
    rows.compute(src[0].data, dst[0].data, 0, pictures.count * pictures.new_height, Undivided());
  });
  return is_known ? Status() : no_kernel(node, dst[0].dtype);
}

Status compute_crop(const Node& node, Sources src, Results dst) {
  const Shape &from = src[0].shape, &to = dst[0].shape;
  const auto [top, left] = first_pixel(node.attributes.get<CropAttributes>(), from, to);
  const std::size_t bytes = dtype_size_bytes(dst[0].dtype), row = static_cast<std::size_t>(to[3]) * bytes;
  std::byte* out = dst[0].data;
  for (std::int64_t plane = 0; plane < to[0] * to[1]; ++plane) {
    for (std::int64_t y = 0; y < to[2]; ++y, out += row)
      std::memcpy(out, src[0].data + static_cast<std::size_t>((plane * from[2] + top + y) * from[3] + left) * bytes, row);
  }
  return {};
}

/// Of a batch of pictures, whatever the second input is: only its sizes count.
bool picture_rows(const BatchedNode& batched) { return batched.rank() == 4 && batched.has_rows_in(0); }

}  // namespace

std::array<std::int64_t, 2> first_pixel(const CropAttributes& crop, const Shape& data, const Shape& result) {
  if (!crop.centered) return {crop.top, crop.left};
  return {(data[2] - result[2]) / 2, (data[3] - result[3]) / 2};
}

namespace ops {

const Operator kResize({
    .name = "Resize",
    .inputs = {1, 2},
    .attributes = &kSchema<ResizeAttributes>,
    .infer = infer_resize,
    .facts = with_shape_inputs(layer_facts(picture_rows, work_of_elements, Accuracy::kLost), 1),
    .oracle = compute_resize,
    .formula = "data (N, C, H, W), [like (N, C, H, W), of which only H and W count]: the pictures in another size",
    .source = "MXNet 1.9.1 src/operator/contrib/bilinear_resize-inl.h, nn/upsampling-inl.h, image/resize-inl.h",
});

const Operator kCrop({
    .name = "Crop",
    .inputs = {1, 2},
    .attributes = &kSchema<CropAttributes>,
    .infer = infer_crop,
    .facts = with_shape_inputs(view_facts(picture_rows), 1),
    .oracle = compute_crop,
    .formula = "data (N, C, H, W), [like (N, C, H, W), of which only H and W count]: a part of the pictures",
    .source = "MXNet 1.9.1 src/operator/crop-inl.h",
});

}  // namespace ops

}  // namespace shoal::worker

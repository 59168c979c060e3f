// Shape rules of the operators that only move elements.
#include <algorithm>
#include <string>
#include <vector>

#include "shm/base/errors.hpp"
#include "shm/base/ranges.hpp"
#include "worker/graph/axes.hpp"
#include "worker/graph/shapes.hpp"

namespace shoal::worker {
namespace {

/// Runs MXNet's reshape codes over the dimensions of the data, left to right.
class ReshapeScan {
 public:
  ReshapeScan(const Dims& codes, const Dims& data) : codes_(codes), data_(data) {}

  /// The new dimensions, or why there are none.
  Result<Dims> run() {
    while (code_ < codes_.size()) SHOAL_RETURN_IF_ERROR(step(codes_[code_++]));
    if (inferred_) SHOAL_RETURN_IF_ERROR(infer_rest());
    return out_;
  }

 private:
  Status step(std::int64_t code) {
    switch (code) {
      case 0:
        return copy();
      case -1:
        return postpone();
      case -2:
        while (dim_ < data_.size()) out_.push_back(data_[dim_++]);
        return {};
      case -3:
        return merge();
      case -4:
        return split();
      default:
        break;
    }
    if (code < 0) return invalid_argument("shape holds {}, which is no code", code);
    out_.push_back(code);
    ++dim_;
    return {};
  }

  Status copy() {
    if (dim_ >= data_.size()) return invalid_argument("shape has a 0 beyond the last axis");
    out_.push_back(data_[dim_++]);
    return {};
  }

  Status postpone() {
    if (inferred_) return invalid_argument("shape has more than one -1");
    inferred_ = out_.size();
    out_.push_back(1);
    ++dim_;
    return {};
  }

  Status merge() {
    if (dim_ + 1 >= data_.size()) return invalid_argument("shape has a -3 where fewer than two axes are left");
    out_.push_back(data_[dim_] * data_[dim_ + 1]);
    dim_ += 2;
    return {};
  }

  Status split() {
    if (code_ + 1 >= codes_.size()) return invalid_argument("shape has a -4 without two numbers behind it");
    if (dim_ >= data_.size()) return invalid_argument("shape has a -4 beyond the last axis");
    const std::int64_t whole = data_[dim_++];
    std::int64_t first = codes_[code_++], second = codes_[code_++];
    if (first == -1 && second > 0)
      first = whole / second;
    else if (second == -1 && first > 0)
      second = whole / first;
    if (first < 1 || second < 1 || checked_multiply(first, second) != whole) {
      return invalid_argument("shape splits an axis of {} into {} and {}", whole, first, second);
    }
    out_.insert(out_.end(), {first, second});
    return {};
  }

  Status infer_rest() {
    std::int64_t total = 1, others = 1;
    for (const std::int64_t dim : data_) total *= dim;  // the data exists: its size fits
    for (const std::int64_t dim : out_) {
      const auto product = checked_multiply(others, dim);
      if (!product) return invalid_argument("shape is too large");
      others = *product;
    }
    if (others > 0) out_[*inferred_] = total / others;
    return {};
  }

  const Dims &codes_, &data_;
  std::size_t code_ = 0, dim_ = 0;
  std::optional<std::size_t> inferred_;
  Dims out_;
};

/// With reverse=True the codes count from the last axis: both lists are reversed, read, and the result is reversed again.
Result<Dims> scan(const ReshapeAttributes& reshape, Dims data) {
  Dims codes = reshape.shape;
  if (!reshape.reverse) return ReshapeScan(codes, data).run();
  std::reverse(codes.begin(), codes.end());
  std::reverse(data.begin(), data.end());
  SHOAL_ASSIGN_OR_RETURN(Dims out, ReshapeScan(codes, data).run());
  std::reverse(out.begin(), out.end());
  return out;
}

/// `target_shape` of old files: a single 0 is inferred; with keep_highest the first dimension is that of the data.
Result<Dims> legacy_target(const ReshapeAttributes& reshape, const Shape& data) {
  Dims out = reshape.shape;
  if (reshape.keep_highest && !out.empty() && data.rank() > 0) out[0] = data[0];
  const auto first = out.begin() + (reshape.keep_highest && !out.empty() ? 1 : 0);
  if (std::count(first, out.end(), 0) != 1) return out;
  const auto open = std::find(first, out.end(), 0);
  *open = 1;
  std::int64_t others = 1;
  for (const std::int64_t dim : out) {
    const auto product = dim < 1 ? std::nullopt : checked_multiply(others, dim);
    if (!product) return invalid_argument("target_shape {} is no shape", to_text(reshape.shape));
    others = *product;
  }
  *open = data.element_count() / others;
  return out;
}

}  // namespace

Status infer_concat(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_RETURN_IF_ERROR(check_same_dtype(node, src));
  Shape out = src[0]->shape;
  SHOAL_ASSIGN_OR_RETURN(const int axis, normalize_axis(node, std::get<ConcatAttributes>(node.attributes).axis, out));
  for (std::size_t i = 1; i < src.size(); ++i) {
    const Shape& piece = src[i]->shape;
    bool fits = piece.rank() == out.rank();
    for (int k = 0; fits && k < out.rank(); ++k) fits = k == axis || piece[k] == out[k];
    if (!fits) {
      return invalid_argument("{}: '{}' has shape {} and '{}' has {}; they may differ only in axis {}", describe(node),
                              src[0]->name, src[0]->shape.to_string(), src[i]->name, piece.to_string(), axis);
    }
    const auto length = checked_add(out[axis], piece[axis]);
    if (!length || *length > kMaxElements) {
      return invalid_argument("{}: its {} inputs together are longer than {} along axis {}", describe(node), src.size(),
                              kMaxElements, axis);
    }
    out[axis] = *length;
  }
  set_result(*dst[0], src[0]->dtype, out);
  return {};
}

Status infer_flatten(const Node& node, SourceValues src, ResultValues dst) {
  const Shape& data = src[0]->shape;
  if (data.rank() == 0) return invalid_argument("{}: '{}' is a scalar", describe(node), src[0]->name);
  std::int64_t rest = 1;
  for (int axis = 1; axis < data.rank(); ++axis) rest *= data[axis];
  set_result(*dst[0], src[0]->dtype, Shape{data[0], rest});
  return {};
}

Status infer_reshape(const Node& node, SourceValues src, ResultValues dst) {
  const auto& reshape = std::get<ReshapeAttributes>(node.attributes);
  const Shape& data = src[0]->shape;
  const Result<Dims> dims = reshape.legacy_target ? legacy_target(reshape, data) : scan(reshape, Dims(data.begin(), data.end()));
  if (!dims.ok()) {
    return dims.status().with_context(
        format("{}: shape {} on '{}' of shape {}", describe(node), to_text(reshape.shape), src[0]->name, data.to_string()));
  }
  SHOAL_ASSIGN_OR_RETURN(const Shape out, make_shape(node, *dims));
  if (out.element_count() != data.element_count()) {
    return invalid_argument("{}: shape {} makes {} of '{}' of shape {}: {} elements do not make {}", describe(node),
                            to_text(reshape.shape), out.to_string(), src[0]->name, data.to_string(), data.element_count(),
                            out.element_count());
  }
  set_result(*dst[0], src[0]->dtype, out);
  return {};
}

Status infer_transpose(const Node& node, SourceValues src, ResultValues dst) {
  const Dims& axes = std::get<TransposeAttributes>(node.attributes).axes;
  const Shape& data = src[0]->shape;
  Shape out = data;
  if (axes.empty()) {
    std::vector<std::int64_t> dims(data.begin(), data.end());
    std::reverse(dims.begin(), dims.end());
    out = Shape(dims);
  } else {
    Dims sorted = axes;
    std::sort(sorted.begin(), sorted.end());
    bool permutes = static_cast<int>(axes.size()) == data.rank();
    for (std::size_t i = 0; permutes && i < sorted.size(); ++i) permutes = sorted[i] == static_cast<std::int64_t>(i);
    if (!permutes) {
      return invalid_argument("{}: axes {} are no permutation of the {} axes of '{}' ({})", describe(node), to_text(axes),
                              data.rank(), src[0]->name, data.to_string());
    }
    for (int i = 0; i < data.rank(); ++i) out[i] = data[static_cast<int>(axes[static_cast<std::size_t>(i)])];
  }
  set_result(*dst[0], src[0]->dtype, out);
  return {};
}

Status infer_swap_axes(const Node& node, SourceValues src, ResultValues dst) {
  const auto& swap = std::get<SwapAxesAttributes>(node.attributes);
  Shape out = src[0]->shape;
  SHOAL_ASSIGN_OR_RETURN(const int first, normalize_axis(node, swap.first, out));
  SHOAL_ASSIGN_OR_RETURN(const int second, normalize_axis(node, swap.second, out));
  std::swap(out[first], out[second]);
  set_result(*dst[0], src[0]->dtype, out);
  return {};
}

Status infer_slice(const Node& node, SourceValues src, ResultValues dst) {
  const auto& slice = std::get<SliceAttributes>(node.attributes);
  const Value& data = *src[0];
  Shape out = data.shape;
  std::vector<bool> listed(static_cast<std::size_t>(data.shape.rank()));
  for (const SliceRange& range : slice.ranges) {
    SHOAL_ASSIGN_OR_RETURN(const int axis, normalize_axis(node, range.axis, data.shape));
    if (listed[static_cast<std::size_t>(axis)]) {
      return invalid_argument("{}: axis {} is listed twice ('{}' has shape {})", describe(node), range.axis, data.name,
                              data.shape.to_string());
    }
    listed[static_cast<std::size_t>(axis)] = true;
    if (range.step == 0) return invalid_argument("{}: step of axis {} is 0", describe(node), axis);
    const std::int64_t size = data.shape[axis], begin = range.begin.value_or(0), end = range.end.value_or(size);
    if (!slice.clips && (begin < -size || begin >= size || end < -size || end > size)) {
      return invalid_argument("{}: begin {} or end {} lies outside axis {} of '{}' ({})", describe(node), begin, end, axis,
                              data.name, data.shape.to_string());
    }
    out[axis] = resolve(range, size).count;
    if (out[axis] == 0) {
      return invalid_argument("{}: nothing is left of axis {} of '{}' ({})", describe(node), axis, data.name,
                              data.shape.to_string());
    }
  }
  set_result(*dst[0], data.dtype, out);
  return {};
}

Status infer_split(const Node& node, SourceValues src, ResultValues dst) {
  const auto& split = std::get<SplitAttributes>(node.attributes);
  const Value& data = *src[0];
  SHOAL_ASSIGN_OR_RETURN(const int axis, normalize_axis(node, split.axis, data.shape));
  if (split.parts < 1 || data.shape[axis] % split.parts != 0) {
    return invalid_argument("{}: axis {} of '{}' ({}) cannot be cut into {} equal parts", describe(node), axis, data.name,
                            data.shape.to_string(), split.parts);
  }
  Dims out(data.shape.begin(), data.shape.end());
  out[static_cast<std::size_t>(axis)] /= split.parts;
  if (split.squeeze) {
    if (out[static_cast<std::size_t>(axis)] != 1 || out.size() == 1) {
      return invalid_argument("{}: axis {} of '{}' ({}) is {} long in each of {} parts; it cannot be squeezed away",
                              describe(node), axis, data.name, data.shape.to_string(), out[static_cast<std::size_t>(axis)],
                              split.parts);
    }
    out.erase(out.begin() + axis);
  }
  for (Value* part : dst) set_result(*part, data.dtype, Shape(out));
  return {};
}

Status infer_pad(const Node& node, SourceValues src, ResultValues dst) {
  const auto& pad = std::get<PadAttributes>(node.attributes);
  const Value& data = *src[0];
  SHOAL_RETURN_IF_ERROR(check_number(node, data));
  SHOAL_RETURN_IF_ERROR(check_rank(node, data, 4, 5));
  Shape out = data.shape;
  if (pad.widths.size() != static_cast<std::size_t>(2 * out.rank())) {
    return invalid_argument("{}: pad_width has {} entries; '{}' of shape {} needs {}", describe(node), pad.widths.size(),
                            data.name, data.shape.to_string(), 2 * out.rank());
  }
  SHOAL_RETURN_IF_ERROR(check_numbers(node, "pad_width", pad.widths, 0));
  for (int axis = 0; axis < out.rank(); ++axis) {
    const std::int64_t before = pad.widths[static_cast<std::size_t>(2 * axis)],
                       behind = pad.widths[static_cast<std::size_t>(2 * axis + 1)];
    if (pad.mode == PadMode::kReflect && std::max(before, behind) >= out[axis]) {
      return invalid_argument("{}: pad_width {} of axis {}; '{}' of shape {} has too few elements there to reflect",
                              describe(node), std::max(before, behind), axis, data.name, data.shape.to_string());
    }
    out[axis] += before + behind;
  }
  set_result(*dst[0], data.dtype, out);
  return {};
}

}  // namespace shoal::worker

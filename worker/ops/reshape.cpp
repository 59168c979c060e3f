// Identity, Flatten, Reshape, ReshapeLike, ExpandDims, Squeeze, AtLeast: the same elements in the same order.
#include "worker/ops/reshape.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "shm/base/errors.hpp"
#include "shm/base/ranges.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/elements.hpp"

namespace shoal::worker {
namespace {

Status infer_flatten(const Node& node, SourceValues src, ResultValues dst) {
  const SymbolicShape& data = src[0].shape;
  if (data.rank() == 0) return invalid_argument("{}: '{}' is a scalar", describe(node), src[0].name);
  Dim rest = 1;
  for (int axis = 1; axis < data.rank(); ++axis) rest *= data[axis];
  set_result(dst[0], src[0].dtype, SymbolicShape{data[0], rest});
  return {};
}

/// Runs MXNet's reshape codes over the dimensions of the data, left to right.
class ReshapeScan {
 public:
  ReshapeScan(const Dims& codes, const Sizes& data, bool as_numpy) : codes_(codes), data_(data), as_numpy_(as_numpy) {}

  /// The new dimensions, or why there are none.
  Result<Sizes> run() {
    while (code_ < codes_.size()) {
      const std::int64_t code = codes_[code_++];
      SHOAL_RETURN_IF_ERROR(as_numpy_ ? numpy_step(code) : step(code));
    }
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
        return add(code);
    }
  }

  Status numpy_step(std::int64_t code) {
    switch (code) {
      case -2:
        return copy();
      case -3:
        if (dim_ >= data_.size() || known_unequal(data_[dim_], 1))
          return invalid_argument("shape has a -3 where there is no axis of one element");
        ++dim_;
        return {};
      case -1:
        return postpone();
      case -4:
        return step(-2);
      case -5:
        return merge();
      case -6:
        return split();
      default:
        return add(code);
    }
  }

  /// A size that is none of the codes.
  Status add(std::int64_t size) {
    if (size < 0) return invalid_argument("shape holds {}, which is no code", size);
    out_.push_back(size);
    ++dim_;
    return {};
  }

  Status copy() {
    if (dim_ >= data_.size()) return invalid_argument("shape copies an axis beyond the last one");
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
    if (dim_ + 1 >= data_.size()) return invalid_argument("shape merges two axes where fewer are left");
    out_.push_back(data_[dim_] * data_[dim_ + 1]);
    dim_ += 2;
    return {};
  }

  Status split() {
    if (code_ + 1 >= codes_.size()) return invalid_argument("shape splits an axis without two numbers behind the code");
    if (dim_ >= data_.size()) return invalid_argument("shape splits an axis beyond the last one");
    const Dim whole = data_[dim_++];
    const std::int64_t codes[] = {codes_[code_], codes_[code_ + 1]};
    code_ += 2;
    Dim first = codes[0], second = codes[1];
    if (codes[0] == -1 && codes[1] > 0)
      first = floor_div(whole, second);
    else if (codes[1] == -1 && codes[0] > 0)
      second = floor_div(whole, first);
    if (known_less(first, 0) || known_less(second, 0) || known_unequal(first * second, whole)) {
      return invalid_argument("shape splits an axis of {} into {} and {}", whole.to_string(), first.to_string(),
                              second.to_string());
    }
    out_.insert(out_.end(), {first, second});
    return {};
  }

  Status infer_rest() {
    const Dim others = count(out_);
    if (known_less(kMaxElements, others)) return invalid_argument("shape is too large");
    // Empty data, of which an empty axis was copied: the axes that are not empty decide.
    const bool is_empty = others == 0;
    out_[*inferred_] = is_empty ? floor_div(count(data_, 1), count(out_, 1)) : floor_div(count(data_), others);
    return {};
  }

  /// Their product. Those that are 0 count as `empty`.
  static Dim count(const Sizes& sizes, Dim empty = 0) {
    Dim product = 1;
    for (const Dim size : sizes) product *= size == 0 ? empty : size;
    return product;
  }

  const Dims& codes_;
  const Sizes& data_;
  const bool as_numpy_;
  std::size_t code_ = 0, dim_ = 0;
  std::optional<std::size_t> inferred_;
  Sizes out_;
};

/// With reverse=True the codes count from the last axis: both lists are reversed, read, and the result is reversed again.
Result<Sizes> scan(const ReshapeAttributes& reshape, Sizes data) {
  Dims codes = reshape.shape;
  if (!reshape.reverse) return ReshapeScan(codes, data, reshape.as_numpy).run();
  std::reverse(codes.begin(), codes.end());
  std::reverse(data.begin(), data.end());
  SHOAL_ASSIGN_OR_RETURN(Sizes out, ReshapeScan(codes, data, reshape.as_numpy).run());
  std::reverse(out.begin(), out.end());
  return out;
}

/// `target_shape` of old files: a single 0 is inferred; with keep_highest the first dimension is that of the data.
Result<Sizes> legacy_target(const ReshapeAttributes& reshape, const SymbolicShape& data) {
  Sizes out(reshape.shape.begin(), reshape.shape.end());
  if (reshape.keep_highest && !out.empty() && data.rank() > 0) out[0] = data[0];
  const auto first = out.begin() + (reshape.keep_highest && !out.empty() ? 1 : 0);
  if (std::count(first, out.end(), Dim(0)) != 1) return out;
  const auto open = std::find(first, out.end(), Dim(0));
  *open = 1;
  Dim others = 1;
  for (const Dim dim : out) {
    if (known_less(dim, 1)) return invalid_argument("target_shape {} is no shape", to_text(reshape.shape));
    others *= dim;
  }
  if (known_less(kMaxElements, others)) return invalid_argument("target_shape {} is no shape", to_text(reshape.shape));
  *open = floor_div(data.element_count(), others);
  return out;
}

Status infer_reshape(const Node& node, SourceValues src, ResultValues dst) {
  const auto& reshape = node.attributes.get<ReshapeAttributes>();
  const SymbolicShape& data = src[0].shape;
  const Result<Sizes> dims =
      reshape.legacy_target ? legacy_target(reshape, data) : scan(reshape, Sizes(data.begin(), data.end()));
  if (!dims.ok()) {
    return dims.status().with_context(
        format("{}: shape {} on '{}' of shape {}", describe(node), to_text(reshape.shape), src[0].name, data.to_string()));
  }
  SHOAL_ASSIGN_OR_RETURN(const SymbolicShape out, make_shape(node, *dims));
  const Dim have = data.element_count(), make = out.element_count();
  if (known_unequal(have, make) || std::ranges::any_of(out, [](Dim dim) { return known_less(dim, 0); })) {
    return invalid_argument("{}: shape {} makes {} of '{}' of shape {}: {} elements do not make {}", describe(node),
                            to_text(reshape.shape), out.to_string(), src[0].name, data.to_string(), have.to_string(),
                            make.to_string());
  }
  set_result(dst[0], src[0].dtype, out);
  return {};
}

/// The axes from `begin` on, before `end`; both may be negative.
struct AxisRange {
  std::int64_t begin, end;
};
Result<AxisRange> axes_of(const Node& node, const TypedValue& value, std::optional<std::int64_t> begin,
                          std::optional<std::int64_t> end) {
  const std::int64_t rank = value.shape.rank();
  const auto counted = [&](std::int64_t axis) { return axis < 0 ? axis + rank : axis; };
  const AxisRange range{counted(begin.value_or(0)), counted(end.value_or(rank))};
  if (range.begin >= 0 && range.begin <= range.end && range.end <= rank) return range;
  return invalid_argument("{}: axes {} to {} are not those of '{}' ({})", describe(node), range.begin, range.end, value.name,
                          value.shape.to_string());
}

Status infer_reshape_like(const Node& node, SourceValues src, ResultValues dst) {
  const auto& attributes = node.attributes.get<ReshapeLikeAttributes>();
  const TypedValue &data = src[0], &like = src[1];
  SHOAL_ASSIGN_OR_RETURN(const AxisRange old, axes_of(node, data, attributes.begin, attributes.end));
  SHOAL_ASSIGN_OR_RETURN(const AxisRange taken, axes_of(node, like, attributes.like_begin, attributes.like_end));
  Sizes sizes(data.shape.begin(), data.shape.begin() + old.begin);
  sizes.insert(sizes.end(), like.shape.begin() + taken.begin, like.shape.begin() + taken.end);
  sizes.insert(sizes.end(), data.shape.begin() + old.end, data.shape.end());
  SHOAL_ASSIGN_OR_RETURN(const SymbolicShape out, make_shape(node, sizes));
  if (known_unequal(data.shape.element_count(), out.element_count())) {
    return invalid_argument("{}: '{}' ({}) and axes of '{}' ({}) make {}, which has another number of elements", describe(node),
                            data.name, data.shape.to_string(), like.name, like.shape.to_string(), out.to_string());
  }
  set_result(dst[0], data.dtype, out);
  return {};
}

Status infer_expand_dims(const Node& node, SourceValues src, ResultValues dst) {
  const Dims& axes = node.attributes.get<ExpandDimsAttributes>().axes;
  const SymbolicShape& data = src[0].shape;
  const auto rank = static_cast<std::size_t>(data.rank()) + axes.size();
  std::vector<bool> is_new(rank);
  for (const std::int64_t given : axes) {
    const std::int64_t axis = given < 0 ? given + static_cast<std::int64_t>(rank) : given;
    if (axis < 0 || std::cmp_greater_equal(axis, rank) || is_new[static_cast<std::size_t>(axis)]) {
      return invalid_argument("{}: axis {} cannot be a new one among the {} of '{}' ({}) and those that are added",
                              describe(node), given, rank, src[0].name, data.to_string());
    }
    is_new[static_cast<std::size_t>(axis)] = true;
  }
  Sizes sizes;
  const Dim* old = data.begin();
  for (const bool added : is_new) sizes.push_back(added ? Dim(1) : *old++);
  SHOAL_ASSIGN_OR_RETURN(const SymbolicShape out, make_shape(node, sizes));
  set_result(dst[0], src[0].dtype, out);
  return {};
}

Status infer_squeeze(const Node& node, SourceValues src, ResultValues dst) {
  const auto& squeeze = node.attributes.get<SqueezeAttributes>();
  const SymbolicShape& data = src[0].shape;
  std::vector<bool> goes(static_cast<std::size_t>(data.rank()));
  for (int axis = 0; axis < data.rank(); ++axis) goes[static_cast<std::size_t>(axis)] = squeeze.axes.empty() && data[axis] == 1;
  for (const std::int64_t given : squeeze.axes) {
    SHOAL_ASSIGN_OR_RETURN(const int axis, normalize_axis(node, given, data));
    if (known_unequal(data[axis], 1) || goes[static_cast<std::size_t>(axis)]) {
      return invalid_argument("{}: axis {} of '{}' ({}) does not have one element, or is listed twice", describe(node), given,
                              src[0].name, data.to_string());
    }
    goes[static_cast<std::size_t>(axis)] = true;
  }
  Sizes sizes;
  for (int axis = 0; axis < data.rank(); ++axis) {
    if (!goes[static_cast<std::size_t>(axis)]) sizes.push_back(data[axis]);
  }
  if (sizes.empty() && data.rank() > 0 && !squeeze.gives_scalars) sizes.push_back(1);
  set_result(dst[0], src[0].dtype, SymbolicShape(sizes));
  return {};
}

Status infer_at_least(const Node& node, SourceValues src, ResultValues dst) {
  const auto& least = node.attributes.get<AtLeastAttributes>();
  if (least.axes < 1 || least.axes > 3) return invalid_argument("{}: {} axes are not 1 to 3", describe(node), least.axes);
  Sizes sizes(src[0].shape.begin(), src[0].shape.end());
  if (sizes.empty()) sizes.push_back(1);
  if (least.axes > 1 && sizes.size() == 1) sizes.insert(least.is_column ? sizes.end() : sizes.begin(), 1);
  if (least.axes > 2 && sizes.size() == 2) sizes.push_back(1);
  set_result(dst[0], src[0].dtype, SymbolicShape(sizes));
  return {};
}

/// A constant has no rows, even if it is given the shape of a batch.
bool reshape_like_rows(const BatchedNode& batched) { return batched.has_rows_in(0); }

bool expand_dims_rows(const BatchedNode& batched) {
  const Dims& axes = batched.node.attributes.get<ExpandDimsAttributes>().axes;
  const std::int64_t rank = batched.rank() + static_cast<std::int64_t>(axes.size());
  return std::ranges::none_of(axes, [&](std::int64_t axis) { return axis == 0 || axis == -rank; });
}

/// Without a list of axes, a batch of one row would lose its axis.
bool squeeze_rows(const BatchedNode& batched) {
  const Dims& axes = batched.node.attributes.get<SqueezeAttributes>().axes;
  return !axes.empty() && std::ranges::none_of(axes, [&](std::int64_t axis) { return batched.is_of_rows(axis); });
}

/// Axes are added behind the rows only.
bool at_least_rows(const BatchedNode& batched) {
  const auto& least = batched.node.attributes.get<AtLeastAttributes>();
  return batched.rank() >= 2 || (batched.rank() == 1 && (least.axes == 1 || least.is_column));
}

Status compute_copy(const Node&, Sources src, Results dst) {
  std::memcpy(dst[0].data, src[0].data, dst[0].size_bytes());
  return {};
}

}  // namespace

namespace ops {

const Operator kIdentity({
    .name = "Identity",
    .infer = infer_same,
    .facts = reshape_facts(rows_of_first_input),
    .oracle = compute_copy,
    .formula = "data, unchanged",
    .source = "MXNet 1.9.1 src/operator/tensor/elemwise_unary_op.h",
});

const Operator kFlatten({
    .name = "Flatten",
    .infer = infer_flatten,
    .facts = reshape_facts(rows_of_first_input),
    .oracle = compute_copy,
    .formula = "data (d0, d1, ...) as (d0, d1 * ...)",
    .source = "MXNet 1.9.1 src/operator/tensor/matrix_op-inl.h",
});

const Operator kReshape({
    .name = "Reshape",
    .attributes = &kSchema<ReshapeAttributes>,
    .infer = infer_reshape,
    .facts = reshape_facts(rows_of_all_inputs),
    .oracle = compute_copy,
    .formula = "data in another shape. Codes of `shape`, left to right: 0 copies an axis, -1 is inferred, -2 copies the rest, -3 "
               "merges two axes, -4 splits one into the next two numbers",
    .source = "MXNet 1.9.1 src/operator/tensor/matrix_op-inl.h",
});

const Operator kReshapeLike({
    .name = "ReshapeLike",
    .inputs = 2,
    .attributes = &kSchema<ReshapeLikeAttributes>,
    .infer = infer_reshape_like,
    .facts = with_shape_inputs(reshape_facts(reshape_like_rows), 1),
    .oracle = compute_copy,
    .formula = "data, like: data with axes of `like` in place of some of its own",
    .source = "MXNet 1.9.1 src/operator/tensor/elemwise_unary_op_basic.cc",
});

const Operator kExpandDims({
    .name = "ExpandDims",
    .attributes = &kSchema<ExpandDimsAttributes>,
    .infer = infer_expand_dims,
    .facts = reshape_facts(expand_dims_rows),
    .oracle = compute_copy,
    .formula = "data with more axes, of one element each",
    .source = "MXNet 1.9.1 src/operator/tensor/matrix_op-inl.h",
});

const Operator kSqueeze({
    .name = "Squeeze",
    .attributes = &kSchema<SqueezeAttributes>,
    .infer = infer_squeeze,
    .facts = reshape_facts(squeeze_rows),
    .oracle = compute_copy,
    .formula = "data without axes of one element",
    .source = "MXNet 1.9.1 src/operator/tensor/matrix_op-inl.h",
});

const Operator kAtLeast({
    .name = "AtLeast",
    .attributes = &kSchema<AtLeastAttributes>,
    .infer = infer_at_least,
    .facts = reshape_facts(at_least_rows),
    .oracle = compute_copy,
    .formula =
        "data with at least so many axes: for two axes a vector (n) becomes (1, n), for three (1, n, 1), and a matrix (m, n) "
        "becomes (m, n, 1)",
    .source = "MXNet 1.9.1 src/operator/numpy/np_init_op.cc",
});

}  // namespace ops

}  // namespace shoal::worker

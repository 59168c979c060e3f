// Identity, Flatten, Reshape: the same elements in the same order.
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
  ReshapeScan(const Dims& codes, const Sizes& data) : codes_(codes), data_(data) {}

  /// The new dimensions, or why there are none.
  Result<Sizes> run() {
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
  std::size_t code_ = 0, dim_ = 0;
  std::optional<std::size_t> inferred_;
  Sizes out_;
};

/// With reverse=True the codes count from the last axis: both lists are reversed, read, and the result is reversed again.
Result<Sizes> scan(const ReshapeAttributes& reshape, Sizes data) {
  Dims codes = reshape.shape;
  if (!reshape.reverse) return ReshapeScan(codes, data).run();
  std::reverse(codes.begin(), codes.end());
  std::reverse(data.begin(), data.end());
  SHOAL_ASSIGN_OR_RETURN(Sizes out, ReshapeScan(codes, data).run());
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

Status compute_copy(const Node&, Sources src, Results dst) {
  std::memcpy(dst[0].data, src[0].data, dst[0].size_bytes());
  return {};
}

}  // namespace

namespace ops {

const Operator kIdentity({
    .name = "Identity",
    .infer = infer_same,
    .facts = view_facts(rows_of_first_input),
    .oracle = compute_copy,
    .formula = "data, unchanged",
    .source = "MXNet 1.9.1 src/operator/tensor/elemwise_unary_op.h",
});

const Operator kFlatten({
    .name = "Flatten",
    .infer = infer_flatten,
    .facts = view_facts(rows_of_first_input),
    .oracle = compute_copy,
    .formula = "data (d0, d1, ...) as (d0, d1 * ...)",
    .source = "MXNet 1.9.1 src/operator/tensor/matrix_op-inl.h",
});

const Operator kReshape({
    .name = "Reshape",
    .attributes = &kSchema<ReshapeAttributes>,
    .infer = infer_reshape,
    .facts = view_facts(rows_of_all_inputs),
    .oracle = compute_copy,
    .formula = "data in another shape. Codes of `shape`, left to right: 0 copies an axis, -1 is inferred, -2 copies the rest, -3 "
               "merges two axes, -4 splits one into the next two numbers",
    .source = "MXNet 1.9.1 src/operator/tensor/matrix_op-inl.h",
});

}  // namespace ops

}  // namespace shoal::worker

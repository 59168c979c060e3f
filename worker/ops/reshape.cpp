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
  const Shape& data = src[0]->shape;
  if (data.rank() == 0) return invalid_argument("{}: '{}' is a scalar", describe(node), src[0]->name);
  std::int64_t rest = 1;
  for (int axis = 1; axis < data.rank(); ++axis) rest *= data[axis];
  set_result(*dst[0], src[0]->dtype, Shape{data[0], rest});
  return {};
}

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

Status infer_reshape(const Node& node, SourceValues src, ResultValues dst) {
  const auto& reshape = node.attributes.get<ReshapeAttributes>();
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

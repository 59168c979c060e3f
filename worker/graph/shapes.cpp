// What the shape rules of operators share.
#include "worker/graph/shapes.hpp"

#include <algorithm>
#include <limits>

#include "shm/base/errors.hpp"
#include "shm/base/ranges.hpp"
#include "worker/graph/types.hpp"

namespace shoal::worker {

bool is_float(DType dtype) { return holds(Floats(), dtype); }
bool is_integer(DType dtype) { return holds(Integers(), dtype); }

bool is_open(const Shape& shape) {
  return shape.rank() == 0 || std::any_of(shape.begin(), shape.end(), [](std::int64_t dim) { return dim < 1; });
}

void set_result(Value& dst, DType dtype, const Shape& shape) {
  dst.dtype = dtype;
  dst.shape = shape;
}

Result<int> normalize_axis(const Node& node, std::int64_t axis, const Shape& shape) {
  const std::int64_t rank = shape.rank();
  if (axis < -rank || axis >= rank) {
    return invalid_argument("{}: axis {} is not among the {} of shape {}", describe(node), axis, rank, shape.to_string());
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

Result<Shape> make_shape(const Node& node, std::span<const std::int64_t> dims) {
  if (dims.size() > static_cast<std::size_t>(kMaxRank)) {
    return invalid_argument("{}: a shape of {} dimensions; at most {} are supported", describe(node), dims.size(), kMaxRank);
  }
  return Shape(dims);
}

Status check_same_dtype(const Node& node, SourceValues src) {
  for (const Value* value : src) {
    if (value->dtype != src[0]->dtype) {
      return invalid_argument("{}: '{}' is {} but '{}' is {}", describe(node), src[0]->name, dtype_name(src[0]->dtype),
                              value->name, dtype_name(value->dtype));
    }
  }
  return {};
}

Status check_float(const Node& node, const Value& src) {
  if (is_float(src.dtype)) return {};
  return invalid_argument("{}: '{}' is {}; floating-point elements are needed", describe(node), src.name, dtype_name(src.dtype));
}

Status check_number(const Node& node, const Value& src) {
  if (src.dtype != DType::kBool) return {};
  return unimplemented("{}: '{}' is bool; numbers are needed", describe(node), src.name);
}

Status check_rank(const Node& node, const Value& src, int least, int most) {
  const int rank = src.shape.rank();
  if (rank >= least && rank <= most) return {};
  return invalid_argument("{}: '{}' has shape {}; {} axes are needed", describe(node), src.name, src.shape.to_string(),
                          most == kMaxRank ? format("{} or more", least)
                          : least == most  ? std::to_string(least)
                                           : format("{} to {}", least, most));
}

Status check_shape(const Node& node, const char* role, const Value& src, const Shape& expected) {
  if (src.shape == expected) return {};
  return invalid_argument("{}: {} '{}' has shape {} where {} is needed", describe(node), role, src.name, src.shape.to_string(),
                          expected.to_string());
}

std::string to_text(const Dims& dims) {
  std::string text = "(";
  for (const std::int64_t dim : dims) text.append(text.size() == 1 ? "" : ", ").append(std::to_string(dim));
  return text + ")";
}

Status check_numbers(const Node& node, const char* attribute, const Dims& numbers, std::int64_t least) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  for (const std::int64_t number : numbers) {
    if (number >= least && number <= kMost) continue;
    return invalid_argument("{}: {} {} holds {}, which is not in {} to {}", describe(node), attribute, to_text(numbers), number,
                            least, kMost);
  }
  return {};
}

Result<Shape> broadcast(const Node& node, const Value& left, const Value& right) {
  const Shape &a = left.shape, &b = right.shape;
  Shape out = a.rank() >= b.rank() ? a : b;
  for (int i = 1; i <= std::min(a.rank(), b.rank()); ++i) {  // counted from the last axis
    const std::int64_t of_a = a[a.rank() - i], of_b = b[b.rank() - i];
    if (of_a != of_b && of_a != 1 && of_b != 1) {
      return invalid_argument("{}: '{}' of shape {} and '{}' of shape {} cannot be broadcast together", describe(node), left.name,
                              a.to_string(), right.name, b.to_string());
    }
    out[out.rank() - i] = of_a == 1 ? of_b : of_a;
  }
  return out;
}

Status infer_same(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_RETURN_IF_ERROR(check_same_dtype(node, src));
  for (const Value* value : src) {
    if (value->shape != src[0]->shape) {
      return invalid_argument("{}: '{}' has shape {} but '{}' has {}; equal shapes are needed", describe(node), src[0]->name,
                              src[0]->shape.to_string(), value->name, value->shape.to_string());
    }
  }
  set_result(*dst[0], src[0]->dtype, src[0]->shape);
  return {};
}

Status infer_numeric(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_RETURN_IF_ERROR(check_number(node, *src[0]));
  return infer_same(node, src, dst);
}

Status infer_float_elementwise(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_RETURN_IF_ERROR(check_float(node, *src[0]));
  return infer_same(node, src, dst);
}

void same_parameters(const Node&, std::span<Value* const> src) {
  const auto known = std::find_if(src.begin(), src.end(), [](const Value* value) { return !is_open(value->shape); });
  if (known == src.end()) return;
  for (Value* value : src) {
    if (is_open(value->shape)) set_result(*value, (*known)->dtype, (*known)->shape);
  }
}

void supply(Value& parameter, DType dtype, const Shape& shape) {
  if (is_open(parameter.shape)) set_result(parameter, dtype, shape);
}

DType statistics_type(DType data) { return data == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32; }

Status check_padded(const Node& node, const Dims& pad, const Value& data, int first) {
  std::int64_t positions = 1;
  for (std::size_t i = 0; i < pad.size(); ++i) {
    const std::int64_t padded = data.shape[first + static_cast<int>(i)] + 2 * pad[i];
    const auto product = checked_multiply(positions, padded);
    if (!product || *product > kMaxElements) {
      return invalid_argument("{}: with pad {} '{}' ({}) has more than {} positions", describe(node), to_text(pad), data.name,
                              data.shape.to_string(), kMaxElements);
    }
    positions = *product;
  }
  return {};
}

}  // namespace shoal::worker

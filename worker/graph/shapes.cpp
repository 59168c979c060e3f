// What the shape rules of operators share.
#include "worker/graph/shapes.hpp"

#include <algorithm>
#include <limits>

#include "shm/base/errors.hpp"
#include "worker/graph/types.hpp"

namespace shoal::worker {

bool is_float(DType dtype) { return TypeSet(Floats()).holds(dtype); }
bool is_integer(DType dtype) { return TypeSet(Integers()).holds(dtype); }

bool is_open(const SymbolicShape& shape) {
  return !shape.is_known() || std::any_of(shape.begin(), shape.end(), [](Dim dim) { return dim.highest() < 0; });
}

void set_result(TypedValue& dst, DType dtype, const SymbolicShape& shape) {
  dst.dtype = dtype;
  dst.shape = shape;
}

Result<int> normalize_axis(const Node& node, std::int64_t axis, const SymbolicShape& shape) {
  const std::int64_t rank = shape.rank();
  if (axis < -rank || axis >= rank) {
    return invalid_argument("{}: axis {} is not among the {} of shape {}", describe(node), axis, rank, shape.to_string());
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

Result<SymbolicShape> make_shape(const Node& node, std::span<const Dim> dims) {
  if (dims.size() > static_cast<std::size_t>(kMaxRank)) {
    return invalid_argument("{}: a shape of {} dimensions; at most {} are supported", describe(node), dims.size(), kMaxRank);
  }
  return SymbolicShape(dims);
}

Dim size_from_data(const TypedValue& dst, int axis, Dim most) {
  SHOAL_CHECK(dst.table != nullptr);
  return dst.table->symbol(format("{}[{}]", dst.name, axis), {0, most.highest()});
}

Result<Dim> size_from_readers(const Node& node, const TypedValue& dst, int axis) {
  const auto size = dst.table != nullptr ? dst.table->open_size(format("{}[{}]", dst.name, axis)) : std::nullopt;
  if (size) return *size;
  return invalid_argument("{}: the file leaves the size of axis {} open, and no node that reads '{}' says what it is",
                          describe(node), axis, dst.name);
}

Status check_same_dtype(const Node& node, SourceValues src) {
  for (const TypedValue& value : src) {
    if (value.dtype != src[0].dtype) {
      return invalid_argument("{}: '{}' is {} but '{}' is {}", describe(node), src[0].name, dtype_name(src[0].dtype), value.name,
                              dtype_name(value.dtype));
    }
  }
  return {};
}

Status check_float(const Node& node, const TypedValue& src) {
  if (is_float(src.dtype)) return {};
  return invalid_argument("{}: '{}' is {}; floating-point elements are needed", describe(node), src.name, dtype_name(src.dtype));
}

Status check_number(const Node& node, const TypedValue& src) {
  if (src.dtype != DType::kBool) return {};
  return unimplemented("{}: '{}' is bool; numbers are needed", describe(node), src.name);
}

Status check_rank(const Node& node, const TypedValue& src, int least, int most) {
  const int rank = src.shape.rank();
  if (rank >= least && rank <= most) return {};
  return invalid_argument("{}: '{}' has shape {}; {} axes are needed", describe(node), src.name, src.shape.to_string(),
                          most == kMaxRank ? format("{} or more", least)
                          : least == most  ? std::to_string(least)
                                           : format("{} to {}", least, most));
}

Status check_shape(const Node& node, const char* role, const TypedValue& src, const SymbolicShape& expected) {
  if (unify(src.shape, expected)) return {};
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

Result<SymbolicShape> broadcast(const Node& node, const TypedValue& left, const TypedValue& right) {
  const SymbolicShape &a = left.shape, &b = right.shape;
  SymbolicShape out = a.rank() >= b.rank() ? a : b;
  for (int i = 1; i <= std::min(a.rank(), b.rank()); ++i) {  // counted from the last axis
    const Dim of_a = a[a.rank() - i], of_b = b[b.rank() - i];
    const bool stretches_a = !known_unequal(of_a, 1), stretches_b = !known_unequal(of_b, 1);
    if (known_unequal(of_a, of_b) && !stretches_a && !stretches_b) {
      return invalid_argument("{}: '{}' of shape {} and '{}' of shape {} cannot be broadcast together", describe(node), left.name,
                              a.to_string(), right.name, b.to_string());
    }
    Dim& both = out[out.rank() - i];
    if (of_a == of_b || !stretches_a || of_b == 1)
      both = of_a;
    else if (!stretches_b || of_a == 1)
      both = of_b;
    else
      both = either(of_a, of_b);
  }
  return out;
}

Status infer_same(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_RETURN_IF_ERROR(check_same_dtype(node, src));
  for (const TypedValue& value : src) {
    if (!unify(value.shape, src[0].shape)) {
      return invalid_argument("{}: '{}' has shape {} but '{}' has {}; equal shapes are needed", describe(node), src[0].name,
                              src[0].shape.to_string(), value.name, value.shape.to_string());
    }
  }
  set_result(dst[0], src[0].dtype, src[0].shape);
  return {};
}

Status infer_numeric(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_RETURN_IF_ERROR(check_number(node, src[0]));
  return infer_same(node, src, dst);
}

Status infer_float_elementwise(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_RETURN_IF_ERROR(check_float(node, src[0]));
  return infer_same(node, src, dst);
}

void same_parameters(const Node&, std::span<TypedValue> src) {
  const auto known = std::ranges::find_if(src, [](const TypedValue& value) { return !is_open(value.shape); });
  if (known == src.end()) return;
  for (TypedValue& value : src) supply(value, known->dtype, known->shape);
}

void supply(TypedValue& parameter, DType dtype, const SymbolicShape& shape) {
  if (is_open(parameter.shape)) set_result(parameter, dtype, shape);
}

DType statistics_type(DType data) { return data == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32; }

Status check_padded(const Node& node, const Dims& pad, const TypedValue& data, int first) {
  Dim positions = 1;
  for (std::size_t i = 0; i < pad.size(); ++i) {
    positions *= data.shape[first + static_cast<int>(i)] + 2 * pad[i];
    if (!known_less(kMaxElements, positions)) continue;
    return invalid_argument("{}: with pad {} '{}' ({}) has more than {} positions", describe(node), to_text(pad), data.name,
                            data.shape.to_string(), kMaxElements);
  }
  return {};
}

}  // namespace shoal::worker

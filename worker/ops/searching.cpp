// Nonzero, Unique, CheckAll.
#include "worker/ops/searching.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/elements.hpp"

namespace shoal::worker {
namespace {

Status infer_nonzero(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_RETURN_IF_ERROR(check_rank(node, src[0], 1));
  set_result(dst[0], DType::kInt64, SymbolicShape{size_from_data(dst[0], 0, src[0].shape.element_count()), src[0].shape.rank()});
  return {};
}

Status infer_unique(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_RETURN_IF_ERROR(check_number(node, src[0]));
  const Dim count = src[0].shape.element_count();
  for (std::size_t i = 0; i < dst.size(); ++i) {
    const Dim size = i == 2 ? count : size_from_data(dst[i], 0, count);
    set_result(dst[i], i == 0 ? src[0].dtype : DType::kInt64, SymbolicShape{size});
  }
  return {};
}

Status infer_check_all(const Node&, SourceValues, ResultValues dst) {
  set_result(dst[0], DType::kBool, SymbolicShape());
  return {};
}

/// A bool of a client may be any byte.
DType as_byte(DType dtype) { return dtype == DType::kBool ? DType::kUInt8 : dtype; }

Status compute_nonzero(const Node& node, Sources src, Results dst) {
  const Shape& shape = src[0].shape;
  std::int64_t found = 0;
  SHOAL_RETURN_IF_ERROR(dispatch<Numbers>(node, as_byte(src[0].dtype), [&]<typename T>() {
    for (std::int64_t at = 0, end = shape.element_count(); at < end; ++at) {
      if (static_cast<Compute<T>>(load_element_once(elements<T>(src[0]) + at)) == 0) continue;
      std::int64_t* const to = elements<std::int64_t>(dst[0]) + found++ * shape.rank();
      std::int64_t rest = at;
      for (int axis = shape.rank() - 1; axis >= 0; --axis) {
        to[axis] = rest % shape[axis];
        rest /= shape[axis];
      }
    }
    return Status();
  }));
  dst[0].shape[0] = found;
  return {};
}

/// NaN comes last, and every NaN is an element of its own.
Status compute_unique(const Node& node, Sources src, Results dst) {
  const std::int64_t count = src[0].element_count();
  std::int64_t found = 0;
  SHOAL_RETURN_IF_ERROR(dispatch<Numbers>(node, src[0].dtype, [&]<typename T>() {
    using C = Compute<T>;
    std::vector<C> numbers(static_cast<std::size_t>(count));  // a client may change its memory meanwhile
    for (std::int64_t i = 0; i < count; ++i)
      numbers[static_cast<std::size_t>(i)] = static_cast<C>(load_element_once(elements<T>(src[0]) + i));
    std::vector<std::size_t> order(numbers.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, [&](std::size_t i, std::size_t k) {
      return numbers[k] != numbers[k] ? numbers[i] == numbers[i] : numbers[i] < numbers[k];
    });
    const auto write = [&](std::size_t output, std::int64_t at, std::int64_t value) {
      if (output < dst.size() && dst[output].data != nullptr) elements<std::int64_t>(dst[output])[at] = value;
    };
    std::int64_t run = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (i == 0 || numbers[order[i]] != numbers[order[i - 1]]) {
        if (dst[0].data != nullptr) elements<T>(dst[0])[found] = to_element<T>(numbers[order[i]]);
        write(1, found++, static_cast<std::int64_t>(order[i]));
        run = 0;
      }
      write(2, static_cast<std::int64_t>(order[i]), found - 1);
      write(3, found - 1, ++run);
    }
    return Status();
  }));
  for (std::size_t i = 0; i < dst.size(); ++i) {
    if (i != 2) dst[i].shape[0] = found;
  }
  return {};
}

Status compute_check_all(const Node& node, Sources src, Results dst) {
  SHOAL_RETURN_IF_ERROR(dispatch<Numbers>(node, as_byte(src[0].dtype), [&]<typename T>() {
    for (std::int64_t i = 0, end = src[0].element_count(); i < end; ++i) {
      if (static_cast<Compute<T>>(elements<T>(src[0])[i]) == 0)
        return invalid_argument("{}: element {} is 0, and all must be true", describe(node), i);
    }
    return Status();
  }));
  *elements<std::uint8_t>(dst[0]) = 1;
  return {};
}

}  // namespace

namespace ops {

const Operator kNonzero({
    .name = "Nonzero",
    .infer = infer_nonzero,
    .facts = layer_facts(rows_mixed, work_of_pairs, Accuracy::kLost),
    .oracle = compute_nonzero,
    .formula = "data: the indices of each element that is not 0, as int64 (found, axes)",
    .source = "MXNet 1.9.1 src/operator/numpy/np_nonzero_op-inl.h",
});

const Operator kUnique({
    .name = "Unique",
    .outputs = 4,
    .infer = infer_unique,
    .facts = layer_facts(rows_mixed, work_of_pairs, Accuracy::kLost),
    .oracle = compute_unique,
    .formula =
        "data: its different elements, the lowest first; where each is first found; for each element of the data the number "
        "of its value; how often each is found. All but the first as int64",
    .source = "MXNet 1.9.1 src/operator/numpy/np_unique_op.h",
});

const Operator kCheckAll({
    .name = "CheckAll",
    .infer = infer_check_all,
    .facts = layer_facts(rows_mixed, work_of_pairs, Accuracy::kLost),
    .oracle = compute_check_all,
    .formula = "data: true. An element that is 0 is an error of the run",
    .source = "MXNet 1.9.1 src/operator/numpy/np_constraint_check.h",
});

}  // namespace ops

}  // namespace shoal::worker

// TensorDot, Einsum.
#include "worker/ops/contraction.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/elements.hpp"

namespace shoal::worker {
namespace {

/// Each axis of the tensors has a label, from 0 on. Axes with the same label go together, and have one size or one element.
struct Labelled {
  std::vector<std::vector<int>> inputs;  ///< by input and axis
  std::vector<int> output;
  Sizes sizes;  ///< by label
};

/// Adds an axis with that label.
Status add_axis(const Node& node, Labelled& labelled, int label, const TypedValue& src, int axis) {
  const auto at = static_cast<std::size_t>(label);
  if (at == labelled.sizes.size()) labelled.sizes.push_back(1);
  const TypedValue so_far{.name = "the other inputs", .shape = SymbolicShape{labelled.sizes[at]}},
      now{.name = src.name, .shape = SymbolicShape{src.shape[axis]}};
  SHOAL_ASSIGN_OR_RETURN(const SymbolicShape both, broadcast(node, so_far, now));
  labelled.sizes[at] = both[0];
  labelled.inputs.back().push_back(label);
  return {};
}

Result<Labelled> label_tensor_dot(const Node& node, SourceValues src) {
  const auto& product = node.attributes.get<TensorDotAttributes>();
  const SymbolicShape &a = src[0].shape, &b = src[1].shape;
  Dims axes_a = product.axes_a, axes_b = product.axes_b;
  if (product.count) {
    if (*product.count < 0 || *product.count > std::min(a.rank(), b.rank()))
      return invalid_argument("{}: '{}' ({}) and '{}' ({}) do not both have {} axes", describe(node), src[0].name, a.to_string(),
                              src[1].name, b.to_string(), *product.count);
    axes_a.clear();
    axes_b.clear();
    for (std::int64_t i = 0; i < *product.count; ++i) {
      axes_a.push_back(a.rank() - *product.count + i);
      axes_b.push_back(i);
    }
  }
  if (axes_a.size() != axes_b.size())
    return invalid_argument("{}: {} axes of a and {} of b", describe(node), axes_a.size(), axes_b.size());
  std::vector<int> label_of_a(static_cast<std::size_t>(a.rank()), -1), label_of_b(static_cast<std::size_t>(b.rank()), -1);
  int next = 0;
  for (std::size_t i = 0; i < axes_a.size(); ++i, ++next) {
    SHOAL_ASSIGN_OR_RETURN(const int left, normalize_axis(node, axes_a[i], a));
    SHOAL_ASSIGN_OR_RETURN(const int right, normalize_axis(node, axes_b[i], b));
    int &of_a = label_of_a[static_cast<std::size_t>(left)], &of_b = label_of_b[static_cast<std::size_t>(right)];
    if (of_a >= 0 || of_b >= 0 || known_unequal(a[left], b[right])) {
      return invalid_argument("{}: axes {} of '{}' ({}) and {} of '{}' ({}) do not go together", describe(node), to_text(axes_a),
                              src[0].name, a.to_string(), to_text(axes_b), src[1].name, b.to_string());
    }
    of_a = of_b = next;
  }
  Labelled labelled;
  labelled.sizes.assign(axes_a.size(), 1);
  for (std::size_t input = 0; input < 2; ++input) {
    labelled.inputs.emplace_back();
    const std::vector<int>& labels = input == 0 ? label_of_a : label_of_b;
    for (std::size_t axis = 0; axis < labels.size(); ++axis) {
      const int label = labels[axis] >= 0 ? labels[axis] : next++;
      SHOAL_RETURN_IF_ERROR(add_axis(node, labelled, label, src[input], static_cast<int>(axis)));
      if (labels[axis] < 0) labelled.output.push_back(label);
    }
  }
  return labelled;
}

Result<Labelled> label_einsum(const Node& node, SourceValues src) {
  const auto& einsum = node.attributes.get<EinsumAttributes>();
  if (einsum.inputs.size() != src.size())
    return invalid_argument("{}: {} terms for {} inputs", describe(node), einsum.inputs.size(), src.size());
  const auto named = [](const EinsumTerm& term) {
    return static_cast<int>(std::ranges::count_if(term.labels, [](std::int64_t label) { return label != kEllipsis; }));
  };
  int unnamed = 0;  // axes of an ellipsis, which have the first labels
  for (std::size_t i = 0; i < src.size(); ++i) {
    const EinsumTerm& term = einsum.inputs[i];
    const int rest = src[i].shape.rank() - named(term);
    const auto ellipses = std::ranges::count(term.labels, kEllipsis);
    if (rest < 0 || ellipses > 1 || (ellipses == 0 && rest > 0)) {
      return invalid_argument("{}: term {} names {} axes; '{}' has shape {}", describe(node), i, named(term), src[i].name,
                              src[i].shape.to_string());
    }
    unnamed = std::max(unnamed, rest);
  }
  Labelled labelled;
  labelled.sizes.assign(static_cast<std::size_t>(unnamed), 1);
  std::map<std::int64_t, int> labels;
  for (std::size_t i = 0; i < src.size(); ++i) {
    labelled.inputs.emplace_back();
    int axis = 0;
    for (const std::int64_t name : einsum.inputs[i].labels) {
      if (name == kEllipsis) {
        const int rest = src[i].shape.rank() - named(einsum.inputs[i]);
        for (int k = unnamed - rest; k < unnamed; ++k) SHOAL_RETURN_IF_ERROR(add_axis(node, labelled, k, src[i], axis++));
        continue;
      }
      const int label = labels.emplace(name, static_cast<int>(labelled.sizes.size())).first->second;
      SHOAL_RETURN_IF_ERROR(add_axis(node, labelled, label, src[i], axis++));
    }
  }
  for (const std::int64_t name : einsum.output.labels) {
    const auto found = labels.find(name);
    if (name == kEllipsis) {
      for (int k = 0; k < unnamed; ++k) labelled.output.push_back(k);
    } else if (found != labels.end()) {
      labelled.output.push_back(found->second);
    } else {
      return invalid_argument("{}: the output names an axis that no input has", describe(node));
    }
  }
  const bool keeps_unnamed = std::ranges::find(einsum.output.labels, kEllipsis) != einsum.output.labels.end();
  if (unnamed > 0 && !keeps_unnamed) return invalid_argument("{}: the output lacks the ellipsis of the inputs", describe(node));
  std::vector<int> sorted = labelled.output;
  std::ranges::sort(sorted);
  if (std::ranges::adjacent_find(sorted) != sorted.end())
    return invalid_argument("{}: the output names an axis twice", describe(node));
  return labelled;
}

using Label = Result<Labelled> (*)(const Node& node, SourceValues src);

template <Label kLabel>
Status infer_contraction(const Node& node, SourceValues src, ResultValues dst) {
  SHOAL_RETURN_IF_ERROR(check_number(node, src[0]));
  SHOAL_RETURN_IF_ERROR(check_same_dtype(node, src));
  SHOAL_ASSIGN_OR_RETURN(const Labelled labelled, kLabel(node, src));
  constexpr std::int64_t kMostOffsets = std::int64_t{1} << 24;   // the kernel has a table of them for each input
  constexpr std::int64_t kMostProducts = std::int64_t{1} << 40;  // an hour of one core
  Sizes sizes;
  for (const int label : labelled.output) sizes.push_back(labelled.sizes[static_cast<std::size_t>(label)]);
  Dim summed = 1;
  for (int label = 0; std::cmp_less(label, labelled.sizes.size()); ++label) {
    if (std::ranges::find(labelled.output, label) == labelled.output.end())
      summed *= labelled.sizes[static_cast<std::size_t>(label)];
  }
  const auto inputs = static_cast<std::int64_t>(src.size());
  if (known_less(kMostOffsets, summed * Dim(inputs)) || (!sizes.empty() && known_less(kMostOffsets, sizes.back() * Dim(inputs))))
    return unimplemented("{}: sums of {} products of {} inputs are too long; their product may be {}", describe(node),
                         summed.to_string(), inputs, kMostOffsets);
  SHOAL_ASSIGN_OR_RETURN(const SymbolicShape shape, make_shape(node, sizes));
  if (known_less(kMostProducts, shape.element_count() * summed))
    return unimplemented("{}: {} sums of {} products take too long", describe(node), shape.element_count().to_string(),
                         summed.to_string());
  set_result(dst[0], src[0].dtype, shape);
  return {};
}

/// The offsets into a tensor of all positions along some labels, the last one fastest.
std::vector<std::int64_t> offsets_of(const std::vector<int>& labels, const Dims& sizes, const Dims& strides) {
  std::vector<std::int64_t> offsets{0};
  if (std::ranges::any_of(labels, [&](int label) { return sizes[static_cast<std::size_t>(label)] == 0; })) return {};
  for (const int label : labels) {
    const auto at = static_cast<std::size_t>(label);
    std::vector<std::int64_t> more;
    more.reserve(offsets.size() * static_cast<std::size_t>(sizes[at]));
    for (const std::int64_t offset : offsets) {
      for (std::int64_t i = 0; i < sizes[at]; ++i) more.push_back(offset + i * strides[at]);
    }
    offsets = std::move(more);
  }
  return offsets;
}

/// The distance between neighbors along each label; 0 along one that repeats the tensor. An axis that comes twice is a diagonal.
Dims strides_of(const std::vector<int>& labels, const Shape& shape, std::size_t count) {
  const Strides own = row_major(shape);
  Dims strides(count);
  for (std::size_t axis = 0; axis < labels.size(); ++axis) {
    if (shape[static_cast<int>(axis)] != 1) strides[static_cast<std::size_t>(labels[axis])] += own[axis];
  }
  return strides;
}

/// Sums over the positions of the summed labels, for each position of the output: the rows are its labels but the last.
template <typename T>
struct Operand {
  const T* first = nullptr;
  std::vector<std::int64_t> summed, columns;
  Dims strides;
};

template <typename T>
void contract(const Labelled& labelled, const Dims& sizes, Sources src, T* dst) {
  using C = Compute<T>;
  std::vector<int> summed, rows = labelled.output, last;
  for (int label = 0; label < static_cast<int>(sizes.size()); ++label) {
    if (std::ranges::find(labelled.output, label) == labelled.output.end()) summed.push_back(label);
  }
  if (!rows.empty()) {
    last.push_back(rows.back());
    rows.pop_back();
  }
  std::vector<Operand<T>> operands;
  for (std::size_t i = 0; i < src.size(); ++i) {
    Operand<T> operand{elements<T>(src[i]), {}, {}, strides_of(labelled.inputs[i], src[i].shape, sizes.size())};
    operand.summed = offsets_of(summed, sizes, operand.strides);
    operand.columns = offsets_of(last, sizes, operand.strides);
    operands.push_back(std::move(operand));
  }
  std::int64_t count = 1;
  for (const int label : rows) count *= sizes[static_cast<std::size_t>(label)];
  const std::size_t columns = operands[0].columns.size(), depth = operands[0].summed.size();
  std::vector<const T*> at(operands.size());
  for (std::int64_t row = 0; row < count; ++row) {
    for (std::size_t i = 0; i < operands.size(); ++i) {
      std::int64_t rest = row, offset = 0;
      for (std::size_t k = rows.size(); k-- > 0;) {
        const auto label = static_cast<std::size_t>(rows[k]);
        offset += rest % sizes[label] * operands[i].strides[label];
        rest /= sizes[label];
      }
      at[i] = operands[i].first + offset;
    }
    for (std::size_t column = 0; column < columns; ++column) {
      C sum = 0;
      for (std::size_t d = 0; d < depth; ++d) {
        C product = static_cast<C>(at[0][operands[0].columns[column] + operands[0].summed[d]]);
        for (std::size_t i = 1; i < operands.size(); ++i) {
          const C factor = static_cast<C>(at[i][operands[i].columns[column] + operands[i].summed[d]]);
          product = wrapping(product, factor, std::multiplies<>());
        }
        sum = wrapping(sum, product, std::plus<>());
      }
      *dst++ = to_element<T>(sum);
    }
  }
}

template <Label kLabel>
Status compute_contraction(const Node& node, Sources src, Results dst) {
  std::vector<TypedValue> values;
  for (const TensorView& view : src) values.push_back({.name = "an input", .dtype = view.dtype, .shape = view.shape});
  SHOAL_ASSIGN_OR_RETURN(const Labelled labelled, kLabel(node, values));
  Dims sizes;
  for (const Dim size : labelled.sizes) sizes.push_back(size.number());
  return dispatch<Numbers>(node, dst[0].dtype, [&]<typename T>() {
    contract<T>(labelled, sizes, src, elements<T>(dst[0]));
    return Status();
  });
}

bool tensor_dot_rows(const BatchedNode& batched) {
  const auto& product = batched.node.attributes.get<TensorDotAttributes>();
  if (!batched.only_first_has_rows()) return false;
  if (product.count) return batched.rank() > *product.count;
  return std::ranges::none_of(product.axes_a, [&](std::int64_t axis) { return batched.is_of_rows(axis); });
}

/// The label of the rows comes first wherever it is, and only where the rows are.
bool einsum_rows(const BatchedNode& batched) {
  const auto& einsum = batched.node.attributes.get<EinsumAttributes>();
  if (einsum.output.labels.empty() || einsum.output.labels[0] == kEllipsis) return false;
  const std::int64_t rows = einsum.output.labels[0];
  for (std::size_t i = 0; i < einsum.inputs.size(); ++i) {
    const Dims& labels = einsum.inputs[i].labels;
    const bool is_first = !labels.empty() && labels[0] == rows;
    if (is_first != batched.has_rows_in(i) || std::ranges::count(labels, rows) != (is_first ? 1 : 0)) return false;
  }
  return true;
}

// Each index is in an input.
Work einsum_work(const Node&, Sources src, Sources dst) {
  double products = 1;
  for (const TensorView& tensor : src) products *= elements_of({&tensor, 1});
  // An index that is in both inputs and the result counts more than once here.
  const double flops = src.size() == 2 ? 2 * std::sqrt(products * elements_of(dst)) : 0;
  return {.operations = elements_of(src) + elements_of(dst) + products, .flops = flops};
}

}  // namespace

namespace ops {

const Operator kTensorDot({
    .name = "TensorDot",
    .inputs = 2,
    .attributes = &kSchema<TensorDotAttributes>,
    .infer = infer_contraction<label_tensor_dot>,
    .constant_types = ConstantTypes::kAsData,
    .facts = layer_facts(tensor_dot_rows, work_of_product, Accuracy::kLost),
    .oracle = compute_contraction<label_tensor_dot>,
    .formula = "a, b: sums of products over axes of both. The result has the other axes of a, then those of b",
    .source = "MXNet 1.9.1 src/operator/numpy/np_tensordot_op-inl.h",
});

const Operator kEinsum({
    .name = "Einsum",
    .inputs = {1, Arity::kAny},
    .attributes = &kSchema<EinsumAttributes>,
    .infer = infer_contraction<label_einsum>,
    .constant_types = ConstantTypes::kAsData,
    .facts = layer_facts(einsum_rows, einsum_work, Accuracy::kLost),
    .oracle = compute_contraction<label_einsum>,
    .formula =
        "any number of inputs: the products of elements whose axes of one label have one index, summed over the labels that "
        "the output does not have",
    .source = "MXNet 1.9.1 src/operator/numpy/np_einsum_op-inl.h",
});

}  // namespace ops

}  // namespace shoal::worker

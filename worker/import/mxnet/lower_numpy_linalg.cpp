// Names of MXNet's NumPy interface for products, equations and norms.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <string>
#include <string_view>

#include "shm/base/format.hpp"
#include "worker/import/mxnet/lower_chain.hpp"
#include "worker/import/mxnet/lower_math.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/cast.hpp"
#include "worker/ops/contraction.hpp"
#include "worker/ops/factorization.hpp"
#include "worker/ops/movement.hpp"
#include "worker/ops/products.hpp"
#include "worker/ops/reshape.hpp"
#include "worker/ops/solving.hpp"

namespace shoal::worker {
namespace {

using Values = std::vector<ValueId>;

Values numpy_matmul(MxnetLowering& lowering) {
  return lowering.add(ops::kMatMul, MatMulAttributes{.broadcast = true, .has_vectors = true});
}
Values numpy_dot(MxnetLowering& lowering) { return lowering.add(ops::kDot, DotAttributes{.as_numpy = true}); }

Values tensordot(MxnetLowering& lowering) {
  const Dims a = lowering.attributes.tuple("a_axes_summed"), b = lowering.attributes.tuple("b_axes_summed");
  return lowering.add(ops::kTensorDot, TensorDotAttributes{a, b, std::nullopt});
}
Values tensordot_int(MxnetLowering& lowering) {
  return lowering.add(ops::kTensorDot, TensorDotAttributes{{}, {}, lowering.attributes.integer("axes", {}, 0)});
}

/// One term of the subscripts: letters and at most one ellipsis. False if it has another form.
bool parse_term(std::string_view text, EinsumTerm& term) {
  constexpr std::string_view kDots = "...";
  while (!text.empty()) {
    if (text.starts_with(kDots)) {
      term.labels.push_back(kEllipsis);
      text.remove_prefix(kDots.size());
    } else if (std::isalpha(static_cast<unsigned char>(text[0])) != 0) {
      term.labels.push_back(text[0]);
      text.remove_prefix(1);
    } else {
      return false;
    }
  }
  return std::ranges::count(term.labels, kEllipsis) <= 1;
}

/// What stands behind the arrow if there is none: the ellipsis, then the labels that come once, by the alphabet.
EinsumTerm output_of(const std::vector<EinsumTerm>& inputs) {
  Dims all;
  for (const EinsumTerm& term : inputs) all.insert(all.end(), term.labels.begin(), term.labels.end());
  std::ranges::sort(all);  // the ellipsis is -1
  EinsumTerm output;
  for (auto label = all.begin(); label != all.end();) {
    const auto next = std::upper_bound(label, all.end(), *label);
    if (*label == kEllipsis || next - label == 1) output.labels.push_back(*label);
    label = next;
  }
  return output;
}

/// "ij,jk->ik". Reports what is wrong.
EinsumAttributes read_subscripts(MxnetLowering& lowering) {
  lowering.attributes.ignore({"subscripts", "optimize"});
  EinsumAttributes einsum;
  const auto found = lowering.node.attributes.find("subscripts");
  std::string text = found == lowering.node.attributes.end() ? std::string() : found->second;
  std::erase_if(text, [](unsigned char c) { return std::isspace(c) != 0; });
  const auto arrow = text.find("->");
  std::string_view terms = std::string_view(text).substr(0, arrow);
  bool fits = true;
  while (true) {
    const auto comma = terms.find(',');
    fits &= parse_term(terms.substr(0, comma), einsum.inputs.emplace_back());
    if (comma == std::string_view::npos) break;
    terms.remove_prefix(comma + 1);
  }
  if (arrow == std::string::npos)
    einsum.output = output_of(einsum.inputs);
  else
    fits &= parse_term(std::string_view(text).substr(arrow + 2), einsum.output);
  if (!fits)
    lowering.attributes.fail("subscripts", "is no list of terms such as 'ij,jk->ik'");
  else if (einsum.inputs.size() != lowering.inputs.size())
    lowering.attributes.fail("subscripts",
                             format("has {} terms, and the node has {} inputs", einsum.inputs.size(), lowering.inputs.size()));
  return einsum;
}

bool has(const Dims& labels, std::int64_t label) { return std::ranges::find(labels, label) != labels.end(); }

/// Two inputs as products of matrices, which devices compute fast: every label is in both inputs and the output (batch), in one
/// input and the output (left, right), or in both inputs only (summed).
class EinsumProduct {
 public:
  EinsumProduct(MxnetLowering& lowering, const EinsumAttributes& einsum) : lowering_(lowering), einsum_(einsum) {}

  /// Is it such a product?
  bool find_groups() {
    if (einsum_.inputs.size() != 2) return false;
    const Dims &a = einsum_.inputs[0].labels, &b = einsum_.inputs[1].labels, &out = einsum_.output.labels;
    for (const Dims* labels : {&a, &b, &out}) {
      if (has(*labels, kEllipsis)) return false;
      for (const std::int64_t label : *labels) {
        if (std::ranges::count(*labels, label) != 1) return false;
      }
    }
    if (std::ranges::any_of(out, [&](std::int64_t label) { return !has(a, label) && !has(b, label); })) return false;
    for (const std::int64_t label : a) {
      if (!has(b, label) && !has(out, label)) return false;
      (has(b, label) ? has(out, label) ? batch_ : summed_ : left_).push_back(label);
    }
    for (const std::int64_t label : b) {
      if (has(a, label)) continue;
      if (!has(out, label)) return false;
      right_.push_back(label);
    }
    // Else it is no product of matrices. Sizes of several summed axes are compared one by one, which a merged axis cannot be.
    return !left_.empty() && !right_.empty() && summed_.size() == 1;
  }

  Values lower() {
    MatMulAttributes product{.broadcast = true, .integers = true};
    // The order that the data has already needs no transposition.
    product.transpose_a = einsum_.inputs[0].labels == joined({&batch_, &summed_, &left_}) && !left_.empty();
    product.transpose_b = einsum_.inputs[1].labels == joined({&batch_, &right_, &summed_}) && !right_.empty();
    const Values a =
        ordered(0, joined(product.transpose_a ? Groups{&batch_, &summed_, &left_} : Groups{&batch_, &left_, &summed_}));
    const Values b =
        ordered(1, joined(product.transpose_b ? Groups{&batch_, &right_, &summed_} : Groups{&batch_, &summed_, &right_}));
    const Values left = product.transpose_a ? matrices(a, summed_, left_) : matrices(a, left_, summed_);
    const Values right = product.transpose_b ? matrices(b, right_, summed_) : matrices(b, summed_, right_);
    if (left.empty() || right.empty()) return {};
    Values result = lowering_.add(ops::kMatMul, product, {left[0], right[0]});
    const auto batch = static_cast<std::int64_t>(batch_.size());
    result = expanded(result, batch + 1, right_, b, batch + (product.transpose_b ? 0 : size_of(summed_)));
    result = expanded(result, batch, left_, a, batch + (product.transpose_a ? size_of(summed_) : 0));
    return transposed(result, joined({&batch_, &left_, &right_}), einsum_.output.labels);
  }

 private:
  using Groups = std::vector<const Dims*>;
  static std::int64_t size_of(const Dims& labels) { return static_cast<std::int64_t>(labels.size()); }
  static Dims joined(const Groups& groups) {
    Dims all;
    for (const Dims* group : groups) all.insert(all.end(), group->begin(), group->end());
    return all;
  }

  Values transposed(const Values& data, const Dims& from, const Dims& to) {
    if (data.empty() || from == to) return data;
    Dims axes;
    for (const std::int64_t label : to) axes.push_back(std::ranges::find(from, label) - from.begin());
    return lowering_.add(ops::kTranspose, TransposeAttributes{axes}, data);
  }
  Values ordered(std::size_t input, const Dims& to) {
    return transposed({lowering_.inputs[input]}, einsum_.inputs[input].labels, to);
  }

  /// The axes behind those of the batch as two: each group becomes one axis.
  Values matrices(Values data, const Dims& rows, const Dims& columns) {
    data = merged(std::move(data), size_of(batch_) + size_of(rows), columns);
    return merged(std::move(data), size_of(batch_), rows);
  }
  Values merged(Values data, std::int64_t first, const Dims& group) {
    if (data.empty()) return data;
    if (group.empty()) return lowering_.add(ops::kExpandDims, ExpandDimsAttributes{{first}}, data);
    ReshapeAttributes reshape{.shape = Dims(static_cast<std::size_t>(first), -2), .as_numpy = true};
    reshape.shape.insert(reshape.shape.end(), {-5, -4});
    for (std::size_t i = 1; i < group.size() && !data.empty(); ++i) data = lowering_.add(ops::kReshape, reshape, data);
    return data;
  }
  /// One axis of the result as the axes of the group, which `like` has from `first` on.
  Values expanded(const Values& data, std::int64_t axis, const Dims& group, const Values& like, std::int64_t first) {
    if (data.empty() || group.size() == 1) return data;
    if (group.empty()) return lowering_.add(ops::kSqueeze, SqueezeAttributes{{axis}, true}, data);
    return lowering_.add(ops::kReshapeLike, ReshapeLikeAttributes{axis, axis + 1, first, first + size_of(group)},
                         {data[0], like[0]});
  }

  MxnetLowering& lowering_;
  const EinsumAttributes& einsum_;
  Dims batch_, left_, right_, summed_;
};

Values einsum(MxnetLowering& lowering) {
  lowering.check_input_count("num_args");
  const EinsumAttributes einsum = read_subscripts(lowering);
  if (EinsumProduct product(lowering, einsum); product.find_groups() && lowering.attributes.status().ok()) return product.lower();
  return lowering.add(ops::kEinsum, einsum);
}

/// The matrices whose lower triangle counts.
Values with_lower_triangle(MxnetLowering& lowering) {
  const auto found = lowering.node.attributes.find("UPLO");
  lowering.attributes.ignore({"UPLO"});
  const std::string text = found == lowering.node.attributes.end() ? "L" : found->second;
  if (text == "L" || text == "l") return lowering.inputs;
  if (text == "U" || text == "u") return lowering.add(ops::kSwapAxes, SwapAxesAttributes{-2, -1});
  lowering.attributes.fail("UPLO", "is neither L nor U");
  return lowering.inputs;
}

/// Outputs the values, and the vectors as columns.
auto eigen(bool has_vectors) {
  return [=](MxnetLowering& lowering) -> Values {
    const Values data = with_lower_triangle(lowering);
    if (data.empty()) return {};
    const Values found = lowering.add(ops::kEigen, {}, data);
    if (found.empty()) return {};
    if (!has_vectors) return {found[1]};
    const Values columns = lowering.add(ops::kSwapAxes, SwapAxesAttributes{-2, -1}, {found[0]});
    if (columns.empty()) return {};
    return {found[1], columns[0]};
  };
}

auto of_matrices(const Operator& op) {
  return [&op](MxnetLowering& lowering) { return lowering.add(op); };
}

Values tensor_inverse(MxnetLowering& lowering) {
  return lowering.add(ops::kTensorInverse, TensorInverseAttributes{lowering.attributes.integer("ind", 2)});
}
Values tensor_solve(MxnetLowering& lowering) {
  return lowering.add(ops::kTensorSolve, TensorSolveAttributes{lowering.attributes.tuple("a_axes", Dims{})});
}
Values pseudo_inverse(MxnetLowering& lowering) {
  lowering.attributes.ignore({"hermitian"});  // it only says which method is fast
  if (lowering.inputs.size() > 1) return lowering.add(ops::kPseudoInverse, PseudoInverseAttributes{});
  return lowering.add(ops::kPseudoInverse, PseudoInverseAttributes{lowering.attributes.number("rcond", 1e-15)});
}

/// How MXNet's front end asks for a norm.
enum NormFlag : std::int64_t { kOfAll = -2, kByOrder = -1, kOfMatrices = 0, kFrobenius = 1, kNuclear = 2 };

Values numpy_norm(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  const std::int64_t flag = attributes.integer("flag", kByOrder);
  const double order = attributes.number("ord", 2);
  ReduceAttributes reduce{.kind = ReduceKind::kNorm2, .gives_scalars = true, .floats_only = true};
  reduce.axes = attributes.tuple("axis", Dims{});
  reduce.keepdims = attributes.flag("keepdims", false);
  if (flag == kOfAll) reduce.axes.clear();
  if (flag == kFrobenius && reduce.axes.empty()) reduce.axes = {-2, -1};
  const bool is_plain = flag == kOfAll || (flag == kFrobenius && reduce.axes.size() == 2);
  if (!is_plain && reduce.axes.size() != 1) {
    attributes.fail("axis", "is no single axis; of several axes only the Frobenius norm is supported");
    reduce.axes.resize(1);
  }
  if (is_plain || order == 2) return lowering.add(ops::kReduce, reduce);
  if (!std::isfinite(order)) attributes.fail("ord", "is not finite, which MXNet refuses, too");
  if (order == 1) {
    reduce.kind = ReduceKind::kNorm1;
    return lowering.add(ops::kReduce, reduce);
  }
  reduce.kind = ReduceKind::kSum;
  Chain chain(lowering, lowering.inputs[0]);
  if (order == 0) {
    return chain.add(ops::kScalar, ScalarAttributes{.kind = BinaryKind::kNotEqual, .scalar = 0}).add(ops::kReduce, reduce).end();
  }
  return chain.add(ops::kUnary, UnaryAttributes{UnaryKind::kAbs})
      .add(ops::kScalar, ScalarAttributes{.kind = BinaryKind::kPower, .scalar = order})
      .add(ops::kReduce, reduce)
      .add(ops::kScalar, ScalarAttributes{.kind = BinaryKind::kPower, .scalar = 1 / order})
      .end();
}

}  // namespace

std::vector<MxnetOperator> numpy_linalg_operators() {
  std::vector<MxnetOperator> all;
  all.push_back({"_npi_matmul", 2, 2, -1, numpy_matmul, -1, {"out"}});
  add_aliases(all, {"", 2, 2, -1, numpy_dot}, {"_np_dot", "_npi_dot"});
  all.push_back({"_npi_tensordot", 2, 2, -1, tensordot});
  all.push_back({"_npi_tensordot_int_axes", 2, 2, -1, tensordot_int});
  all.push_back({"_npi_einsum", 1, -1, -1, einsum});
  all.push_back({"_npi_cholesky", 1, 1, -1, of_matrices(ops::kCholesky)});
  all.push_back({"_npi_solve", 2, 2, -1, of_matrices(ops::kSolve)});
  all.push_back({"_npi_tensorinv", 1, 1, -1, tensor_inverse});
  all.push_back({"_npi_tensorsolve", 2, 2, -1, tensor_solve});
  all.push_back({"_npi_pinv", 2, 2, -1, pseudo_inverse});
  all.push_back({"_npi_pinv_scalar_rcond", 1, 1, -1, pseudo_inverse});
  all.push_back({"_npi_svd", 1, 1, -1, of_matrices(ops::kSingularValues)});
  all.push_back({"_npi_eigh", 1, 1, -1, eigen(true)});
  all.push_back({"_npi_eigvalsh", 1, 1, -1, eigen(false)});
  all.push_back({"_npi_norm", 1, 1, -1, numpy_norm, -1, {"output0"}});
  return all;
}

}  // namespace shoal::worker

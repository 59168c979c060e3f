#include "worker/passes/sparse_forms.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "shm/base/format.hpp"
#include "worker/graph/operators.hpp"
#include "worker/ops/elements.hpp"
#include "worker/ops/indexing.hpp"
#include "worker/ops/products.hpp"
#include "worker/ops/reduce.hpp"
#include "worker/ops/sparse.hpp"

namespace shoal::worker {
namespace {

bool is_zero_of_zero(const Node& node, const TypedValue& zero, const TypedValue& result) {
  if (result.shape.bound() != Shape{1}) return false;
  std::uint64_t from = 0, to = ~std::uint64_t{0};
  const TensorView src{zero.dtype, Shape{1}, reinterpret_cast<std::byte*>(&from)};
  TensorView dst{result.dtype, Shape{1}, reinterpret_cast<std::byte*>(&to)};
  if (!run_oracle(node, {&src, 1}, {&dst, 1}).ok()) return false;
  bool is_zero = false;  // or -0
  dispatch(AnyTypes(), dst.dtype, [&]<typename T>() { is_zero = static_cast<Compute<T>>(elements<T>(dst)[0]) == 0; });
  return is_zero;
}

/// If it computes 0 of 0 in that type: the type of the result. The oracle kernel says so. If the type is not known yet, so is
/// that of the result, and the node must compute 0 of 0 in every type that it takes.
std::optional<DType> result_that_keeps_zero(const Node& node, DType dtype) {
  if (node.op->facts.is_elementwise != Fact::kYes || node.inputs.size() != 1 || node.outputs.size() != 1 ||
      node.bodies.size() > 0)
    return std::nullopt;
  constexpr auto kAll = dtypes_of(AnyTypes());
  std::vector<DType> types(kAll.begin(), kAll.end());
  if (dtype != DType::kInvalid) types = {dtype};
  if (node.op->promote != nullptr) {
    for (DType& type : types) node.op->promote(node, {&type, 1});
  }
  bool is_taken = false;
  TypedValue result;
  for (const DType type : types) {
    const TypedValue zero{"zero", type, Shape{1}};
    if (!node.op->infer(node, {&zero, 1}, {&result, 1}).ok()) continue;
    if (!is_zero_of_zero(node, zero, result)) return std::nullopt;
    is_taken = true;
  }
  if (!is_taken) return std::nullopt;
  return dtype == DType::kInvalid ? dtype : result.dtype;
}

/// A reduction over axes of which none is the first gives 0 for a row of zeros.
bool keeps_rows(const Node& node, const Shape& values) {
  if (node.op != &ops::kReduce || !values.is_known()) return false;
  const auto& reduce = node.attributes.get<ReduceAttributes>();
  const bool is_zero = reduce.kind == ReduceKind::kSum || reduce.kind == ReduceKind::kMean || reduce.kind == ReduceKind::kNorm1 ||
                       reduce.kind == ReduceKind::kNorm2;
  return is_zero && !reduce.exclude && !reduce.axes.empty() && std::ranges::all_of(reduce.axes, [&](std::int64_t axis) {
           return axis > 0 ? axis < values.rank() : axis < 0 && axis > -values.rank();
         });
}

class Rewriter {
 public:
  explicit Rewriter(Graph& graph) : graph_(graph), maker_(graph.values.size(), kNoNode) {}

  void run() {
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    for (Node& node : nodes) {
      if (!dot(node) && !take(node) && !of_stored(node)) append(std::move(node));
    }
    graph_.remove_unneeded_nodes();
  }

 private:
  /// The node that makes a value dense; null if the value is another.
  const Node* sparse(ValueId id, const Operator& op) const {
    const NodeId maker = std::cmp_less(id, maker_.size()) ? maker_[static_cast<std::size_t>(id)] : kNoNode;
    if (maker == kNoNode) return nullptr;
    const Node& node = graph_.nodes[static_cast<std::size_t>(maker)];
    return node.op == &op ? &node : nullptr;
  }
  const Node* csr(ValueId id) const { return sparse(id, ops::kCsrToDense); }
  const Node* rows(ValueId id) const { return sparse(id, ops::kRowsToDense); }

  void append(Node node) {
    if (node.op == &ops::kCsrToDense || node.op == &ops::kRowsToDense) {
      maker_.resize(graph_.values.size(), kNoNode);
      maker_[static_cast<std::size_t>(node.outputs[0])] = static_cast<NodeId>(graph_.nodes.size());
    }
    graph_.nodes.push_back(std::move(node));
  }
  /// `node` by another operator, with other inputs.
  void append(const Node& node, const Operator& op, Attributes attributes, std::vector<ValueId> inputs) {
    append({&op,
            node.name,
            node.source_op.empty() ? std::string(node.op->name) : node.source_op,
            std::move(attributes),
            std::move(inputs),
            node.outputs,
            {}});
  }

  bool dot(const Node& node) {
    if (node.op != &ops::kDot) return false;
    const auto& product = node.attributes.get<DotAttributes>();
    if (product.as_numpy) return false;  // it sums over other axes of tensors of more than two
    const ValueId a = node.inputs[0], b = node.inputs[1];
    if (const Node* const left = csr(a); left != nullptr && !product.transpose_b) {
      std::vector<ValueId> inputs = left->inputs;
      const Node* const right = rows(b);
      const std::int64_t columns = left->attributes.get<CsrAttributes>().columns;
      // How many rows a row_sparse tensor would have is known only here. Numbers that differ are an error of Dot's rule.
      const bool fits = right != nullptr && !product.transpose_a && right->attributes.get<RowsAttributes>().count == columns;
      if (fits)
        inputs.insert(inputs.end(), right->inputs.begin(), right->inputs.end());
      else
        inputs.push_back(b);
      append(node, ops::kSparseDot, SparseDotAttributes{columns, product.transpose_a}, std::move(inputs));
      return true;
    }
    if (const Node* const right = csr(b); right != nullptr && !product.transpose_a) {
      std::vector<ValueId> inputs{a};
      inputs.insert(inputs.end(), right->inputs.begin(), right->inputs.end());
      const std::int64_t columns = right->attributes.get<CsrAttributes>().columns;
      append(node, ops::kDotSparse, SparseDotAttributes{columns, product.transpose_b}, std::move(inputs));
      return true;
    }
    return false;
  }

  bool take(const Node& node) {
    if (node.op != &ops::kTake) return false;
    const auto& take = node.attributes.get<TakeAttributes>();
    const Node* const from = rows(node.inputs[0]);
    if (from == nullptr || take.axis != 0 || take.mode == IndexMode::kRaise) return false;
    const TakeRowsAttributes attributes{from->attributes.get<RowsAttributes>().count, take.mode, take.table};
    append(node, ops::kTakeRows, attributes, {from->inputs[0], from->inputs[1], node.inputs[1]});
    return true;
  }

  bool of_stored(Node& node) {
    if (node.inputs.empty() || node.outputs.size() != 1) return false;
    const Node* from = csr(node.inputs[0]);
    const Node* const from_rows = rows(node.inputs[0]);
    if (from_rows != nullptr) from = from_rows;
    if (from == nullptr) return false;
    const Value& values = graph_.value(from->inputs[0]);
    const bool retains = node.op == &ops::kRetainRows && from_rows != nullptr && node.inputs.size() == 2;
    const bool reduces = from_rows != nullptr && node.inputs.size() == 1 && keeps_rows(node, values.shape);
    // A reduction may give another type.
    const std::optional<DType> dtype = retains   ? values.dtype
                                       : reduces ? DType::kInvalid
                                                 : result_that_keeps_zero(node, values.dtype);
    if (!dtype) return false;
    const ValueId dense = node.outputs[0];
    const ValueId computed =
        graph_.add_value({.name = graph_.value(dense).name, .dtype = *dtype, .shape = reduces ? Shape::any() : values.shape});
    Node expand = *from;
    expand.name = node.name;
    expand.inputs[0] = computed;
    expand.outputs = {dense};
    node.inputs[0] = from->inputs[0];
    if (retains) node.inputs.push_back(from->inputs[1]);
    node.outputs = {computed};
    append(std::move(node));
    append(std::move(expand));
    return true;
  }

  Graph& graph_;
  std::vector<NodeId> maker_;  ///< per value: the CsrToDense or RowsToDense that makes it
};

}  // namespace

void use_sparse_forms(Graph& whole) {
  for_each_graph(whole, [](Graph& graph) {
    const auto is_sparse = [](const Node& node) { return node.op == &ops::kCsrToDense || node.op == &ops::kRowsToDense; };
    if (std::ranges::any_of(graph.nodes, is_sparse)) Rewriter(graph).run();
  });
}

std::vector<std::string> describe_dense_forms(const Graph& whole) {
  std::vector<std::string> lines;
  for_each_graph(whole, [&](const Graph& graph) {
    for (const Node& node : graph.nodes) {
      const bool is_csr = node.op == &ops::kCsrToDense;
      if (!is_csr && node.op != &ops::kRowsToDense) continue;
      const Value& dense = graph.value(node.outputs[0]);
      lines.push_back(format("{} tensor '{}' ({}) is made dense, {} bytes", is_csr ? "csr" : "row_sparse", node.name,
                             dense.shape.to_string(), size_bytes_of(dense)));
    }
  });
  return lines;
}

}  // namespace shoal::worker

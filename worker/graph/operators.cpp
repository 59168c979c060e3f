#include "worker/graph/operators.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "shm/base/check.hpp"
#include "shm/base/format.hpp"

namespace shoal::worker {
namespace {

using Registry = std::map<std::string_view, const Operator*>;

// Operators are registered while static objects are made, in any order of files.
Registry& registry() {
  static Registry operators;
  return operators;
}

std::string_view stem_of(std::string_view file) {
  file.remove_prefix(file.find_last_of('/') + 1);
  return file.substr(0, file.find('.'));
}

}  // namespace

std::string Arity::to_text() const {
  if (most == kAny) return format("{} or more", least);
  return is_fixed() ? std::to_string(least) : format("{} to {}", least, most);
}

bool BatchedNode::rows_align(std::size_t input) const {
  return !has_rows_in(input) || graph.value(node.inputs[input]).shape.rank() == graph.value(node.outputs[0]).shape.rank();
}

bool BatchedNode::only_first_has_rows() const {
  for (std::size_t input = 1; input < node.inputs.size(); ++input) {
    if (has_rows_in(input)) return false;
  }
  return has_rows_in(0);
}

bool rows_of_first_input(const BatchedNode& batched) { return batched.only_first_has_rows(); }
bool rows_of_all_inputs(const BatchedNode&) { return true; }
bool rows_mixed(const BatchedNode&) { return false; }

double elements_of(std::span<const TensorView> tensors) {
  double sum = 0;
  for (const TensorView& tensor : tensors) sum += static_cast<double>(tensor.element_count());
  return sum;
}

Work work_of_elements(const Node&, std::span<const TensorView> src, std::span<const TensorView> dst) {
  return {.operations = elements_of(src) + elements_of(dst)};
}

Work work_of_results(const Node&, std::span<const TensorView> src, std::span<const TensorView> dst) {
  constexpr double kElementsCopiedAtOnce = 16;
  return {.operations = elements_of(dst) + elements_of(src) / kElementsCopiedAtOnce};
}

// a * b * result has each index twice.
Work work_of_product(const Node&, std::span<const TensorView> src, std::span<const TensorView> dst) {
  const double flops = 2 * std::sqrt(elements_of(src.first(1)) * elements_of(src.subspan(1, 1)) * elements_of(dst.first(1)));
  return {.operations = elements_of(src) + elements_of(dst) + flops, .flops = flops};
}

Work work_of_weights(const Node&, std::span<const TensorView> src, std::span<const TensorView> dst) {
  const Shape& weights = src[1].shape;
  const double results = elements_of(dst.first(1));
  const double flops = results == 0 ? 0 : 2 * results * static_cast<double>(weights.element_count() / weights[0]);
  return {.operations = elements_of(src) + elements_of(dst) + flops, .flops = flops};
}

Work work_of_factorization(const Node&, std::span<const TensorView> src, std::span<const TensorView> dst) {
  const double elements = elements_of(src) + elements_of(dst);
  return {.operations = elements * elements, .flops = 2 * std::pow(elements_of(src.first(1)), 1.5)};
}

Work work_of_pairs(const Node&, std::span<const TensorView> src, std::span<const TensorView> dst) {
  const double elements = elements_of(src) + elements_of(dst);
  return {.operations = elements * elements};
}

Work work_without_bound(const Node&, std::span<const TensorView>, std::span<const TensorView>) {
  return {.operations = std::numeric_limits<double>::infinity()};
}

Operator::Operator(const OperatorDef& def, const char* file) : OperatorDef(def), family_(stem_of(file)) {
  SHOAL_CHECK(infer != nullptr && facts.work != nullptr && (oracle != nullptr) != (bodies.run != nullptr));
  SHOAL_CHECK(bodies.count == 0 || (bodies.own_inputs != nullptr && bodies.inputs != nullptr));
  SHOAL_CHECK(registry().emplace(name, this).second);
}

bool leaves_sizes_open(const Node& node) { return node.op->leaves_sizes_open != nullptr && node.op->leaves_sizes_open(node); }

Status run_oracle(const Node& node, std::span<const TensorView> src, std::span<TensorView> dst) {
  if (std::ranges::all_of(dst, [](const TensorView& result) { return result.element_count() == 0; })) return {};
  return node.op->oracle(node, src, dst);
}

const Operator* find_operator(std::string_view name) {
  const auto found = registry().find(name);
  return found == registry().end() ? nullptr : found->second;
}

std::vector<const Operator*> all_operators() {
  std::vector<const Operator*> all;
  for (const auto& [name, op] : registry()) all.push_back(op);
  return all;
}

}  // namespace shoal::worker

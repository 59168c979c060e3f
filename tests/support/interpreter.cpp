#include "tests/support/interpreter.hpp"

#include <algorithm>
#include <cstring>

#include "shm/base/errors.hpp"
#include "worker/graph/operators.hpp"
#include "worker/passes/infer.hpp"

namespace shoal::testing {

using worker::BodyRules;
using worker::Graph;
using worker::Node;
using worker::Value;
using worker::ValueId;

namespace {

using Views = std::span<const TensorView>;

Result<std::vector<Tensor>> values_of(const Graph& graph, Views inputs);

/// Runs the bodies of a node.
class Bodies final : public worker::BodyRunner {
 public:
  Bodies(const Node& node, Views captures) : node_(node), captures_(captures) {}

  Status run(std::size_t body, Views src, std::span<TensorView> dst) override {
    const Graph& graph = node_.bodies[body];
    std::vector<TensorView> inputs(src.begin(), src.end());
    inputs.insert(inputs.end(), captures_.begin(), captures_.end());
    SHOAL_ASSIGN_OR_RETURN(const std::vector<Tensor> values, values_of(graph, inputs));
    for (std::size_t i = 0; i < dst.size(); ++i) {
      const TensorView& value = values[static_cast<std::size_t>(graph.outputs[i].value)].view();
      if (value.size_bytes() > 0) std::memcpy(dst[i].data, value.data, value.size_bytes());
    }
    return {};
  }

 private:
  const Node& node_;
  const Views captures_;
};

Status run_bodies(const Node& node, Views src, std::span<TensorView> dst) {
  const BodyRules& rules = node.op->bodies;
  const std::size_t own = rules.own_inputs(node);
  std::vector<Tensor> memory;
  std::vector<TensorView> scratch;
  if (rules.scratch != nullptr) scratch = rules.scratch(node, src.first(own));
  for (TensorView& view : scratch) {
    SHOAL_ASSIGN_OR_RETURN(memory.emplace_back(), Tensor::create(view.dtype, view.shape));
    view = memory.back().view();
  }
  Bodies bodies(node, src.subspan(own));
  return rules.run(node, bodies, src.first(own), dst, scratch);
}

/// All values of a graph for which infer() has run.
Result<std::vector<Tensor>> values_of(const Graph& graph, Views inputs) {
  std::vector<Tensor> tensors;
  for (const Value& value : graph.values) {
    const bool unused = value.dtype == DType::kInvalid;
    SHOAL_ASSIGN_OR_RETURN(Tensor tensor, Tensor::create(unused ? DType::kUInt8 : value.dtype, unused ? Shape{1} : value.shape));
    if (value.constant && !value.constant->bytes.empty())
      std::memcpy(tensor.view().data, value.constant->bytes.data(), value.constant->bytes.size());
    tensors.push_back(std::move(tensor));
  }
  const auto tensor_of = [&](ValueId id) -> Tensor& { return tensors[static_cast<std::size_t>(id)]; };
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const TensorView& given = inputs[i];
    if (given.size_bytes() > 0) std::memcpy(tensor_of(graph.inputs[i]).view().data, given.data, given.size_bytes());
  }
  for (const Node& node : graph.nodes) {
    std::vector<TensorView> src, dst;
    for (const ValueId id : node.inputs) src.push_back(tensor_of(id).view());
    for (const ValueId id : node.outputs) dst.push_back(tensor_of(id).view());
    SHOAL_RETURN_IF_ERROR(node.bodies.empty() ? node.op->oracle(node, src, dst) : run_bodies(node, src, dst));
  }
  return tensors;
}

}  // namespace

Result<Tensors> interpret(Graph graph, const Tensors& inputs) {
  std::vector<TensorSpec> specs;
  for (const NamedTensor& input : inputs) specs.push_back({input.name, input.tensor.dtype(), input.tensor.shape()});
  SHOAL_RETURN_IF_ERROR(worker::infer(graph, specs));

  std::vector<TensorView> views;
  std::vector<Tensor> zeros;  // inputs that are not given
  for (const ValueId id : graph.inputs) {
    const Value& value = graph.value(id);
    const auto given =
        std::find_if(inputs.begin(), inputs.end(), [&](const NamedTensor& each) { return each.name == value.name; });
    if (given == inputs.end()) {
      SHOAL_ASSIGN_OR_RETURN(zeros.emplace_back(), Tensor::create(value.dtype, value.shape));
    }
    views.push_back(given == inputs.end() ? zeros.back().view() : given->tensor.view());
  }
  SHOAL_ASSIGN_OR_RETURN(const std::vector<Tensor> values, values_of(graph, views));
  Tensors outputs;
  for (const worker::GraphOutput& output : graph.outputs)
    outputs.push_back({output.name, values[static_cast<std::size_t>(output.value)]});
  return outputs;
}

}  // namespace shoal::testing

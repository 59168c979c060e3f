#include "tests/support/interpreter.hpp"

#include <cstring>

#include "shm/base/errors.hpp"
#include "worker/graph/operators.hpp"
#include "worker/passes/infer.hpp"

namespace shoal::testing {

using worker::Graph;
using worker::Node;
using worker::Value;
using worker::ValueId;

Result<Tensors> interpret(Graph graph, const Tensors& inputs) {
  std::vector<TensorSpec> specs;
  for (const NamedTensor& input : inputs) specs.push_back({input.name, input.tensor.dtype(), input.tensor.shape()});
  SHOAL_RETURN_IF_ERROR(worker::infer(graph, specs));

  std::vector<Tensor> tensors;
  for (const Value& value : graph.values) {
    const bool unused = value.dtype == DType::kInvalid;
    SHOAL_ASSIGN_OR_RETURN(Tensor tensor, Tensor::create(unused ? DType::kUInt8 : value.dtype, unused ? Shape{1} : value.shape));
    if (value.constant) std::memcpy(tensor.view().data, value.constant->bytes.data(), value.constant->bytes.size());
    for (const NamedTensor& input : inputs) {
      if (value.producer == worker::kNoNode && input.name == value.name) tensor = input.tensor;
    }
    tensors.push_back(std::move(tensor));
  }
  const auto tensor_of = [&](ValueId id) -> Tensor& { return tensors[static_cast<std::size_t>(id)]; };
  for (const Node& node : graph.nodes) {
    std::vector<TensorView> src, dst;
    for (const ValueId id : node.inputs) src.push_back(tensor_of(id).view());
    for (const ValueId id : node.outputs) dst.push_back(tensor_of(id).view());
    SHOAL_RETURN_IF_ERROR(node.op->oracle(node, src, dst));
  }
  Tensors outputs;
  for (const worker::GraphOutput& output : graph.outputs) outputs.push_back({output.name, tensor_of(output.value)});
  return outputs;
}

}  // namespace shoal::testing

#include "worker/import/mxnet/mxnet_lowering.hpp"

#include <map>

#include "shm/base/check.hpp"
#include "shm/base/format.hpp"
#include "worker/graph/operators.hpp"

namespace shoal::worker {
namespace {

using Registry = std::map<std::string, MxnetOperator, std::less<>>;

void add(Registry& registry, MxnetOperator op) {
  const std::string name = op.name;
  SHOAL_CHECK(static_cast<bool>(op.lower));
  SHOAL_CHECK(registry.emplace(name, std::move(op)).second);
}

Registry built_in() {
  Registry registry;
  for (auto operators : {layer_operators(), elementwise_operators(), movement_operators(), reduction_operators()}) {
    for (MxnetOperator& op : operators) add(registry, std::move(op));
  }
  return registry;
}

Registry& registry() {
  static Registry operators = built_in();
  return operators;
}

}  // namespace

const MxnetOperator* find_mxnet_operator(std::string_view name) {
  const auto found = registry().find(name);
  return found == registry().end() ? nullptr : &found->second;
}

std::vector<const MxnetOperator*> all_mxnet_operators() {
  std::vector<const MxnetOperator*> all;
  for (const auto& [name, op] : registry()) all.push_back(&op);
  return all;
}

void register_mxnet_operator(MxnetOperator op) { add(registry(), std::move(op)); }

void add_aliases(std::vector<MxnetOperator>& operators, MxnetOperator op, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    op.name = name;
    operators.push_back(op);
    op.alias_of = names.front();
  }
}

std::vector<ValueId> MxnetLowering::add(const Operator& op, Attributes attributes, std::vector<ValueId> sources,
                                        std::size_t outputs) {
  Node added;
  added.op = &op;
  added.name = node.name;
  added.source_op = node.op;
  added.attributes = std::move(attributes);
  added.inputs = std::move(sources);
  if (op.outputs.is_fixed()) outputs = static_cast<std::size_t>(op.outputs.least);
  if (const Status taken = budget.take("the list of its outputs", outputs, value_bytes(node.name)); !taken.ok()) {
    this->attributes.fail_node(taken.code(), taken.message());
    return {};
  }
  for (std::size_t i = 0; i < outputs; ++i) {
    Value value;
    value.name = node.name + "_output" + (i == 0 ? "" : std::to_string(i));
    value.producer = static_cast<NodeId>(graph.nodes.size());
    added.outputs.push_back(graph.add_value(std::move(value)));
  }
  graph.nodes.push_back(added);
  return added.outputs;
}

void MxnetLowering::check_input_count(const char* key) {
  const auto count = static_cast<std::int64_t>(inputs.size());
  if (attributes.integer(key, count, 1) != count) attributes.fail(key, format("and the node has {} inputs", count));
}

}  // namespace shoal::worker

#include "worker/import/mxnet/mxnet_lowering.hpp"

#include <algorithm>
#include <map>

#include "shm/base/check.hpp"
#include "shm/base/errors.hpp"
#include "worker/graph/operators.hpp"
#include "worker/import/mxnet/mxnet_refusals.hpp"

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
  for (auto operators :
       {layer_operators(), elementwise_operators(), movement_operators(), reduction_operators(), math_operators(),
        attention_operators(), numpy_operators(), numpy_shape_operators(), numpy_linalg_operators(), quantized_operators(),
        creation_operators(), indexing_operators(), shape_operators(), sequence_operators(), control_flow_operators(),
        vision_operators(), sparse_operators()}) {
    for (MxnetOperator& op : operators) add(registry, std::move(op));
  }
  for (const std::string_view name : sparse_aliases()) {
    MxnetOperator op = registry.find(name)->second;
    if (op.alias_of.empty()) op.alias_of = op.name;
    op.name = format("_sparse_{}", name);
    add(registry, std::move(op));
  }
  return registry;
}

Registry& registry() {
  static Registry operators = built_in();
  return operators;
}

// Bytes of a node's copy in a graph. The nodes of the file have been counted with its text, but those of a subgraph may be
// lowered more than once.
constexpr std::uint64_t kNodeBytes = 3 * sizeof(Node) + 256;

}  // namespace

std::size_t used_inputs(const MxnetNode& node) {
  const MxnetOperator* const op = find_mxnet_operator(node.op);
  return op && op->used_inputs >= 0 ? static_cast<std::size_t>(op->used_inputs) : node.inputs.size();
}

Result<ValueId> value_of(const MxnetSymbol& symbol, const std::vector<std::vector<ValueId>>& outputs, const MxnetEntry& entry,
                         std::string_view reader) {
  const MxnetNode& node = symbol.nodes[entry.node];
  const std::vector<ValueId>& made = outputs[entry.node];
  if (entry.output >= made.size())
    return data_loss("{}, inputs: output {} of '{}' is read, which has {}", reader, entry.output, node.name, made.size());
  if (made[entry.output] == kNoValue)
    return unimplemented("{} reads output {} of {} '{}', which is not computed at inference", reader, entry.output, node.op,
                         node.name);
  return made[entry.output];
}

Result<const MxnetOperator*> operator_of(const MxnetNode& node) {
  const MxnetOperator* const op = find_mxnet_operator(node.op);
  if (op == nullptr) {
    const std::string_view why = why_refused(node.op);
    return unimplemented("{} '{}': Shoal does not have this operator{}{}", node.op, node.name, why.empty() ? "" : ": ", why);
  }
  const auto count = static_cast<int>(node.inputs.size());
  if (count >= op->min_inputs && (op->max_inputs < 0 || count <= op->max_inputs)) return op;
  return invalid_argument("{} '{}': {} inputs; it takes {}", node.op, node.name, count,
                          Arity(op->min_inputs, op->max_inputs).to_text());
}

Result<std::vector<ValueId>> lower_node(const MxnetOperator& op, const MxnetNode& node, std::vector<ValueId> inputs, Graph& graph,
                                        MemoryBudget& budget, const MxnetWarn& warn) {
  AttributeReader attributes(node);
  MxnetLowering lowering{graph, node, attributes, budget, std::move(inputs), warn};
  std::vector<ValueId> outputs = op.lower(lowering);
  for (const std::string& key : attributes.unread()) {
    if (warn) warn(format("{} '{}': attribute {} is not known and ignored", node.op, node.name, key));
  }
  if (!attributes.status().ok()) return attributes.status();
  return outputs;
}

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
  Status taken;
  if (op.outputs.is_fixed())
    outputs = static_cast<std::size_t>(op.outputs.least);
  else if (outputs > 1)
    taken = budget.take_asked("the number of its outputs", outputs);
  if (taken.ok()) taken = budget.take("the list of its outputs", outputs, value_bytes(node.name));
  if (!taken.ok()) {
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

ValueId shape_source(const Graph& graph, ValueId id) {
  while (graph.value(id).producer != kNoNode) {
    const Node& node = graph.nodes[static_cast<std::size_t>(graph.value(id).producer)];
    if (node.inputs.size() != 1 || node.op->facts.is_elementwise != Fact::kYes) break;
    id = node.inputs[0];
  }
  return id;
}

Result<std::vector<ValueId>> MxnetLowering::lower_subgraph(std::size_t index, std::span<const ValueId> arguments,
                                                           std::size_t heads, Graph& into) {
  const MxnetSymbol& symbol = node.subgraphs[index];
  const std::vector<std::size_t> variables = list_variables(symbol);
  if (variables.size() != arguments.size() || symbol.heads.size() != heads)
    return invalid_argument("subgraph {} has {} variables and {} heads, where {} and {} are needed", index, variables.size(),
                            symbol.heads.size(), arguments.size(), heads);
  std::vector<std::vector<ValueId>> outputs(symbol.nodes.size());
  for (std::size_t i = 0; i < variables.size(); ++i) outputs[variables[i]] = {arguments[i]};
  const std::vector<std::size_t> needed = post_order(symbol, symbol.heads, used_inputs);
  SHOAL_RETURN_IF_ERROR(budget.take("the nodes of a subgraph", needed.size(), kNodeBytes));
  for (const std::size_t id : needed) {
    const MxnetNode& inner = symbol.nodes[id];
    if (inner.is_variable()) continue;
    SHOAL_ASSIGN_OR_RETURN(const MxnetOperator* const op, operator_of(inner));
    std::vector<ValueId> sources;
    for (std::size_t i = 0; i < std::min(used_inputs(inner), inner.inputs.size()); ++i) {
      SHOAL_ASSIGN_OR_RETURN(const ValueId source, value_of(symbol, outputs, inner.inputs[i], inner.name));
      sources.push_back(source);
    }
    SHOAL_ASSIGN_OR_RETURN(outputs[id], lower_node(*op, inner, std::move(sources), into, budget, warn));
  }
  std::vector<ValueId> found;
  for (const MxnetEntry& head : symbol.heads) {
    SHOAL_ASSIGN_OR_RETURN(const ValueId value, value_of(symbol, outputs, head, "a head of the subgraph"));
    found.push_back(value);
  }
  return found;
}

void MxnetLowering::check_input_count(const char* key) {
  const auto count = static_cast<std::int64_t>(inputs.size());
  if (attributes.integer(key, count, 1) != count) attributes.fail(key, format("and the node has {} inputs", count));
}

}  // namespace shoal::worker

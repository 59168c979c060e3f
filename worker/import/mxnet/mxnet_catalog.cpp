#include "worker/import/mxnet/mxnet_catalog.hpp"

#include <algorithm>
#include <map>

#include "worker/graph/operators.hpp"
#include "worker/import/mxnet/mxnet_lowering.hpp"

namespace shoal::worker {
namespace {

/// Missing attributes are errors that only the reader sees; lowering goes on with defaults.
std::vector<std::string> lowered(const MxnetOperator& op) {
  MxnetNode node;
  node.op = node.name = op.name;
  Graph graph;
  AttributeReader attributes(node);
  MemoryBudget budget{ImportLimits()};
  MxnetLowering lowering{graph, node, attributes, budget, {}};
  const int inputs = op.used_inputs >= 0 ? op.used_inputs : op.min_inputs;
  for (int i = 0; i < inputs; ++i) lowering.inputs.push_back(graph.add_value({}));
  op.lower(lowering);
  std::vector<std::string> names;
  for (const Node& added : graph.nodes) {
    if (std::ranges::find(names, added.op->name) == names.end()) names.emplace_back(added.op->name);
  }
  return names;
}

}  // namespace

std::vector<ForeignOperator> mxnet_catalog() {
  std::map<std::string, ForeignOperator> entries;
  for (const MxnetOperator* op : all_mxnet_operators()) {
    ForeignOperator& entry = entries[op->alias_of.empty() ? op->name : op->alias_of];
    if (op->alias_of.empty()) {
      entry.name = op->name;
      entry.becomes = lowered(*op);
    } else {
      entry.aliases.push_back(op->name);
    }
  }
  std::vector<ForeignOperator> all;
  for (auto& [name, entry] : entries) all.push_back(std::move(entry));
  return all;
}

}  // namespace shoal::worker

#include "worker/exec/graph_hash.hpp"

#include <string>
#include <vector>

#include "worker/exec/graph_plan.hpp"
#include "worker/graph/content_hash.hpp"
#include "worker/graph/graph.hpp"
#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace {

void add_graph(ContentHash& hash, const Graph& graph) {
  const std::vector<bool> is_read = find_read_values(graph);
  for (std::size_t id = 0; id < graph.values.size(); ++id) {
    const Value& value = graph.values[id];
    hash.add(value.name);
    if (!value.constant || !is_read[id]) continue;
    hash.add(static_cast<std::uint64_t>(value.constant->dtype));
    hash.add(std::as_bytes(value.constant->shape.dims()));
    hash.add(value.constant->bytes);
    if (!value.constant->key.empty()) hash.add(value.constant->key);  // by which it is found among the packed weights
  }
  std::string attributes;
  for (const Node& node : graph.nodes) {
    hash.add(node.op->name);
    hash.add(node.name);
    attributes.clear();
    node.attributes.append_bytes(attributes);
    hash.add(attributes);
    hash.add(std::as_bytes(std::span(node.inputs)));
    hash.add(std::as_bytes(std::span(node.outputs)));
  }
  hash.add(std::as_bytes(std::span(graph.inputs)));
  for (const GraphOutput& output : graph.outputs) {
    hash.add(output.name);
    hash.add(static_cast<std::uint64_t>(output.value));
  }
}

}  // namespace

std::uint64_t hash_graph(const Graph& graph) {
  ContentHash hash;
  for_each_graph(graph, [&](const Graph& each) {
    if (!each.scope.empty()) hash.add(each.scope);
    add_graph(hash, each);
  });
  return hash.value();
}

}  // namespace shoal::worker

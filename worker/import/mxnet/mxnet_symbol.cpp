#include "worker/import/mxnet/mxnet_symbol.hpp"

#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "shm/base/errors.hpp"
#include "worker/import/mxnet/mapped_file.hpp"

namespace shoal::worker {
namespace {

using Json = nlohmann::json;

/// Turns parsed JSON into an MxnetSymbol; errors name the node.
class SymbolReader {
 public:
  Result<MxnetSymbol> read(const Json& graph) {
    if (!graph.is_object()) return data_loss("the JSON is no object");
    for (const char* key : {"nodes", "arg_nodes", "heads"}) {
      const auto list = graph.find(key);
      if (list == graph.end() || !list->is_array()) return data_loss("there is no list '{}'", key);
    }
    read_version(graph);
    for (const Json& node : graph["nodes"]) SHOAL_RETURN_IF_ERROR(read_node(node));
    for (const MxnetNode& node : symbol_.nodes) SHOAL_RETURN_IF_ERROR(check_inputs(node));
    SHOAL_RETURN_IF_ERROR(read_heads(graph["heads"]));
    SHOAL_RETURN_IF_ERROR(check_arg_nodes(graph["arg_nodes"]));
    SHOAL_RETURN_IF_ERROR(check_acyclic());
    return std::move(symbol_);
  }

 private:
  void read_version(const Json& graph) {
    const auto attrs = graph.find("attrs");
    if (attrs == graph.end() || !attrs->is_object()) return;
    const auto version = attrs->find("mxnet_version");
    if (version == attrs->end() || !version->is_array() || version->size() != 2 || !(*version)[1].is_number_integer()) return;
    symbol_.version = (*version)[1].get<int>();
  }

  Status read_node(const Json& json) {
    const std::size_t id = symbol_.nodes.size();
    if (!json.is_object()) return data_loss("node {} is no object", id);
    MxnetNode node;
    for (const auto& [key, text] : {std::pair{"op", &node.op}, std::pair{"name", &node.name}}) {
      const auto found = json.find(key);
      if (found == json.end() || !found->is_string()) return data_loss("node {} has no text '{}'", id, key);
      *text = found->get<std::string>();
    }
    if (json.contains("param")) {
      return unimplemented(
          "node '{}' keeps its attributes under 'param': this file is of the era before MXNet 0.9, not supported yet", node.name);
    }
    for (const char* key : {"attrs", "attr"}) SHOAL_RETURN_IF_ERROR(read_attributes(json, key, node));
    const auto inputs = json.find("inputs");
    if (inputs == json.end() || !inputs->is_array()) return data_loss("node '{}' has no list 'inputs'", node.name);
    for (const Json& input : *inputs) {
      const auto entry = read_entry(input);
      if (!entry) return data_loss("an input of node '{}' is {}, not [node, output]", node.name, input.dump());
      node.inputs.push_back(*entry);
    }
    if (node.is_variable() && !node.inputs.empty()) return data_loss("variable '{}' has inputs", node.name);
    symbol_.nodes.push_back(std::move(node));
    return {};
  }

  static Status read_attributes(const Json& json, const char* key, MxnetNode& node) {
    const auto attributes = json.find(key);
    if (attributes == json.end()) return {};
    if (!attributes->is_object()) return data_loss("'{}' of node '{}' is no object", key, node.name);
    for (const auto& [name, value] : attributes->items()) {
      if (!value.is_string()) return data_loss("attribute {} of {} '{}' is {}, not text", name, node.op, node.name, value.dump());
      node.attributes.emplace(name, value.get<std::string>());
    }
    return {};
  }

  static std::optional<std::size_t> read_index(const Json& json) {
    if (!json.is_number_unsigned() && !json.is_number_integer()) return std::nullopt;
    const auto value = json.get<std::int64_t>();
    if (value < 0 || value > std::numeric_limits<std::int32_t>::max()) return std::nullopt;
    return static_cast<std::size_t>(value);
  }

  /// [node, output] or [node, output, version]; the version counts writes and says nothing here.
  static std::optional<MxnetEntry> read_entry(const Json& json) {
    if (!json.is_array() || json.size() < 2 || json.size() > 3) return std::nullopt;
    const auto node = read_index(json[0]), output = read_index(json[1]);
    if (!node || !output) return std::nullopt;
    return MxnetEntry{*node, *output};
  }

  Status check_inputs(const MxnetNode& node) const {
    for (const MxnetEntry& input : node.inputs) {
      if (input.node >= symbol_.nodes.size()) {
        return data_loss("node '{}' reads node {} of {}", node.name, input.node, symbol_.nodes.size());
      }
    }
    return {};
  }

  Status read_heads(const Json& heads) {
    if (heads.empty()) return data_loss("'heads' is empty: the graph computes nothing");
    for (const Json& json : heads) {
      const auto head = read_entry(json);
      if (!head) return data_loss("one of 'heads' is {}, not [node, output]", json.dump());
      if (head->node >= symbol_.nodes.size())
        return data_loss("one of 'heads' is node {} of {}", head->node, symbol_.nodes.size());
      symbol_.heads.push_back(*head);
    }
    return {};
  }

  Status check_arg_nodes(const Json& arg_nodes) const {
    for (const Json& json : arg_nodes) {
      const auto id = read_index(json);
      if (!id || *id >= symbol_.nodes.size())
        return data_loss("'arg_nodes' holds {}; there are {} nodes", json.dump(), symbol_.nodes.size());
      const MxnetNode& node = symbol_.nodes[*id];
      if (!node.is_variable()) return data_loss("'arg_nodes' names {} '{}', which is an operator", node.op, node.name);
    }
    return {};
  }

  /// Takes away nodes that read nothing any more; what is left when none can be taken is a cycle.
  Status check_acyclic() const {
    std::vector<std::size_t> unread(symbol_.nodes.size()), ready;
    std::vector<std::vector<std::size_t>> readers(symbol_.nodes.size());
    for (std::size_t id = 0; id < symbol_.nodes.size(); ++id) {
      unread[id] = symbol_.nodes[id].inputs.size();
      for (const MxnetEntry& input : symbol_.nodes[id].inputs) readers[input.node].push_back(id);
      if (unread[id] == 0) ready.push_back(id);
    }
    for (std::size_t next = 0; next < ready.size(); ++next) {
      for (const std::size_t reader : readers[ready[next]]) {
        if (--unread[reader] == 0) ready.push_back(reader);
      }
    }
    for (std::size_t id = 0; id < unread.size(); ++id) {
      if (unread[id] > 0) return data_loss("the nodes form a cycle; node '{}' is on it or behind it", symbol_.nodes[id].name);
    }
    return {};
  }

  MxnetSymbol symbol_;
};

}  // namespace

Result<MxnetSymbol> read_mxnet_symbol(const std::filesystem::path& path) {
  SHOAL_ASSIGN_OR_RETURN(const auto file, MappedFile::open(path));
  const auto* const text = reinterpret_cast<const char*>(file->bytes().data());
  Json graph;
  try {
    graph = Json::parse(text, text + file->bytes().size());
  } catch (const Json::exception& e) {
    return data_loss("{}: no JSON: {}", path.string(), e.what());
  }
  Result<MxnetSymbol> symbol = SymbolReader().read(graph);
  if (!symbol.ok()) return symbol.status().with_context(path.string());
  return symbol;
}

std::vector<std::size_t> post_order(const MxnetSymbol& symbol, std::size_t (*reads)(const MxnetNode& node)) {
  std::vector<std::size_t> order;
  std::vector<bool> seen(symbol.nodes.size());
  std::vector<std::pair<std::size_t, std::size_t>>
      path;  // a node and the next of its inputs to visit: deep graphs need no deep stack
  const auto enter = [&](std::size_t id) {
    if (!seen[id]) path.emplace_back(id, 0);
    seen[id] = true;
  };
  for (const MxnetEntry& head : symbol.heads) {
    enter(head.node);
    while (!path.empty()) {
      auto& [id, next] = path.back();
      const MxnetNode& node = symbol.nodes[id];
      if (next < std::min(reads(node), node.inputs.size())) {
        enter(node.inputs[next++].node);
      } else {
        order.push_back(id);
        path.pop_back();
      }
    }
  }
  return order;
}

}  // namespace shoal::worker

#include "worker/import/mxnet/mxnet_outputs.hpp"

#include <algorithm>
#include <charconv>

#include "worker/import/mxnet/mxnet_lowering.hpp"

namespace shoal::worker {
namespace {

constexpr std::string_view kOutput = "output";

/// The number of the output that is called `name`, if the node may have one that is.
std::optional<std::size_t> output_called(const MxnetNode& node, std::string_view name) {
  if (node.is_variable()) return name == node.name ? std::optional<std::size_t>(0) : std::nullopt;
  if (!node.name.empty()) {
    if (!name.starts_with(node.name) || !name.substr(node.name.size()).starts_with('_')) return std::nullopt;
    name.remove_prefix(node.name.size() + 1);
  }
  if (const MxnetOperator* const op = find_mxnet_operator(node.op)) {
    const auto found = std::ranges::find(op->output_names, name);
    if (found != op->output_names.end()) return static_cast<std::size_t>(found - op->output_names.begin());
  }
  if (!name.starts_with(kOutput)) return std::nullopt;
  name.remove_prefix(kOutput.size());
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  return name.empty() || (error == std::errc() && end == name.data() + name.size()) ? std::optional(number) : std::nullopt;
}

std::vector<std::size_t> needed_nodes(const MxnetSymbol& symbol) { return post_order(symbol, symbol.heads, all_inputs); }

}  // namespace

std::string mxnet_output_name(const MxnetNode& node, std::size_t output, std::size_t count) {
  if (node.is_variable()) return node.name;
  const MxnetOperator* const op = find_mxnet_operator(node.op);
  std::string name(kOutput);
  if (op && output < op->output_names.size()) {
    name = op->output_names[output];
  } else if (count > 1) {
    name += std::to_string(output);
  }
  return node.name.empty() ? name : node.name + "_" + name;
}

std::optional<MxnetEntry> find_mxnet_output(const MxnetSymbol& symbol, std::string_view name) {
  for (const MxnetEntry& head : symbol.heads) {
    if (output_called(symbol.nodes[head.node], name) == head.output) return head;
  }
  for (const std::size_t id : needed_nodes(symbol)) {
    if (const auto output = output_called(symbol.nodes[id], name)) return MxnetEntry{id, *output};
  }
  return std::nullopt;
}

std::vector<std::string> mxnet_internals(const MxnetSymbol& symbol) {
  std::vector<std::size_t> counts(symbol.nodes.size(), 1);
  const auto count = [&](const MxnetEntry& entry) { counts[entry.node] = std::max(counts[entry.node], entry.output + 1); };
  const std::vector<std::size_t> needed = needed_nodes(symbol);
  std::ranges::for_each(symbol.heads, count);
  for (const std::size_t id : needed) std::ranges::for_each(symbol.nodes[id].inputs, count);
  constexpr std::size_t kMostOfANode = 1024, kMostNames = 10'000;  // a file may have any number; these are for a message
  std::vector<std::string> names;
  for (const std::size_t id : needed) {
    if (names.size() >= kMostNames) break;
    for (std::size_t output = 0; output < std::min(counts[id], kMostOfANode); ++output)
      names.push_back(mxnet_output_name(symbol.nodes[id], output, counts[id]));
  }
  return names;
}

}  // namespace shoal::worker

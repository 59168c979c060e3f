#include "worker/import/mxnet/mxnet_fingerprint.hpp"

#include <cstdio>
#include <span>
#include <string_view>
#include <vector>

#include "worker/graph/content_hash.hpp"
#include "worker/import/mxnet/attribute_reader.hpp"

namespace shoal::worker {
namespace {

/// A graph as text that has one meaning: each name has its length before it, and each list its size.
class Canonical {
 public:
  void add(const MxnetSymbol& symbol) {
    const std::vector<std::size_t> order = post_order(symbol, symbol.heads, all_inputs);
    std::vector<std::size_t> places(symbol.nodes.size());
    for (std::size_t place = 0; place < order.size(); ++place) places[order[place]] = place;
    const auto add_entries = [&](const std::vector<MxnetEntry>& entries) {
      add(entries.size());
      for (const MxnetEntry& entry : entries) {
        add(places[entry.node]);
        add(entry.output);
      }
    };
    add(symbol.np_shape);
    add(order.size());
    for (const std::size_t id : order) {
      const MxnetNode& node = symbol.nodes[id];
      add(node.op);
      add(node.name);
      add(node.is_old_pooling);
      for (const auto& [key, value] : node.attributes) {
        if (is_hint(key)) continue;
        add(key);
        add(value);
      }
      add_entries(node.inputs);
      add(node.subgraphs.size());
      for (const MxnetSymbol& graph : node.subgraphs) add(graph);
    }
    add_entries(symbol.heads);
  }
  const std::string& text() const { return text_; }

 private:
  void add(std::size_t number) { text_.append(std::to_string(number)).push_back(';'); }
  void add(std::string_view name) {
    text_.append(std::to_string(name.size())).push_back(':');
    text_.append(name);
  }

  std::string text_;
};

}  // namespace

std::string fingerprint(const MxnetSymbol& symbol) {
  Canonical canonical;
  canonical.add(symbol);
  const auto [high, low] = digest_of(std::as_bytes(std::span(canonical.text())));
  char text[40];
  std::snprintf(text, sizeof text, "mxnet1:%016llx%016llx", static_cast<unsigned long long>(high),
                static_cast<unsigned long long>(low));
  return text;
}

}  // namespace shoal::worker

#include "worker/import/mxnet/mxnet_symbol.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "shm/base/shortened.hpp"
#include "worker/import/mxnet/mxnet_upgrade.hpp"

namespace shoal::worker {
namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 64;                  // of nested lists and objects; a graph needs 4, a subgraph in it 4 more. So what
                                               // goes through subgraphs may call itself
constexpr std::uint64_t kMemoryPerByte = 100;  // bytes of memory that one byte of text may become: JSON values, nodes of the file
                                               // and nodes of the Graph. Outputs are counted when they are made.
constexpr std::size_t kMostHeads = 4096;       // each becomes an output with its own name
constexpr std::size_t kQuotedAtMost = 60;      // bytes of the file in an error
constexpr std::size_t kSaidAtMost = 200;       // bytes of the JSON library's own message, which may quote long texts

/// Iterates over text. `reached` is the current position, for others to read.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** reached) : at_(at), reached_(reached) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    const CountingIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const CountingIterator& a, const CountingIterator& b) { return a.at_ == b.at_; }

 private:
  const char* at_;
  const char** reached_;
};

/// Parsed JSON, with the offsets in the file of the nodes and of the graph's members. The library's values do not have them.
struct PlacedJson {
  Json graph;
  std::vector<std::uint64_t> nodes;
  std::map<std::string, std::uint64_t, std::less<>> members;
};

/// Finds these offsets. Stops where the text is not JSON or is nested too deeply. It is a separate pass, because the library's
/// callbacks during parsing take time that grows with the square of a list's length.
class Places final : public nlohmann::json_sax<Json> {
 public:
  explicit Places(PlacedJson& placed, std::span<const std::byte> bytes)
      : placed_(placed), start_(reinterpret_cast<const char*>(bytes.data())), end_(start_ + bytes.size()), reached_(start_) {}

  /// Returns false when it stopped before the end.
  bool read() {
    nlohmann::json_sax<Json>* const events = this;
    return Json::sax_parse(CountingIterator(start_, &reached_), CountingIterator(end_, &reached_), events);
  }
  std::uint64_t offset() const { return static_cast<std::uint64_t>(reached_ - start_); }
  bool is_too_deep() const { return depth_ > kMaxDepth; }
  const std::string& error() const { return error_; }

 private:
  static constexpr int kMemberDepth = 1, kNodeDepth = 2;

  bool element() {
    if (depth_ == kNodeDepth && member_ == "nodes") placed_.nodes.push_back(offset() - 1);
    return !is_too_deep();
  }
  bool begin() {
    const bool goes_on = element();
    depth_ += goes_on;
    return goes_on;
  }
  bool end() {
    --depth_;
    return true;
  }

  bool null() override { return element(); }
  bool boolean(bool) override { return element(); }
  bool number_integer(number_integer_t) override { return element(); }
  bool number_unsigned(number_unsigned_t) override { return element(); }
  bool number_float(number_float_t, const string_t&) override { return element(); }
  bool string(string_t&) override { return element(); }
  bool binary(binary_t&) override { return element(); }
  bool start_object(std::size_t) override { return begin(); }
  bool start_array(std::size_t) override { return begin(); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool key(string_t& name) override {
    if (depth_ != kMemberDepth) return !is_too_deep();
    member_ = name;
    placed_.members[member_] = offset();
    if (member_ == "nodes") placed_.nodes.clear();  // if a key occurs twice, the last one counts
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const Json::exception& e) override {
    error_ = e.what();
    return false;
  }

  PlacedJson& placed_;
  const char *start_, *end_, *reached_;
  int depth_ = 0;
  std::string member_, error_;
};

Result<PlacedJson> parse_placed(const ForeignFile& file) {
  PlacedJson placed;
  Places places(placed, file.bytes);
  if (places.read()) {
    const auto* const text = reinterpret_cast<const char*>(file.bytes.data());
    placed.graph = Json::parse(text, text + file.bytes.size());
    return placed;
  }
  if (places.is_too_deep()) {
    return data_loss("{}: offset {}, JSON: lists and objects are nested more than {} deep", file.name, places.offset(),
                     kMaxDepth);
  }
  std::string what = shortened(places.error(), kSaidAtMost);  // it may quote bytes that are not text
  std::ranges::replace_if(
      what, [](char c) { return c < ' ' || c > '~'; }, '?');
  return data_loss("{}: offset {}, JSON: {}", file.name, places.offset(), what);
}

/// A value for an error message, which must stay short.
std::string quoted(const Json& json) {
  if (json.is_structured()) return format("{} of {}", json.type_name(), json.size());
  std::string text = json.dump();
  if (text.size() <= kQuotedAtMost) return text;
  return std::string(json.type_name());
}

/// Makes an MxnetSymbol of parsed JSON. Errors name file, offset and node.
class SymbolReader {
 public:
  SymbolReader(const ForeignFile& file, const PlacedJson& json) : file_(file), places_(&json), graph_(json.graph) {}
  /// Of a graph within node `id` of another one, whose version it has.
  SymbolReader(const SymbolReader& outer, std::size_t id, const Json& graph)
      : file_(outer.file_), graph_(graph), offset_(outer.node_offset(id)), where_(outer.where_) {
    if (where_.empty()) where_ = format("node {} '{}', subgraphs: ", id, shortened(outer.symbol_.nodes[id].name, kQuotedAtMost));
    symbol_.version = outer.symbol_.version;
    symbol_.np_shape = outer.symbol_.np_shape;
  }

  Result<MxnetSymbol> read() {
    if (!graph_.is_object()) return data_loss("{}: offset {}, {}graph: the JSON is no object", file_.name, offset_, where_);
    for (const char* key : {"nodes", "arg_nodes", "heads"}) {
      const auto list = graph_.find(key);
      if (list == graph_.end() || !list->is_array()) return bad_member(key, "there is no list of that name");
    }
    read_version();
    symbol_.nodes.reserve(graph_["nodes"].size());
    for (const Json& node : graph_["nodes"]) SHOAL_RETURN_IF_ERROR(read_node(node));
    for (std::size_t id = 0; id < symbol_.nodes.size(); ++id) SHOAL_RETURN_IF_ERROR(check_references(id));
    SHOAL_RETURN_IF_ERROR(read_heads());
    SHOAL_RETURN_IF_ERROR(check_arg_nodes());
    SHOAL_RETURN_IF_ERROR(check_acyclic());
    return std::move(symbol_);
  }

 private:
  template <typename... Args>
  Status bad_member(std::string_view member, std::string_view pattern, const Args&... args) const {
    return data_loss("{}: offset {}, {}'{}': {}", file_.name, member_offset(member), where_, member, format(pattern, args...));
  }
  template <typename... Args>
  Status bad_node(std::size_t id, std::string_view field, std::string_view pattern, const Args&... args) const {
    const std::string name = id < symbol_.nodes.size() ? format(" '{}'", symbol_.nodes[id].name) : "";
    return data_loss("{}: offset {}, {}node {}{}, {}: {}", file_.name, node_offset(id), where_, id, name, field,
                     format(pattern, args...));
  }

  std::uint64_t member_offset(std::string_view member) const {
    if (places_ == nullptr) return offset_;
    const auto found = places_->members.find(member);
    return found == places_->members.end() ? 0 : found->second;
  }
  std::uint64_t node_offset(std::size_t id) const {
    if (places_ == nullptr) return offset_;
    return id < places_->nodes.size() ? places_->nodes[id] : 0;
  }

  std::optional<std::int64_t> graph_number(const char* key) const {
    const auto attrs = graph_.find("attrs");
    if (attrs == graph_.end() || !attrs->is_object()) return std::nullopt;
    const auto pair = attrs->find(key);  // [type, value]
    if (pair == attrs->end() || !pair->is_array() || pair->size() != 2 || !(*pair)[1].is_number_integer()) return std::nullopt;
    return (*pair)[1].get<std::int64_t>();
  }

  void read_version() {
    const std::int64_t version = graph_number("mxnet_version").value_or(0);
    if (version > 0 && version <= std::numeric_limits<int>::max()) symbol_.version = static_cast<int>(version);
    if (const auto np_shape = graph_number("is_np_shape")) symbol_.np_shape = *np_shape != 0;
  }

  Status read_node(const Json& json) {
    const std::size_t id = symbol_.nodes.size();
    if (!json.is_object()) return bad_node(id, "node", "it is no object");
    MxnetNode node;
    node.np_shape = symbol_.np_shape;
    for (const auto& [key, text] : {std::pair{"op", &node.op}, std::pair{"name", &node.name}}) {
      const auto found = json.find(key);
      if (found == json.end() || !found->is_string()) return bad_node(id, key, "there is no such text");
      *text = found->get<std::string>();
    }
    symbol_.nodes.push_back(std::move(node));
    symbol_.nodes[id].offset = node_offset(id);
    symbol_.nodes[id].has_param = json.contains("param");
    for (const char* key : {"attrs", "attr", "param"}) SHOAL_RETURN_IF_ERROR(read_attributes(json, key, id));
    SHOAL_RETURN_IF_ERROR(read_inputs(json, id));
    return read_subgraphs(json, id);
  }

  Status read_subgraphs(const Json& json, std::size_t id) {
    const auto graphs = json.find("subgraphs");
    if (graphs == json.end()) return {};
    if (!graphs->is_array()) return bad_node(id, "subgraphs", "it is no list");
    for (const Json& graph : *graphs) {
      SHOAL_ASSIGN_OR_RETURN(MxnetSymbol subgraph, SymbolReader(*this, id, graph).read());
      symbol_.nodes[id].subgraphs.push_back(std::move(subgraph));
    }
    return {};
  }

  /// If several of the keys have the attribute, the first one counts.
  Status read_attributes(const Json& json, const char* key, std::size_t id) {
    const auto attributes = json.find(key);
    if (attributes == json.end()) return {};
    if (!attributes->is_object()) return bad_node(id, key, "it is no object");
    for (const auto& [name, value] : attributes->items()) {
      if (!value.is_string())
        return bad_node(id, name, "the attribute of {} is {}, not text", symbol_.nodes[id].op, quoted(value));
      symbol_.nodes[id].attributes.emplace(name, value.get<std::string>());
    }
    return {};
  }

  Status read_inputs(const Json& json, std::size_t id) {
    const auto inputs = json.find("inputs");
    if (inputs == json.end() || !inputs->is_array()) return bad_node(id, "inputs", "there is no such list");
    MxnetNode& node = symbol_.nodes[id];
    for (const Json& input : *inputs) {
      const auto entry = read_entry(input);
      if (!entry) return bad_node(id, "inputs", "one is {}, not [node, output]", quoted(input));
      node.inputs.push_back(*entry);
    }
    if (node.is_variable() && !node.inputs.empty()) return bad_node(id, "inputs", "a variable has none");
    const auto control = json.find("control_deps");  // these order the runs of nodes and do not change values
    if (control == json.end()) return {};
    if (!control->is_array()) return bad_node(id, "control_deps", "it is no list");
    for (const Json& dependency : *control) {
      const auto other = read_index(dependency);
      if (!other || *other >= graph_["nodes"].size()) return bad_node(id, "control_deps", "{} is no node", quoted(dependency));
    }
    return {};
  }

  static std::optional<std::size_t> read_index(const Json& json) {
    if (!json.is_number_integer()) return std::nullopt;
    const auto value = json.get<std::int64_t>();
    if (value < 0 || value > std::numeric_limits<std::int32_t>::max()) return std::nullopt;
    return static_cast<std::size_t>(value);
  }

  /// [node, output] or [node, output, version]. The version counts writes and is not needed.
  static std::optional<MxnetEntry> read_entry(const Json& json) {
    if (!json.is_array() || json.size() < 2 || json.size() > 3) return std::nullopt;
    const auto node = read_index(json[0]), output = read_index(json[1]);
    if (!node || !output) return std::nullopt;
    return MxnetEntry{*node, *output};
  }

  Status check_references(std::size_t id) const {
    for (const MxnetEntry& input : symbol_.nodes[id].inputs) {
      if (input.node >= symbol_.nodes.size())
        return bad_node(id, "inputs", "it reads node {} of {}", input.node, symbol_.nodes.size());
    }
    return {};
  }

  Status read_heads() {
    const Json& heads = graph_["heads"];
    symbol_.heads_offset = member_offset("heads");
    if (heads.empty()) return bad_member("heads", "there are none: the graph computes nothing");
    if (heads.size() > kMostHeads) return bad_member("heads", "there are {}; at most {} are supported", heads.size(), kMostHeads);
    for (const Json& json : heads) {
      const auto head = read_entry(json);
      if (!head) return bad_member("heads", "one is {}, not [node, output]", quoted(json));
      if (head->node >= symbol_.nodes.size())
        return bad_member("heads", "one is node {} of {}", head->node, symbol_.nodes.size());
      symbol_.heads.push_back(*head);
    }
    return {};
  }

  Status check_arg_nodes() const {
    for (const Json& json : graph_["arg_nodes"]) {
      const auto id = read_index(json);
      if (!id || *id >= symbol_.nodes.size())
        return bad_member("arg_nodes", "it holds {}; there are {} nodes", quoted(json), symbol_.nodes.size());
      const MxnetNode& node = symbol_.nodes[*id];
      if (!node.is_variable()) return bad_member("arg_nodes", "it names {} '{}', which is an operator", node.op, node.name);
    }
    return {};
  }

  /// Repeatedly removes nodes whose inputs are all removed. Nodes that remain are on a cycle or behind one.
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
      if (unread[id] > 0) return bad_node(id, "inputs", "nodes form a cycle; this one is on it or behind it");
    }
    return {};
  }

  const ForeignFile& file_;
  const PlacedJson* const places_ = nullptr;  ///< null: of a subgraph
  const Json& graph_;
  const std::uint64_t offset_ = 0;  ///< of a subgraph: that of the node around it
  std::string where_;               ///< for messages
  MxnetSymbol symbol_;
};

}  // namespace

Result<MxnetSymbol> read_mxnet_symbol(const std::filesystem::path& path, const ImportLimits& limits) {
  SHOAL_ASSIGN_OR_RETURN(const ForeignFile file, ForeignFile::open(path));
  MemoryBudget budget(limits);
  return parse_mxnet_symbol(file, budget);
}

Result<MxnetSymbol> parse_mxnet_symbol(const ForeignFile& file, MemoryBudget& budget) {
  SHOAL_RETURN_IF_ERROR(budget.take(file, "the graph", file.bytes.size(), kMemoryPerByte));
  SHOAL_ASSIGN_OR_RETURN(const PlacedJson json, parse_placed(file));
  SHOAL_ASSIGN_OR_RETURN(MxnetSymbol symbol, SymbolReader(file, json).read());
  upgrade(symbol);
  return symbol;
}

std::size_t all_inputs(const MxnetNode& node) { return node.inputs.size(); }

std::vector<std::size_t> post_order(const MxnetSymbol& symbol, std::span<const MxnetEntry> heads, MxnetReads reads) {
  std::vector<std::size_t> order;
  std::vector<bool> seen(symbol.nodes.size());
  std::vector<std::pair<std::size_t, std::size_t>>
      path;  // a node and its next input; an explicit stack, because graphs may be deep
  const auto enter = [&](std::size_t id) {
    if (!seen[id]) path.emplace_back(id, 0);
    seen[id] = true;
  };
  for (const MxnetEntry& head : heads) {
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

std::vector<std::size_t> list_variables(const MxnetSymbol& symbol) {
  std::vector<std::size_t> variables = post_order(symbol, symbol.heads, all_inputs);
  std::erase_if(variables, [&](std::size_t id) { return !symbol.nodes[id].is_variable(); });
  return variables;
}

void for_each_node(const MxnetSymbol& symbol, std::span<const std::size_t> nodes, MxnetReads reads,
                   const std::function<void(const MxnetNode&)>& f) {
  for (const std::size_t id : nodes) {
    const MxnetNode& node = symbol.nodes[id];
    f(node);
    for (const MxnetSymbol& graph : node.subgraphs) for_each_node(graph, post_order(graph, graph.heads, reads), reads, f);
  }
}

}  // namespace shoal::worker

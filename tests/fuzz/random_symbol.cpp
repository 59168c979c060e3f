#include "tests/fuzz/random_symbol.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/fuzz/operator_rules.hpp"
#include "worker/import/mxnet/mxnet_lowering.hpp"

namespace shoal::fuzz {
namespace {

using nlohmann::json;
using worker::MxnetOperator;

constexpr std::size_t kMostNodes = 24, kMostTries = 48;

/// What whole networks are made of: half of all nodes.
constexpr const char* kLayers[] = {"Convolution", "BatchNorm", "Activation", "Pooling",   "elemwise_add", "FullyConnected",
                                   "Concat",      "Flatten",   "LeakyReLU",  "transpose", "Reshape",      "SliceChannel"};
/// What reads places out of its data: one node of eight.
constexpr const char* kIndexing[] = {"take",
                                     "batch_take",
                                     "pick",
                                     "gather_nd",
                                     "scatter_nd",
                                     "one_hot",
                                     "Embedding",
                                     "slice_like",
                                     "_contrib_boolean_mask",
                                     "_contrib_index_copy",
                                     "topk",
                                     "sort",
                                     "argsort",
                                     "SequenceMask",
                                     "SequenceLast",
                                     "SequenceReverse",
                                     "ROIPooling",
                                     "_contrib_ROIAlign",
                                     "_contrib_box_nms",
                                     "_contrib_bipartite_matching",
                                     "_contrib_MultiBoxDetection",
                                     "RNN"};
/// What devices fuse into the layer before it.
constexpr const char* kFused[] = {"BatchNorm", "Activation",  "elemwise_add", "LeakyReLU",
                                  "clip",      "_mul_scalar", "elemwise_mul", "relu"};
constexpr const char* kOdd[] = {"2147483647", "-2147483648", "0",    "-1",   "(2147483647, 2147483647)", "None", "()",
                                "(0, 0)",     "1e38",        "1000", "65536"};
constexpr const char* kLarge[] = {"2147483647", "2147483646", "1073741824", "4194306", "65536", "1000", "17"};
constexpr const char* kReals[] = {"1", "0.5", "2", "-1", "0.001", "0", "3", "-0.5", "1e-10", "100"};
constexpr const char* kTypes[] = {"float32", "float64", "float16", "int32", "uint8", "int8", "int64"};

/// A node with bodies. Its inputs are the data and a number of shape (1).
struct ControlFlow {
  json attributes, subgraphs;
  bool number_first = false;
  std::size_t outputs = 1;
};

/// A graph of variables and operators, each of one or two inputs.
struct BodyNode {
  const char *op, *name;
  std::vector<int> inputs = {};
  const char* scalar = nullptr;
};
json body(const std::vector<BodyNode>& nodes, const std::vector<std::size_t>& heads) {
  json graph{{"nodes", json::array()}, {"arg_nodes", json::array()}, {"heads", json::array()}};
  for (const BodyNode& node : nodes) {
    if (node.inputs.empty()) graph["arg_nodes"].push_back(graph["nodes"].size());
    json inputs = json::array();
    for (const int input : node.inputs) inputs.push_back(json::array({input, 0, 0}));
    const json attributes = node.scalar ? json{{"scalar", node.scalar}} : json::object();
    graph["nodes"].push_back({{"op", node.op}, {"name", node.name}, {"attrs", attributes}, {"inputs", inputs}});
  }
  for (const std::size_t head : heads) graph["heads"].push_back(json::array({head, 0, 0}));
  return graph;
}

/// Nothing if the operator has no bodies.
std::optional<ControlFlow> control_flow(std::string_view op) {
  const BodyNode number{"null", "number"}, data{"null", "data"};
  if (op == "_foreach") {  // the number is the state, which is halved for each row
    return ControlFlow{
        {{"num_args", "3"},
         {"num_outputs", "2"},
         {"num_out_data", "1"},
         {"in_data_locs", "(0,)"},
         {"in_state_locs", "(1,)"},
         {"remain_locs", "()"}},
        json::array({body({data, number, {"broadcast_mul", "row", {0, 1}}, {"_mul_scalar", "next", {1}, "0.5"}}, {2, 3})}),
        /*number_first=*/false,
        2};
  }
  if (op == "_while_loop") {  // the number counts to 3
    return ControlFlow{{{"num_args", "4"},
                        {"num_outputs", "2"},
                        {"num_out_data", "1"},
                        {"max_iterations", "4"},
                        {"cond_input_locs", "(0,)"},
                        {"func_input_locs", "(0, 1)"},
                        {"func_var_locs", "(0,)"}},
                       {body({number, {"_lesser_scalar", "goes_on", {0}, "3"}}, {1}),
                        body({number, data, {"broadcast_mul", "row", {1, 0}}, {"_plus_scalar", "next", {0}, "1"}}, {2, 3})},
                       /*number_first=*/true,
                       2};
  }
  if (op == "_cond") {
    return ControlFlow{
        {{"num_args", "5"},
         {"num_outputs", "1"},
         {"cond_input_locs", "(0,)"},
         {"then_input_locs", "(1,)"},
         {"else_input_locs", "(1,)"}},
        {body({number, {"_greater_scalar", "is_positive", {0}, "0"}}, {1}), body({data, {"_plus_scalar", "more", {0}, "1"}}, {1}),
         body({data, {"_mul_scalar", "twice", {0}, "2"}}, {1})},
        /*number_first=*/true,
        1};
  }
  return std::nullopt;
}

class Generator {
 public:
  Generator(ByteSource& bytes, int rank, const SymbolJudge& judge, std::string_view only)
      : bytes_(bytes), judge_(judge), only_(only.empty() ? nullptr : worker::find_mxnet_operator(only)) {
    add_variable("data", rank);
  }

  std::string run() {
    for (std::size_t i = 0; i < kMostTries && results_.size() < kMostNodes && !bytes_.empty(); ++i) try_operator();
    json heads = json::array({entry(results_.back())});
    if (bytes_.one_in(4)) heads.push_back(pick());
    for (const Result& end : loose_ends()) heads.push_back(entry(end));
    return text_with(heads);
  }

 private:
  /// What other nodes may read.
  struct Result {
    std::size_t node = 0, outputs = 1;
    int rank = 0;
  };

  /// Results before the last one that no node reads. They are outputs, or nothing would compute them.
  std::vector<Result> loose_ends() const {
    std::vector<bool> is_read(nodes_.size());
    for (const json& node : nodes_) {
      for (const json& input : node["inputs"]) is_read[input[0].get<std::size_t>()] = true;
    }
    std::vector<Result> ends;
    for (const Result& result : std::span(results_).first(results_.size() - 1)) {
      if (!is_read[result.node]) ends.push_back(result);
    }
    return ends;
  }

  std::string text_with(const json& heads) const {
    return json{{"nodes", nodes_}, {"arg_nodes", arguments_}, {"heads", heads}, {"attrs", {{"mxnet_version", {"int", 10901}}}}}
        .dump();
  }

  void try_operator() {
    const std::size_t nodes = nodes_.size(), arguments = arguments_.size();
    const bool followed_layer = follows_layer_;
    add_operator();
    const json last = json::array({nodes_.size() - 1, 0, 0}), data = json::array({0, 0, 0});
    const auto rank = judge_(text_with(json::array({last, data})));  // a graph that does not read its data is no valid one
    if (rank) {
      results_.back().rank = *rank;
      return;
    }
    nodes_.erase(nodes_.begin() + static_cast<std::ptrdiff_t>(nodes), nodes_.end());
    arguments_.erase(arguments_.begin() + static_cast<std::ptrdiff_t>(arguments), arguments_.end());
    results_.pop_back();
    follows_layer_ = followed_layer;
  }

  json entry(const Result& result) {
    return json::array({result.node, result.outputs == 1 ? 0 : bytes_.below(result.outputs), 0});
  }
  /// A result from before, most often one of the last.
  json pick() {
    const std::size_t reach = std::min<std::size_t>(results_.size(), bytes_.one_in(4) ? 16 : 2);
    const Result& result = results_[results_.size() - 1 - bytes_.below(reach)];
    return entry(result);
  }

  json add_variable(const std::string& name, int rank = 0, json attributes = json::object()) {
    arguments_.push_back(nodes_.size());
    nodes_.push_back({{"op", "null"}, {"name", name}, {"attrs", std::move(attributes)}, {"inputs", json::array()}});
    if (name == "data") results_.push_back({nodes_.size() - 1, 1, rank});
    return json::array({nodes_.size() - 1, 0, 0});
  }
  /// "(2, 3)" or "3 (2, 3)": a type, and a shape.
  json add_shaped_variable(const std::string& name, std::string_view wanted) {
    const std::size_t shape = wanted.find('(');
    json attributes{{"__shape__", wanted.substr(shape)}};
    if (shape > 0) attributes["__dtype__"] = wanted.substr(0, shape - 1);
    return add_variable(name, 0, std::move(attributes));
  }

  /// A node that is no result; its outputs.
  std::vector<json> add_node(const std::string& op, const std::string& name, const json& attributes, const json& sources,
                             std::size_t outputs) {
    nodes_.push_back({{"op", op}, {"name", name}, {"attrs", attributes}, {"inputs", sources}});
    std::vector<json> made;
    for (std::size_t i = 0; i < outputs; ++i) made.push_back(json::array({nodes_.size() - 1, i, 0}));
    return made;
  }
  /// Numbers of 8 bits and their range, made of a variable ("q(2, 3)") or of a result ("q").
  std::vector<json> add_quantized(const std::string& name, std::string_view wanted) {
    const json source = wanted.size() > 1 ? add_shaped_variable(name + "_real", wanted.substr(1)) : pick();
    json attributes{{"out_type", bytes_.one_in(4) ? "uint8" : "int8"}};
    if (bytes_.below(2) == 0) attributes.update({{"min_calib_range", "-2"}, {"max_calib_range", "3"}});
    return add_node("_contrib_quantize_v2", name, attributes, json::array({source}), 3);
  }

  /// What operands_of() says.
  json inputs_of(std::span<const char* const> operands, const std::string& name) {
    json sources = json::array();
    std::vector<json> ranges;
    for (const std::string_view wanted : operands) {
      const std::string own = name + "_" + std::to_string(sources.size());
      if (wanted == "*") {
        sources.push_back(pick());
      } else if (wanted == "w") {
        sources.push_back(add_variable(own));
      } else if (wanted[0] == 'q') {
        const auto made = add_quantized(own, wanted);
        sources.push_back(made[0]);
        ranges.insert(ranges.end(), made.begin() + 1, made.end());
      } else if (wanted[0] == 'i') {
        const auto a = add_quantized(own + "_a", wanted), b = add_quantized(own + "_b", wanted);
        const auto sum =
            add_node("_contrib_quantized_elemwise_add", own, json::object(), {a[0], b[0], a[1], a[2], b[1], b[2]}, 3);
        sources.push_back(sum[0]);
        ranges.insert(ranges.end(), sum.begin() + 1, sum.end());
      } else {
        sources.push_back(add_shaped_variable(own, wanted));
      }
    }
    for (json& range : ranges) sources.push_back(std::move(range));
    return sources;
  }

  const MxnetOperator& choose(bool is_fused) {
    static const std::vector<const MxnetOperator*> all = worker::all_mxnet_operators();
    if (only_ != nullptr) return *only_;
    const bool is_layer = bytes_.below(2) == 0, is_indexing = bytes_.one_in(8);
    return is_fused      ? *worker::find_mxnet_operator(kFused[bytes_.below(std::size(kFused))])
           : is_indexing ? *worker::find_mxnet_operator(kIndexing[bytes_.below(std::size(kIndexing))])
           : is_layer    ? *worker::find_mxnet_operator(kLayers[bytes_.below(std::size(kLayers))])
                         : *all[bytes_.below(all.size())];
  }

  json attributes_of(const std::string& meaning) {
    json attributes = json::object();
    for (const Rule& rule : rules_of(meaning)) {
      if (rule.is_needed || bytes_.below(2) == 0) attributes[rule.key] = text_of(rule);
    }
    if (meaning.ends_with("_scalar")) attributes["scalar"] = text_of({"scalar", Kind::kReal});
    return attributes;
  }

  /// How many inputs the operator gets; says so in its attributes.
  std::size_t input_count(const MxnetOperator& op, const std::string& meaning, json& attributes) {
    const auto inputs = static_cast<std::size_t>(op.min_inputs);
    if (meaning == "Convolution" || meaning == "FullyConnected") {
      const std::size_t biases = bytes_.below(2);
      attributes["no_bias"] = biases == 0 ? "True" : "False";
      // Depthwise, if the data has as many channels or a multiple. The device cpu runs batches of these image by image.
      if (meaning == "Convolution" && bytes_.one_in(4))
        attributes["num_filter"] = attributes["num_group"] = std::to_string(1 + bytes_.below(8));
      return inputs + biases;
    }
    if (meaning == "LeakyReLU" && bytes_.one_in(4)) {
      attributes["act_type"] = "prelu";
      return 2;
    }
    const bool has_lengths = attributes.value("use_sequence_length", "False") == "True";
    if (meaning == "RNN") return 3 + (attributes["mode"] == "lstm") + has_lengths;
    if (has_lengths) return 2;
    return op.max_inputs < 0 ? inputs + bytes_.below(4) : inputs;
  }

  /// Two products around a softmax, which devices compute as one, unless something moves the scores or the weights.
  void add_attention(const std::string& name) {
    static const std::vector<std::pair<const char*, json>> kMoves = {
        {"_copy", json::object()},
        {"transpose", {{"axes", "(0, 2, 1)"}}},
        {"SwapAxis", {{"dim1", "1"}, {"dim2", "2"}}},
        {"reverse", {{"axis", "(1,)"}}},
        {"slice", {{"begin", "(None, None, None)"}, {"end", "(None, None, None)"}, {"step", "(1, 1, -1)"}}}};
    const auto moved = [&](json what, const std::string& as) {
      if (bytes_.below(2) == 0) return what;
      const auto& [op, attributes] = kMoves[bytes_.below(kMoves.size())];
      return add_node(op, as, attributes, json::array({std::move(what)}), 1)[0];
    };
    const json data = add_node("Reshape", name + "_rows", {{"shape", "(0, 0, -1)"}}, json::array({pick()}), 1)[0];
    json x = add_node("batch_dot", name + "_scores", {{"transpose_b", "True"}}, json::array({data, data}), 1)[0];
    x = moved(std::move(x), name + "_moved");
    x = add_node("softmax", name + "_weights", {{"axis", "-1"}}, json::array({std::move(x)}), 1)[0];
    x = moved(std::move(x), name + "_turned");
    add_node("batch_dot", name, json::object(), json::array({std::move(x), data}), 1);
    results_.push_back({nodes_.size() - 1, 1, rank_});
  }

  void add_operator() {
    if (only_ == nullptr && bytes_.one_in(16)) {
      rank_ = results_.back().rank;
      follows_layer_ = false;
      return add_attention("n" + std::to_string(nodes_.size()));
    }
    const bool is_fused = follows_layer_ && bytes_.below(2) == 0;
    const MxnetOperator& op = choose(is_fused);
    const std::string& meaning = op.alias_of.empty() ? op.name : op.alias_of;
    const std::string name = "n" + std::to_string(nodes_.size());
    rank_ = results_.back().rank;
    if (const auto flow = control_flow(meaning)) {
      const json number = add_shaped_variable(name + "_number", "(1,)"), data = pick();
      add_node(op.name, name, flow->attributes, flow->number_first ? json{number, data} : json{data, number}, 0);
      nodes_.back()["subgraphs"] = flow->subgraphs;
      results_.push_back({nodes_.size() - 1, flow->outputs, rank_});
      return;
    }
    json attributes = attributes_of(meaning);
    const auto operands = operands_of(meaning);
    const std::size_t inputs = operands.empty() || bytes_.one_in(4) ? input_count(op, meaning, attributes) : 0;
    json sources = json::array();
    if (inputs > 0) {
      sources.push_back(is_fused ? entry(results_.back()) : pick());
    } else {
      sources = inputs_of(operands, name);
      if (meaning.starts_with("Sequence")) attributes["use_sequence_length"] = "True";
    }
    for (std::size_t i = 1; i < inputs; ++i) {
      const bool is_parameter = i <= op.parameters.size() || bytes_.one_in(8);
      sources.push_back(is_parameter && !bytes_.one_in(16) ? add_variable(name + "_" + std::to_string(i)) : pick());
    }
    nodes_.push_back({{"op", op.name}, {"name", name}, {"attrs", attributes}, {"inputs", sources}});
    std::size_t outputs = 1;
    if (meaning == "SliceChannel") outputs = attributes["num_outputs"] == "2" ? 2 : 1;
    if (meaning == "BatchNorm" && bytes_.one_in(8)) outputs = 3;
    if (meaning == "amp_multicast") outputs = sources.size();
    if (meaning == "_split_v2" && attributes["indices"] == "(0, 1)") outputs = 2;
    results_.push_back({nodes_.size() - 1, outputs, rank_});
    follows_layer_ = is_fused || meaning == "Convolution" || meaning == "FullyConnected" || meaning == "BatchNorm";
  }

  std::string text_of(const Rule& rule) {
    if (bytes_.one_in(64)) return kOdd[bytes_.below(std::size(kOdd))];
    switch (rule.kind) {
      case Kind::kSpatial:
        return window(1);
      case Kind::kPadding:
        return rule.is_needed ? std::to_string(bytes_.below(3)) : window(0);
      case Kind::kSize:
        return std::to_string(1 + bytes_.below(bytes_.one_in(4) ? 32 : 4));
      case Kind::kGroup:
        return std::to_string(1 + bytes_.below(2));
      case Kind::kAxis:
        return axis();
      case Kind::kAxes:
        return bytes_.one_in(4) ? "None" : tuple(1 + bytes_.below(2), [&] { return axis(); });
      case Kind::kPermutation:
        return permutation();
      case Kind::kShape:
        return tuple(1 + bytes_.below(4), [&] {
          static constexpr const char* kCodes[] = {"0", "-1", "1", "0", "-2", "-3", "2", "4"};
          return std::string(kCodes[bytes_.below(std::size(kCodes))]);
        });
      case Kind::kPositions:
        return tuple(axes(), [&] {
          static constexpr const char* kPlaces[] = {"None", "0", "1", "-1", "2", "None", "4", "-2"};
          return std::string(kPlaces[bytes_.below(std::size(kPlaces))]);
        });
      case Kind::kSteps:
        return tuple(axes(), [&] {
          static constexpr const char* kSteps[] = {"1", "None", "2", "-1", "3", "2147483647"};
          return std::string(kSteps[bytes_.below(std::size(kSteps))]);
        });
      case Kind::kWidths: {
        std::size_t at = 0;
        return tuple(2 * axes(), [&] { return std::to_string(at++ < 4 ? 0 : bytes_.below(4)); });
      }
      case Kind::kReal:
        return kReals[bytes_.below(std::size(kReals))];
      case Kind::kFlag:
        return bytes_.below(2) == 0 ? "True" : "False";
      case Kind::kType:
        return kTypes[bytes_.below(std::size(kTypes))];
      case Kind::kWord:
        return rule.words[bytes_.below(rule.words.size())];
    }
    return "";
  }

  std::size_t axes() const { return static_cast<std::size_t>(std::max(rank_, 1)); }
  std::size_t space() const { return static_cast<std::size_t>(std::clamp(rank_ - 2, 1, 3)); }
  std::string axis() { return std::to_string(static_cast<int>(bytes_.below(2 * axes())) - static_cast<int>(axes())); }

  /// One size per axis of space. Products of large ones overflow where a rule forgot to bound them.
  std::string window(std::size_t least) {
    const char* const large = bytes_.one_in(32) ? kLarge[bytes_.below(std::size(kLarge))] : nullptr;
    return tuple(space(), [&] { return large != nullptr ? std::string(large) : extent(least); });
  }
  /// One number of a window, most often small.
  std::string extent(std::size_t least) {
    return bytes_.one_in(32) ? kLarge[bytes_.below(std::size(kLarge))] : std::to_string(least + bytes_.below(3));
  }

  std::string permutation() {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < axes(); ++i) {
      order.insert(order.begin() + static_cast<std::ptrdiff_t>(bytes_.below(order.size() + 1)), i);
    }
    std::size_t at = 0;
    return tuple(order.size(), [&] { return std::to_string(order[at++]); });
  }

  template <typename Entry>
  std::string tuple(std::size_t size, Entry next) {
    std::string text = "(";
    for (std::size_t i = 0; i < size; ++i) text.append(i == 0 ? "" : ", ").append(next());
    return text + (size == 1 ? ",)" : ")");
  }

  ByteSource& bytes_;
  const SymbolJudge& judge_;
  const MxnetOperator* only_;  ///< the operator of all nodes; null: any
  json nodes_ = json::array(), arguments_ = json::array();
  std::vector<Result> results_;
  int rank_ = 0;                ///< of what the operator at hand reads
  bool follows_layer_ = false;  ///< a layer has just been added, perhaps with others that may be fused into it
};

}  // namespace

std::string random_symbol(ByteSource& bytes, int rank, const SymbolJudge& judge, std::string_view only) {
  return Generator(bytes, rank, judge, only).run();
}

}  // namespace shoal::fuzz

#include "tests/fuzz/random_symbol.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "worker/import/mxnet/mxnet_lowering.hpp"

namespace shoal::fuzz {
namespace {

using nlohmann::json;
using worker::MxnetOperator;

constexpr std::size_t kMostNodes = 24, kMostTries = 48;

/// How the text of an attribute is made.
enum class Kind {
  kSpatial,      ///< a tuple of sizes, one per axis of space: most often small, sometimes all of them large
  kPadding,      ///< the same from 0 on
  kSize,         ///< a small whole number
  kGroup,        ///< 1 or 2
  kAxis,         ///< an axis, may be negative
  kAxes,         ///< a tuple of axes
  kPermutation,  ///< all axes in some order
  kShape,        ///< reshape's codes
  kPositions,    ///< per axis a position, may be negative or None
  kSteps,        ///< per axis a step, may be negative or None
  kWidths,       ///< two widths per axis; none around the first two
  kReal,
  kFlag,
  kType,
  kWord,
};
struct Rule {
  const char* key;
  Kind kind;
  bool is_needed = false;
  std::vector<const char*> words = {};
};

const std::map<std::string, std::vector<Rule>, std::less<>>& rules() {
  static const std::map<std::string, std::vector<Rule>, std::less<>> all{
      {"Convolution",
       {{"kernel", Kind::kSpatial, true},
        {"num_filter", Kind::kSize, true},
        {"stride", Kind::kSpatial},
        {"dilate", Kind::kSpatial},
        {"pad", Kind::kPadding},
        {"num_group", Kind::kGroup}}},
      {"FullyConnected", {{"num_hidden", Kind::kSize, true}, {"flatten", Kind::kFlag}}},
      {"BatchNorm", {{"eps", Kind::kReal}, {"fix_gamma", Kind::kFlag}, {"axis", Kind::kAxis}}},
      {"_contrib_BatchNormWithReLU", {{"eps", Kind::kReal}, {"fix_gamma", Kind::kFlag}}},
      {"Activation", {{"act_type", Kind::kWord, true, {"relu", "sigmoid", "tanh", "softrelu", "softsign"}}}},
      {"LeakyReLU", {{"act_type", Kind::kWord, false, {"leaky", "elu", "selu", "gelu", "rrelu"}}, {"slope", Kind::kReal}}},
      {"Pooling",
       {{"kernel", Kind::kSpatial, true},
        {"stride", Kind::kSpatial},
        {"pad", Kind::kPadding},
        {"pool_type", Kind::kWord, false, {"max", "avg", "sum", "lp"}},
        {"p_value", Kind::kSize, true},
        {"pooling_convention", Kind::kWord, false, {"valid", "full"}},
        {"global_pool", Kind::kFlag},
        {"count_include_pad", Kind::kFlag},
        {"layout", Kind::kWord, false, {"None", "NCHW", "NHWC", "NWC"}}}},
      {"Pooling_v1",
       {{"kernel", Kind::kSpatial, true},
        {"stride", Kind::kSpatial},
        {"pad", Kind::kPadding},
        {"pool_type", Kind::kWord, false, {"max", "avg", "sum"}},
        {"pooling_convention", Kind::kWord, false, {"valid", "full"}}}},
      {"LRN", {{"nsize", Kind::kSize, true}, {"alpha", Kind::kReal}, {"beta", Kind::kReal}, {"knorm", Kind::kReal}}},
      {"L2Normalization", {{"mode", Kind::kWord, false, {"instance", "channel", "spatial"}}, {"eps", Kind::kReal}}},
      {"_contrib_AdaptiveAvgPooling2D", {{"output_size", Kind::kSpatial}}},
      {"SoftmaxActivation", {{"mode", Kind::kWord, false, {"instance", "channel"}}}},
      {"softmax", {{"axis", Kind::kAxis}, {"temperature", Kind::kReal}, {"dtype", Kind::kType}}},
      {"log_softmax", {{"axis", Kind::kAxis}, {"temperature", Kind::kReal}}},
      {"softmin", {{"axis", Kind::kAxis}}},
      {"SoftmaxOutput", {{"multi_output", Kind::kFlag}, {"preserve_shape", Kind::kFlag}}},
      {"Concat", {{"dim", Kind::kAxis}}},
      {"Reshape", {{"shape", Kind::kShape, true}, {"reverse", Kind::kFlag}}},
      {"transpose", {{"axes", Kind::kPermutation}}},
      {"SwapAxis", {{"dim1", Kind::kAxis}, {"dim2", Kind::kAxis}}},
      {"SliceChannel", {{"num_outputs", Kind::kGroup, true}, {"axis", Kind::kAxis}, {"squeeze_axis", Kind::kFlag}}},
      {"slice", {{"begin", Kind::kPositions, true}, {"end", Kind::kPositions, true}, {"step", Kind::kSteps}}},
      {"slice_axis",
       {{"axis", Kind::kAxis, true}, {"begin", Kind::kPadding, true}, {"end", Kind::kWord, true, {"None", "1", "2", "-1"}}}},
      {"Pad",
       {{"mode", Kind::kWord, true, {"constant", "edge", "reflect"}},
        {"pad_width", Kind::kWidths, true},
        {"constant_value", Kind::kReal}}},
      {"Cast", {{"dtype", Kind::kType, true}}},
      {"amp_cast", {{"dtype", Kind::kType, true}}},
      {"clip", {{"a_min", Kind::kReal, true}, {"a_max", Kind::kReal, true}}},
      {"hard_sigmoid", {{"alpha", Kind::kReal}, {"beta", Kind::kReal}}},
      {"LayerNorm", {{"axis", Kind::kAxis}, {"eps", Kind::kReal}, {"output_mean_var", Kind::kFlag}}},
      {"GroupNorm", {{"num_groups", Kind::kGroup}, {"eps", Kind::kReal}, {"output_mean_var", Kind::kFlag}}},
      {"InstanceNorm", {{"eps", Kind::kReal}}},
      {"batch_dot", {{"transpose_a", Kind::kFlag}, {"transpose_b", Kind::kFlag}}},
      {"dot", {{"transpose_a", Kind::kFlag}, {"transpose_b", Kind::kFlag}}},
      {"_linalg_gemm2", {{"transpose_a", Kind::kFlag}, {"transpose_b", Kind::kFlag}, {"alpha", Kind::kReal}}},
      {"_linalg_syrk", {{"transpose", Kind::kFlag}, {"alpha", Kind::kReal}}},
      {"_linalg_extractdiag", {{"offset", Kind::kGroup}}},
      {"_linalg_makediag", {{"offset", Kind::kGroup}}},
      {"_linalg_extracttrian", {{"offset", Kind::kGroup}, {"lower", Kind::kFlag}}},
      {"_contrib_interleaved_matmul_selfatt_qk", {{"heads", Kind::kGroup, true}}},
      {"_contrib_interleaved_matmul_selfatt_valatt", {{"heads", Kind::kGroup, true}}},
      {"_contrib_interleaved_matmul_encdec_qk", {{"heads", Kind::kGroup, true}}},
      {"_contrib_interleaved_matmul_encdec_valatt", {{"heads", Kind::kGroup, true}}},
      {"norm", {{"ord", Kind::kGroup}, {"axis", Kind::kAxes}, {"keepdims", Kind::kFlag}}},
      {"moments", {{"axes", Kind::kAxes, true}, {"keepdims", Kind::kFlag}}},
      {"_np_cumsum", {{"axis", Kind::kAxis}, {"dtype", Kind::kType}}},
      {"Embedding", {{"input_dim", Kind::kSize, true}, {"output_dim", Kind::kSize, true}}},
      {"take", {{"axis", Kind::kAxis}, {"mode", Kind::kWord, false, {"clip", "wrap"}}}},
      {"pick", {{"axis", Kind::kAxis}, {"keepdims", Kind::kFlag}, {"mode", Kind::kWord, false, {"clip", "wrap"}}}},
      {"one_hot", {{"depth", Kind::kSize, true}, {"on_value", Kind::kReal}, {"off_value", Kind::kReal}, {"dtype", Kind::kType}}},
      {"scatter_nd", {{"shape", Kind::kShape, true}}},
      {"slice_like", {{"axes", Kind::kAxes}}},
      {"_contrib_boolean_mask", {{"axis", Kind::kWord, false, {"0"}}}},
      {"_contrib_index_copy", {}},
      {"_ravel_multi_index", {{"shape", Kind::kSpatial, true}}},
      {"_unravel_index", {{"shape", Kind::kSpatial, true}}},
      {"topk",
       {{"axis", Kind::kAxis},
        {"k", Kind::kSize},
        {"ret_typ", Kind::kWord, false, {"value", "indices", "mask", "both"}},
        {"is_ascend", Kind::kFlag},
        {"dtype", Kind::kType}}},
      {"sort", {{"axis", Kind::kAxis}, {"is_ascend", Kind::kFlag}}},
      {"argsort", {{"axis", Kind::kAxis}, {"is_ascend", Kind::kFlag}, {"dtype", Kind::kType}}},
      {"argmax", {{"axis", Kind::kAxis}, {"keepdims", Kind::kFlag}}},
      {"argmin", {{"axis", Kind::kAxis}, {"keepdims", Kind::kFlag}}},
      {"SequenceMask", {{"use_sequence_length", Kind::kFlag}, {"axis", Kind::kGroup}, {"value", Kind::kReal}}},
      {"SequenceLast", {{"use_sequence_length", Kind::kFlag}, {"axis", Kind::kGroup}}},
      {"SequenceReverse", {{"use_sequence_length", Kind::kFlag}}},
      {"reverse", {{"axis", Kind::kAxis, true}}},
      {"repeat", {{"repeats", Kind::kGroup, true}, {"axis", Kind::kAxis}}},
      {"tile", {{"reps", Kind::kSpatial, true}}},
      {"stack", {{"axis", Kind::kAxis}}},
      {"expand_dims", {{"axis", Kind::kAxis, true}}},
      {"squeeze", {{"axis", Kind::kAxes}}},
      {"depth_to_space", {{"block_size", Kind::kGroup, true}}},
      {"space_to_depth", {{"block_size", Kind::kGroup, true}}},
      {"diag", {{"k", Kind::kAxis}}},
      {"broadcast_axis", {{"axis", Kind::kAxis, true}, {"size", Kind::kSize, true}}},
      {"Crop", {{"h_w", Kind::kSpatial, true}, {"num_args", Kind::kWord, true, {"1"}}, {"center_crop", Kind::kFlag}}},
      {"UpSampling", {{"scale", Kind::kGroup, true}, {"sample_type", Kind::kWord, true, {"nearest"}}}},
      {"_contrib_BilinearResize2D", {{"height", Kind::kSize, true}, {"width", Kind::kSize, true}}},
      {"Deconvolution",
       {{"kernel", Kind::kSpatial, true},
        {"num_filter", Kind::kSize, true},
        {"stride", Kind::kSpatial},
        {"pad", Kind::kPadding},
        {"num_group", Kind::kGroup}}},
      {"ROIPooling", {{"pooled_size", Kind::kSpatial, true}, {"spatial_scale", Kind::kWord, true, {"1", "0.5", "0.0625"}}}},
      {"_contrib_ROIAlign",
       {{"pooled_size", Kind::kSpatial, true},
        {"spatial_scale", Kind::kWord, true, {"1", "0.5", "0.0625"}},
        {"sample_ratio", Kind::kGroup},
        {"position_sensitive", Kind::kFlag}}},
      {"_contrib_box_nms",
       {{"overlap_thresh", Kind::kReal},
        {"valid_thresh", Kind::kReal},
        {"topk", Kind::kAxis},
        {"coord_start", Kind::kGroup},
        {"score_index", Kind::kGroup},
        {"id_index", Kind::kAxis},
        {"force_suppress", Kind::kFlag}}},
      {"_contrib_bipartite_matching", {{"threshold", Kind::kReal, true}, {"topk", Kind::kAxis}, {"is_ascend", Kind::kFlag}}},
      {"_contrib_MultiBoxPrior", {{"clip", Kind::kFlag}, {"sizes", Kind::kWord, false, {"(0.5, 0.25)", "(1,)"}}}},
      {"_contrib_MultiBoxDetection", {{"nms_topk", Kind::kAxis}, {"threshold", Kind::kReal}, {"background_id", Kind::kAxis}}},
      {"RNN",
       {{"state_size", Kind::kSize, true},
        {"num_layers", Kind::kGroup, true},
        {"mode", Kind::kWord, true, {"lstm", "gru", "rnn_relu", "rnn_tanh"}},
        {"bidirectional", Kind::kFlag},
        {"state_outputs", Kind::kFlag},
        {"use_sequence_length", Kind::kFlag}}},
      {"_contrib_quantize_v2",
       {{"min_calib_range", Kind::kWord, true, {"-1", "0", "-3"}}, {"max_calib_range", Kind::kWord, true, {"1", "2.5"}}}},
  };
  return all;
}

bool is_reduction(const std::string& name) {
  static const char* const kNames[] = {"sum", "mean", "prod", "nansum", "nanprod", "max", "min"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

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

class Generator {
 public:
  Generator(ByteSource& bytes, int rank, const SymbolJudge& judge) : bytes_(bytes), judge_(judge) { add_variable("data", rank); }

  std::string run() {
    for (std::size_t i = 0; i < kMostTries && results_.size() < kMostNodes && !bytes_.empty(); ++i) try_operator();
    json heads = json::array({entry(results_.back())});
    if (bytes_.one_in(4)) heads.push_back(pick());
    return text_with(heads);
  }

 private:
  /// What other nodes may read.
  struct Result {
    std::size_t node = 0, outputs = 1;
    int rank = 0;
  };

  std::string text_with(const json& heads) const {
    return json{{"nodes", nodes_}, {"arg_nodes", arguments_}, {"heads", heads}, {"attrs", {{"mxnet_version", {"int", 10901}}}}}
        .dump();
  }

  void try_operator() {
    const std::size_t nodes = nodes_.size(), arguments = arguments_.size();
    const bool followed_layer = follows_layer_;
    add_operator();
    const auto rank = judge_(text_with(json::array({json::array({nodes_.size() - 1, 0, 0})})));
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

  json add_variable(const std::string& name, int rank) {
    arguments_.push_back(nodes_.size());
    nodes_.push_back({{"op", "null"}, {"name", name}, {"inputs", json::array()}});
    if (name == "data") results_.push_back({nodes_.size() - 1, 1, rank});
    return json::array({nodes_.size() - 1, 0, 0});
  }

  void add_operator() {
    static const std::vector<const MxnetOperator*> all = worker::all_mxnet_operators();
    const bool is_layer = bytes_.below(2) == 0, is_indexing = bytes_.one_in(8);
    const bool is_fused = follows_layer_ && bytes_.below(2) == 0;
    const MxnetOperator& op = is_fused      ? *worker::find_mxnet_operator(kFused[bytes_.below(std::size(kFused))])
                              : is_indexing ? *worker::find_mxnet_operator(kIndexing[bytes_.below(std::size(kIndexing))])
                              : is_layer    ? *worker::find_mxnet_operator(kLayers[bytes_.below(std::size(kLayers))])
                                            : *all[bytes_.below(all.size())];
    const std::string& meaning = op.alias_of.empty() ? op.name : op.alias_of;
    const std::string name = "n" + std::to_string(nodes_.size());
    rank_ = results_.back().rank;
    json attributes = json::object();
    if (const auto found = rules().find(meaning); found != rules().end()) {
      for (const Rule& rule : found->second) {
        if (rule.is_needed || bytes_.below(2) == 0) attributes[rule.key] = text_of(rule);
      }
    } else if (is_reduction(meaning)) {
      attributes = {{"axis", text_of({"axis", Kind::kAxes})}, {"keepdims", bytes_.one_in(2) ? "True" : "False"}};
    } else if (meaning.ends_with("_scalar") || meaning == "smooth_l1") {
      attributes = {{"scalar", text_of({"scalar", Kind::kReal})}};
    }
    std::size_t inputs = static_cast<std::size_t>(op.min_inputs);
    if (meaning == "Convolution" || meaning == "FullyConnected") {
      inputs += bytes_.below(2);
      attributes["no_bias"] = inputs == 2 ? "True" : "False";
      // Depthwise, if the data has as many channels or a multiple. The device cpu runs batches of these image by image.
      if (meaning == "Convolution" && bytes_.one_in(4))
        attributes["num_filter"] = attributes["num_group"] = std::to_string(1 + bytes_.below(8));
    } else if (meaning == "LeakyReLU" && bytes_.one_in(4)) {
      attributes["act_type"] = "prelu";
      inputs = 2;
    } else if (attributes.value("use_sequence_length", "False") == "True" && meaning != "RNN") {
      inputs = 2;
    } else if (meaning == "RNN") {
      inputs = 3 + (attributes["mode"] == "lstm") + (attributes.value("use_sequence_length", "False") == "True");
    } else if (op.max_inputs < 0) {
      inputs += bytes_.below(4);
    }
    json sources = json::array({is_fused ? entry(results_.back()) : pick()});
    for (std::size_t i = 1; i < inputs; ++i) {
      const bool is_parameter = i <= op.parameters.size() || bytes_.one_in(8);
      sources.push_back(is_parameter && !bytes_.one_in(16) ? add_variable(name + "_" + std::to_string(i), 0) : pick());
    }
    nodes_.push_back({{"op", op.name}, {"name", name}, {"attrs", attributes}, {"inputs", sources}});
    std::size_t outputs = 1;
    if (meaning == "SliceChannel") outputs = attributes["num_outputs"] == "2" ? 2 : 1;
    if (meaning == "BatchNorm" && bytes_.one_in(8)) outputs = 3;
    if (meaning == "amp_multicast") outputs = inputs;
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
  json nodes_ = json::array(), arguments_ = json::array();
  std::vector<Result> results_;
  int rank_ = 0;                ///< of what the operator at hand reads
  bool follows_layer_ = false;  ///< a layer has just been added, perhaps with others that may be fused into it
};

}  // namespace

std::string random_symbol(ByteSource& bytes, int rank, const SymbolJudge& judge) { return Generator(bytes, rank, judge).run(); }

}  // namespace shoal::fuzz

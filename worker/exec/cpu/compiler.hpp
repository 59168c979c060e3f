// Compiler: turns a graph of known shapes into a Plan of oneDNN primitives, with kernels of Shoal where oneDNN declines.
#pragma once

#include <climits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "worker/exec/backend.hpp"
#include "worker/exec/choices.hpp"
#include "worker/exec/cpu/onednn.hpp"
#include "worker/exec/cpu/onednn_step.hpp"
#include "worker/exec/cpu/options.hpp"
#include "worker/exec/graph_plan.hpp"
#include "worker/exec/plan.hpp"
#include "worker/exec/weight_store.hpp"
#include "worker/graph/graph.hpp"
#include "worker/graph/types.hpp"
#include "worker/passes/constant_chain.hpp"
#include "worker/passes/element_functions.hpp"
#include "worker/passes/patterns.hpp"

namespace shoal::worker::cpu {

/// The layouts of regions, as in Choices.
inline constexpr const char *kBlocked = "blocked", *kChannelsLast = "channels_last";
/// How many implementations of one algorithm are measured: later ones in the library's list are for older machines.
inline constexpr int kCandidates = 2;

/// oneDNN's element-wise algorithm with the same alpha and beta; undef for a division, for which it has no exact one.
dnnl::algorithm eltwise_algorithm(ElementFunction::Kind kind);

/// In which plans with these choices are computed: float32 if nothing was chosen, or if oneDNN has no fast bf16 here.
Precision precision_of(const Choices& choices, const Options& options);
/// With a layout, if none was chosen: blocked. But AMX computes bf16 in channels last only; the convolutions of VGG-16 in blocked
/// layouts take nine times as long there.
Choices with_layout(Choices choices, const Options& options);

struct BatchSplit;
/// Part of a value: from `begin`, every `step`-th element of each axis (movement.cpp).
struct Box;

/// Lowers the nodes in order. A method per family makes the steps of a node, and may absorb nodes after it (BatchNorm,
/// activations, residual additions); or it declines. Then a kernel of Shoal runs (folder kernels/), and if there is none, the
/// oracle kernel, both on plain layout.
///
/// A value has one or more *forms*: a buffer and a layout. Blocked layouts are kept through whole regions. If a step needs a form
/// that does not exist yet, a reorder makes it, once. A step writes into its input's buffer if nobody reads that value later.
/// With Precision::kBf16, convolutions and products read data and weights in bf16, and type_of() says in which type every other
/// step computes its result. Whoever needs float32 asks for that form.
/// With `options.fuse` off every node is a step of its own (except views and concatenations), to test the fused forms.
///   Threads  thread-bound
class Compiler {
 public:
  Compiler(const Graph& graph, WeightStore& weights, const Options& options, const Choices& choices);
  /// Once. If it fails or throws, nothing is added to `weights`.
  Result<Plan> compile();

  /// For which types there is something faster than the oracle kernels.
  static std::vector<TypeSupport> type_table();
  /// Is the node to be computed in float32 if it has elements of half types?
  static bool is_widened(const Node& node);

 private:
  struct Form {
    BufferId buffer = kNoBuffer;
    Desc desc;  ///< empty for values of other dtypes, which are plain and unknown to oneDNN
  };
  /// Work of later nodes that a primitive does on its result: element-wise functions, or the addition of `operand`.
  struct PostOp {
    std::vector<NodeId> nodes;  ///< in order; the output of the last one is the result
    Functions functions;
    ValueId operand = -1;
    Desc operand_desc;  ///< the layout in which it is read; empty: it is in the destination
  };
  /// True: the node was lowered. False: declined.
  using Taken = Result<bool>;

  // compiler.cpp
  Status emit_nodes();
  void compile_by_image();
  Status lower_images(const BatchSplit& split);
  bool makes_nothing(const Node& node) const;  ///< every output that is read is empty
  Status emit(const Node& node);
  /// The sizes of the plan and of the WeightStore before a node is lowered.
  struct Mark {
    std::size_t steps, buffers, tunables, privates, weights;
  };
  Mark mark();
  void roll_back(const Mark& before);  ///< undoes everything since `before`, the last mark()
  /// One way to lower the nodes of an operator.
  struct Lowering {
    const Operator* op;
    const char* by;  ///< for people: who computes it
    TypeSet types;   ///< of all inputs and outputs
    Taken (Compiler::*lower)(const Node& node);
    TypeSet widened = Types<>();  ///< types for which widen_halves() puts casts around the node
  };
  static std::span<const Lowering> lowerings();
  Taken take(const Node& node, Taken (Compiler::*lower)(const Node& node));
  Taken by_kernel(const Node& node);
  NodeKernel dynamic_kernel(const Node& node) const;
  BufferId overwritten_by(ValueId to, const Node& node, std::span<const BufferId> inputs) const;
  Status emit_oracle(const Node& node);

  // values.cpp: the readers of values, forms, in-place
  void find_families();
  const Node& node(NodeId id) const { return graph_.nodes[static_cast<std::size_t>(id)]; }
  const Value& value(ValueId id) const { return graph_.value(id); }
  ValueId root_of(ValueId id) const { return roots_[static_cast<std::size_t>(id)]; }
  std::vector<Form>& forms(ValueId id) { return forms_[static_cast<std::size_t>(id)]; }
  bool is_float(ValueId id) const;
  /// The type in which the value is stored between steps.
  Type type_of(ValueId id) const { return bf16_values_[static_cast<std::size_t>(id)] ? Type::bf16 : Type::f32; }
  /// The types that a convolution or product tries for data and weights, the best first.
  std::span<const Type> types_of_products() const;
  bool is_constant(ValueId id) const { return value(id).constant.has_value(); }
  bool is_ready(ValueId id) { return is_constant(id) || !forms(id).empty(); }
  bool is_read(ValueId id) const { return readers_.is_read(id); }
  bool is_empty(ValueId id) const { return value(id).shape.element_count() == 0; }
  Status pack_for_other_shapes(const Node& node);
  bool is_dynamic(const Node& node) const;                ///< an input or output has a size that depends on data
  bool has_types(const Node& node, TypeSet types) const;  ///< every input and output has one of them
  bool suits_onednn(const Node& node) const;  ///< every input and output is float32 and not empty: oneDNN can describe it
  NodeId sole_reader(ValueId id) const;       ///< the only node that reads `id`; none if there are more, or if it is an output
  void absorb(NodeId id);
  bool is_dead_after_this(ValueId id) const;
  bool may_overwrite(ValueId id, BufferId buffer) const;
  bool share_memory(BufferId a, BufferId b) const;  ///< they are the same buffer, or parts of the same buffer
  /// The form in which it was made; if that is a range of channels of a concatenation (concat.cpp), a copy without gaps.
  Result<Form> first_form(ValueId id);
  Result<Form> first_form(ValueId id, Type type);  ///< likewise, with elements of that type
  Result<Form> plain_form(ValueId id, Type type = Type::f32);
  Result<Form> form_as(ValueId id, const Desc& desc);
  Form new_form(const Desc& desc);
  /// Places a buffer in a range of another one: by moving it there if that is allowed, else by a copy.
  void put_into(BufferId whole, std::size_t offset_bytes, const Form& part, const std::string& name);
  void add_form(ValueId id, Form form);
  Form reorder(const std::string& name, const Form& src, const Desc& desc);
  void reorder_into(const std::string& name, const Form& src, const Form& dst);
  void add_step(const std::string& name, const dnnl::primitive& primitive, const Desc& scratchpad,
                std::vector<Argument> arguments);

  // weights.cpp
  Result<Form> weights_form(const ConstantChain& chain, const Desc& wanted);
  /// The layout of an entry of the weights. Errors: kFailedPrecondition: it cannot be the layout of these bytes.
  Result<Desc> packed_desc(int index, const Desc& plain) const;
  struct Packed {
    int index;
    Desc desc;
  };
  /// The entries of the key that were packed for the same dimensions: another node may read the same weights in groups.
  Result<std::vector<Packed>> packed_forms(const std::string& key, const Desc& plain) const;
  Result<std::vector<Desc>> packed_descs(const std::string& key, const Desc& plain, Type type) const;  ///< those of that type

  // fusion.cpp
  std::vector<PostOp> find_post_ops(ValueId from, bool with_addition);
  static bool loses_nan(const PostOp& operation);               ///< does oneDNN turn NaN into a number?
  std::optional<PostOp> find_function(ValueId from) const;      ///< element-wise functions of the nodes that read a value
  std::optional<PostOp> find_gated(ValueId from) const;         ///< x * gate(x): the nodes of the gate and the product
  static bool extend(std::vector<PostOp>& chain, PostOp next);  ///< false: oneDNN would compute it wrongly
  static bool clashes(std::span<const PostOp> chain);
  static dnnl::primitive_attr attributes_for(std::span<const PostOp> post_ops);
  ValueId result_of(ValueId from, std::span<const PostOp> post_ops) const;
  ValueId absorb_post_ops(ValueId from, std::span<const PostOp> post_ops);
  const Node* foldable_norm() const;  ///< the BatchNorm that is folded into the current node; null: none

  // one file per family
  Taken convolution(const Node& node);
  Taken deconvolution(const Node& node);
  Taken fully_connected(const Node& node);
  Taken computed_weights(const Node& node);
  Taken mat_mul(const Node& node);
  Taken dot(const Node& node);
  Taken attention_scores(const Node& node);
  Taken attention_values(const Node& node);
  /// Those that run as one step.
  static std::map<NodeId, Attention> attentions_of(const Graph& graph, const Readers& readers, const Options& options);
  Status attention(const Node& last, const Attention& found);
  void absorb_attentions();
  void leave_attentions_across(NodeId cut);
  Taken rnn(const Node& node);
  Taken rnn_without_steps(const Node& node);
  Taken batch_norm(const Node& node);
  Taken pooling(const Node& node);
  Taken spatial_mean(const Node& node);
  Taken lrn(const Node& node);
  Taken concat(const Node& node);
  Taken binary(const Node& node);
  Taken pair(const Node& node, dnnl::algorithm algorithm);
  Taken add_n(const Node& node);
  Taken eltwise(const Node& node);
  Taken leaky(const Node& node);
  Taken prelu(const Node& node);
  Taken view(const Node& node);
  Taken l2_normalization(const Node& node);
  Taken transpose(const Node& node);
  Taken permute(const Node& node, const std::vector<int>& axes);
  Taken swap_axes(const Node& node);
  Taken slice(const Node& node);
  Taken slice_like(const Node& node);
  Taken crop(const Node& node);
  Taken split(const Node& node);
  Taken pad(const Node& node);
  Taken resize(const Node& node);
  Result<bool> leaves_rows_to_kernel(const Node& node, const Box& box);
  Status take_part(const Node& node, ValueId to, const Box& box);

  struct Matrices;
  /// result = scale * a b + bias, of which there may be none.
  Taken multiply(const Node& node, const Matrices& a, const Matrices& b, const Matrices& result, float scale, ValueId bias = -1);
  /// The library's first fast implementations of an inner product, each created again with the form of the weights that it chose.
  ///   weights  descriptors to try; the first for which there are implementations counts
  static std::vector<dnnl::inner_product_forward::primitive_desc> product_candidates(const Desc& src,
                                                                                     const std::vector<Desc>& weights,
                                                                                     const Desc& bias, const Desc& dst,
                                                                                     const dnnl::primitive_attr& attr);
  /// dst = src times the weights, a matrix (columns of dst, columns of src), plus the bias if there is one, in float32. Null:
  /// oneDNN has no fast implementation.
  Result<std::unique_ptr<Step>> product_step(const std::string& name, std::int64_t rows, BufferId src,
                                             const ConstantChain& weights, const std::optional<ConstantChain>& bias,
                                             BufferId dst);
  Taken rows_product(const Node& node, const ConstantChain& weights, const std::optional<ConstantChain>& bias,
                     ValueId last_folded);
  struct RnnWork;
  Taken rnn_pass(const RnnWork& work, std::int64_t layer, std::int64_t direction);
  /// The layout that a network's choices ask for, of data that a convolution reads or writes.
  Desc layer_desc(const dnnl::memory::dims& dims, Type type) const;
  struct ConvolutionWork;
  std::vector<dnnl::convolution_forward::primitive_desc> convolution_candidates(const ConvolutionWork& work,
                                                                                const dnnl::primitive_attr& attr) const;
  Status pack_direct_too(const std::vector<dnnl::convolution_forward::primitive_desc>& candidates, const ConstantChain& weights);
  /// The candidate that the choices name for the current node, or else the one of their preference.
  template <typename PrimitiveDesc>
  const PrimitiveDesc& choose(const std::vector<PrimitiveDesc>& candidates) const {
    const auto named = choices_.algorithms.find(node_key(graph_, node(now_)));
    if (named != choices_.algorithms.end()) {
      for (const PrimitiveDesc& candidate : candidates) {
        if (candidate.impl_info_str() == named->second) return candidate;
      }
    }
    const auto preference = static_cast<std::size_t>(choices_.preference);
    return candidates[preference < candidates.size() ? preference : 0];
  }
  /// Records that the next step is the chosen one.
  template <typename PrimitiveDesc>
  void note_tunable(const PrimitiveDesc& chosen) {
    plan_.tunables.push_back({plan_.steps.size(), node_key(graph_, node(now_)), chosen.impl_info_str()});
  }
  Result<Form> residual_form(ValueId residual, const Desc& desc, std::span<const BufferId> also_read);
  struct PoolingWindow;
  Taken pool(const Node& node, const PoolingWindow& window);
  Status add_pair(const Node& node, const dnnl::binary::primitive_desc& pd, ValueId a, const Desc& left_desc, ValueId b,
                  const Desc& right_desc, std::span<const PostOp> post_ops);
  Result<Form> broadcast_form(ValueId id, const Desc& desc);
  Status concat_in_place(const Node& node, const std::vector<Form>& parts, const Desc& desc);
  /// The channels of a value within those of the outermost concatenation that holds it; by itself if none does.
  struct Place {
    ValueId whole = -1;
    std::int64_t first_channel = 0;
  };
  void find_places();
  Place place_of(ValueId id) const;
  bool lies_at(ValueId id, const Place& place) const;
  Form range_of_channels(ValueId id, const Place& place);
  Status concat_channels_last(const Node& node);

  const Graph& graph_;
  WeightStore& weights_;
  const Options options_;
  const Choices choices_;
  const Precision precision_;
  std::vector<bool> bf16_values_;  ///< per value, as find_bf16_values()
  const Readers readers_;
  const std::map<ValueId, Gate> gates_;     ///< none without `options.fuse`, like norms
  const std::vector<NodeId> norms_;         ///< per node, as find_foldable_norms()
  std::map<NodeId, Attention> attentions_;  ///< by the last node; the others are absorbed
  Plan plan_;
  std::vector<std::vector<Form>> forms_;             ///< per value
  std::vector<std::vector<NodeId>> family_readers_;  ///< per root value: readers of it and of its views
  std::vector<bool> family_is_output_;
  std::vector<ValueId> roots_;      ///< per value: itself, or the value that it is a view of
  std::vector<NodeId> emitted_at_;  ///< per node: itself, or the node that absorbed it
  std::vector<bool> is_absorbed_;
  std::vector<bool> has_parts_;         ///< per buffer: does it contain others?
  std::map<ValueId, Place> places_;     ///< of the values that lie in a concatenation of channels
  std::map<ValueId, BufferId> wholes_;  ///< the buffers of outermost concatenations in channels last
  NodeId now_ = 0;
  std::vector<ValueId> formed_;   ///< since mark(): values that got a form, one entry per form
  std::vector<NodeId> absorbed_;  ///< since mark()
};

/// Compiles a graph, with its half types widened, or a body of one.
Result<Plan> compile_graph(const Graph& graph, WeightStore& weights, const Options& options, const Choices& choices);

}  // namespace shoal::worker::cpu

// Compiler: one graph of known shapes to a Plan of oneDNN primitives, reference kernels where those decline.
#pragma once

#include <climits>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "worker/exec/cpu/onednn.hpp"
#include "worker/exec/cpu/onednn_step.hpp"
#include "worker/exec/device.hpp"
#include "worker/exec/plan.hpp"
#include "worker/exec/weight_store.hpp"
#include "worker/graph/graph.hpp"

namespace shoal::worker::cpu {

/// The layouts of regions, as Choices name them. No name means blocked.
inline constexpr const char *kBlocked = "blocked", *kChannelsLast = "channels_last";
/// How many implementations of one algorithm are worth measuring: those further down the library's list are for older machines.
inline constexpr int kCandidates = 2;

/// An element-wise function as oneDNN has it; or binary_div, x / alpha, for which it has none that is exact.
struct Eltwise {
  dnnl::algorithm algorithm = dnnl::algorithm::undef;
  float alpha = 0, beta = 0;
};
inline bool is_division(const Eltwise& function) { return function.algorithm == dnnl::algorithm::binary_div; }
/// Several in a row.
using Functions = std::vector<Eltwise>;
/// What the node does to its one input; empty when there are no such functions.
Functions functions_of(const Node& node);

/// Part of a value: from `begin`, every `step`-th element of each axis (movement.cpp).
struct Box;

/// Walks the nodes in order. Each is taken by a method that may absorb nodes after it (BatchNorm, activations, residual
/// additions), or declines: then its reference kernel runs on plain layout.
///
/// A value lies in one or more *forms*: a buffer and a layout. Blocked layouts are kept through whole regions; a form that a step
/// needs and nobody has made yet is made by a reorder, once. A buffer is written in place when the value in it is read by nobody
/// later.
/// With `options.fuse` off every node is a step of its own (views and concatenations aside): what the fused forms are tested
/// against.
///   Threads  thread-bound
class Compiler {
 public:
  Compiler(const Graph& graph, WeightStore& weights, const DeviceOptions& options, const Choices& choices);
  Result<Plan> compile();

 private:
  struct Form {
    BufferId buffer = kNoBuffer;
    Desc desc;  ///< empty for what oneDNN is not told of: other dtypes, plain
  };
  /// What a primitive can do to its result on behalf of nodes behind it: element-wise functions, or the addition of `operand`.
  struct PostOp {
    std::vector<NodeId> nodes;  ///< in their order; the last one's output is the result
    Functions functions;
    ValueId operand = -1;
    Desc operand_desc;  ///< the layout it is read in; empty: it lies in the destination
  };
  /// Plain float32 data of a constant: its address, or that of what was computed into `scratch`.
  using PlainSource = std::function<const float*(std::vector<float>& scratch)>;
  /// Taken (true), or declined.
  using Taken = Result<bool>;

  // compiler.cpp
  Status emit_nodes();
  Status compile_by_image();
  Status emit(const Node& node);
  Taken take(const Node& node);
  Status emit_reference(const Node& node);

  // values.cpp: who reads what, forms, in-place
  void find_readers();
  const Node& node(NodeId id) const { return graph_.nodes[static_cast<std::size_t>(id)]; }
  const Value& value(ValueId id) const { return graph_.value(id); }
  ValueId root_of(ValueId id) const { return roots_[static_cast<std::size_t>(id)]; }
  std::vector<Form>& forms(ValueId id) { return forms_[static_cast<std::size_t>(id)]; }
  bool is_float(ValueId id) const;
  bool is_constant(ValueId id) const { return value(id).constant.has_value(); }
  bool is_ready(ValueId id) { return is_constant(id) || !forms(id).empty(); }
  bool is_read(ValueId id) const {
    return is_output_[static_cast<std::size_t>(id)] || !readers_[static_cast<std::size_t>(id)].empty();
  }
  bool all_float(const Node& node) const;  ///< every input and output float32 and not empty
  NodeId sole_reader(ValueId id) const;    ///< the node to fuse with what makes `id`; none when others read it, too
  void absorb(NodeId id);
  bool is_dead_after_this(ValueId id) const;
  bool may_overwrite(ValueId id, BufferId buffer) const;
  bool share_memory(BufferId a, BufferId b) const;  ///< one is the other, or part of it, or both are parts of a third
  Result<Form> first_form(ValueId id);              ///< as it was made
  Result<Form> plain_form(ValueId id);
  Result<Form> form_as(ValueId id, const Desc& desc);
  Form new_form(const Desc& desc);
  /// Lays a buffer into a range of another one: by moving it there where nothing forbids, else by a copy.
  void put_into(BufferId whole, std::size_t offset_bytes, const Form& part, const std::string& name);
  void add_form(ValueId id, Form form);
  Form reorder(const std::string& name, const Form& src, const Desc& desc);
  void add_step(const std::string& name, const dnnl::primitive& primitive, const Desc& scratchpad,
                std::vector<Argument> arguments);

  // weights.cpp
  Result<Form> weights_form(const std::string& key, const Desc& plain, const Desc& wanted, const PlainSource& source);
  std::vector<Desc> packed_descs(const std::string& key, const Desc& plain) const;
  PlainSource source_of(ValueId constant) const;

  // fusion.cpp
  std::vector<PostOp> find_post_ops(ValueId from, bool with_addition);
  static bool loses_nan(const PostOp& operation);           ///< as oneDNN does it
  std::optional<PostOp> find_function(ValueId from) const;  ///< the element-wise functions of the node or nodes behind a value
  std::optional<PostOp> find_gated(ValueId from) const;     ///< x * gate(x): the nodes of the gate and the product
  static bool extend(std::vector<PostOp>& chain, PostOp next);  ///< false: oneDNN would get it wrong
  static bool clashes(std::span<const PostOp> chain);
  static dnnl::primitive_attr attributes_for(std::span<const PostOp> post_ops);
  ValueId absorb_post_ops(ValueId from, std::span<const PostOp> post_ops);
  const Node* foldable_batch_norm(ValueId from) const;

  // one file per family
  Taken convolution(const Node& node);
  Taken fully_connected(const Node& node);
  Taken batch_norm(const Node& node);
  Taken pooling(const Node& node);
  Taken spatial_mean(const Node& node);
  Taken lrn(const Node& node);
  Taken softmax(const Node& node);
  Taken concat(const Node& node);
  Taken binary(const Node& node);
  Taken pair(const Node& node, dnnl::algorithm algorithm);
  Taken add_n(const Node& node);
  Taken eltwise(const Node& node);
  Taken elementwise_by_reference(const Node& node);
  Taken prelu(const Node& node);
  Taken view(const Node& node);
  Taken l2_normalization(const Node& node);
  Taken transpose(const Node& node);
  Taken transpose(const Node& node, const std::vector<int>& axes);
  Taken swap_axes(const Node& node);
  Taken slice(const Node& node);
  Taken split(const Node& node);
  Taken pad(const Node& node);
  Status take_part(const Node& node, ValueId to, const Box& box);

  struct ConvolutionWork;
  std::vector<dnnl::convolution_forward::primitive_desc> convolution_candidates(const ConvolutionWork& work,
                                                                                const dnnl::primitive_attr& attr) const;
  Status pack_direct_too(const std::vector<dnnl::convolution_forward::primitive_desc>& candidates, const std::string& key,
                         const Desc& plain, const PlainSource& source);
  /// The one that the choices name for the node at hand, else that of their preference.
  template <typename PrimitiveDesc>
  const PrimitiveDesc& choose(const std::vector<PrimitiveDesc>& candidates) const {
    const auto named = choices_.algorithms.find(tuning_key(now_));
    if (named != choices_.algorithms.end()) {
      for (const PrimitiveDesc& candidate : candidates) {
        if (candidate.impl_info_str() == named->second) return candidate;
      }
    }
    const auto preference = static_cast<std::size_t>(choices_.preference);
    return candidates[preference < candidates.size() ? preference : 0];
  }
  /// The next step is the one chosen.
  template <typename PrimitiveDesc>
  void note_tunable(const PrimitiveDesc& chosen) {
    plan_.tunables.push_back({plan_.steps.size(), tuning_key(now_), chosen.impl_info_str()});
  }
  Result<Form> residual_form(ValueId residual, const Desc& desc, std::span<const BufferId> also_read);
  struct PoolingWindow;
  Taken pool(const Node& node, const PoolingWindow& window);
  Status add_pair(const Node& node, const dnnl::binary::primitive_desc& pd, ValueId a, const Form& left, ValueId b,
                  const Desc& right_desc, std::span<const PostOp> post_ops);
  Result<Form> broadcast_form(ValueId id, const Desc& desc);
  Status concat_in_place(const Node& node, const std::vector<Form>& parts, const Desc& desc);

  const Graph& graph_;
  WeightStore& weights_;
  const DeviceOptions options_;
  const Choices choices_;
  Plan plan_;
  std::vector<std::vector<Form>> forms_;             ///< per value
  std::vector<std::vector<NodeId>> readers_;         ///< per value: the nodes that read it
  std::vector<std::vector<NodeId>> family_readers_;  ///< per root value: readers of it and of its views
  std::vector<bool> is_output_, family_is_output_;
  std::vector<ValueId> roots_;      ///< per value: the value that its bytes are
  std::vector<NodeId> emitted_at_;  ///< per node: itself, or the node that absorbed it
  std::vector<bool> is_absorbed_;
  std::vector<bool> has_parts_;  ///< per buffer: others lie in it
  NodeId now_ = 0;
};

}  // namespace shoal::worker::cpu

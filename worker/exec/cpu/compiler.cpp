#include "worker/exec/cpu/compiler.hpp"
#include "shm/base/errors.hpp"

#include "worker/exec/body_step.hpp"
#include "worker/exec/cpu/batch_split.hpp"
#include "worker/exec/cpu/kernels/kernels.hpp"
#include "worker/exec/cpu/widening.hpp"
#include "worker/exec/graph_plan.hpp"
#include "worker/exec/oracle_step.hpp"
#include "worker/graph/operators.hpp"
#include "worker/ops/activation.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/attention.hpp"
#include "worker/ops/convolution.hpp"
#include "worker/ops/deconvolution.hpp"
#include "worker/ops/fully_connected.hpp"
#include "worker/ops/movement.hpp"
#include "worker/ops/normalization.hpp"
#include "worker/ops/pooling.hpp"
#include "worker/ops/products.hpp"
#include "worker/ops/recurrent.hpp"
#include "worker/ops/reduce.hpp"
#include "worker/ops/reshape.hpp"
#include "worker/ops/resize.hpp"
#include "worker/ops/softmax.hpp"
#include "worker/ops/unary.hpp"
#include "worker/passes/bf16_values.hpp"

namespace shoal::worker::cpu {

Precision precision_of(const Choices& choices, const Options& options) {
  const Precision wanted = choices.precision.value_or(options.precision);
  const bool is_float32 = wanted == Precision::kAuto || (wanted == Precision::kBf16 && !has_bf16());
  return is_float32 ? Precision::kF32 : wanted;
}

Choices with_layout(Choices choices, const Options& options) {
  if (choices.layout.empty()) {
    const bool is_by_amx = precision_of(choices, options) == Precision::kBf16 && has_amx();
    choices.layout = is_by_amx ? kChannelsLast : kBlocked;
  }
  return choices;
}

Compiler::Compiler(const Graph& graph, WeightStore& weights, const Options& options, const Choices& choices)
    : graph_(graph),
      weights_(weights),
      options_(options),
      choices_(with_layout(choices, options)),
      precision_(precision_of(choices, options)),
      bf16_values_(precision_ == Precision::kBf16 ? find_bf16_values(graph) : std::vector<bool>(graph.values.size())),
      readers_(graph),
      gates_(options.fuse ? find_gates(graph, readers_) : std::map<ValueId, Gate>()),
      norms_(options.fuse ? find_foldable_norms(graph, readers_) : std::vector<NodeId>(graph.nodes.size(), kNoNode)),
      attentions_(attentions_of(graph, readers_, options)),
      plan_(start_plan(graph)),
      forms_(graph.values.size()) {
  find_families();
  find_places();
  absorb_attentions();
}

namespace {

// oneDNN cannot make a descriptor or a primitive. This may happen at any point of a lowering, and means that it declines.
bool declines(const dnnl::error& error) { return error.status == dnnl_invalid_arguments || error.status == dnnl_unimplemented; }

/// Moves a plan to a borrower, and back at the end of the scope, also when an exception ends it.
class LentPlan {
 public:
  LentPlan(Plan& owners, Plan& borrowers) : owners_(owners), borrowers_(borrowers) { borrowers_ = std::move(owners_); }
  ~LentPlan() { owners_ = std::move(borrowers_); }
  LentPlan(const LentPlan&) = delete;
  LentPlan& operator=(const LentPlan&) = delete;

 private:
  Plan &owners_, &borrowers_;
};

}  // namespace

Result<Plan> Compiler::compile() {
  AddedWeights added(weights_);
  for (std::size_t i = 0; i < graph_.inputs.size(); ++i) {
    const ValueId id = graph_.inputs[i];
    const BufferId buffer = plan_.add_buffer(size_bytes_of(value(id)), Buffer::Home::kInput, static_cast<int>(i));
    add_form(id, {buffer, is_float(id) ? plain_desc(value(id).shape) : Desc()});
  }
  compile_by_image();
  SHOAL_RETURN_IF_ERROR(emit_nodes());
  for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
    SHOAL_ASSIGN_OR_RETURN(const Form form, plain_form(graph_.outputs[i].value));
    deliver_output(plan_, form.buffer, static_cast<int>(i));
  }
  added.keep();
  return std::move(plan_);
}

Status Compiler::emit_nodes() {
  for (; now_ < static_cast<NodeId>(graph_.nodes.size()); ++now_) {
    if (!is_absorbed_[static_cast<std::size_t>(now_)]) SHOAL_RETURN_IF_ERROR(emit(node(now_)));
  }
  return {};
}

// Compiles the first part of the graph for each image by itself, from its range of the inputs to its range of the values that
// pass the cut. For one thread only: with several, each would have less work between two barriers. If an image cannot be lowered
// by itself, all nodes are lowered for the whole batch.
void Compiler::compile_by_image() {
  if (!options_.fuse || options_.threads > 1) return;
  const BatchSplit split = find_batch_split(graph_, options_.core_cache_bytes);
  if (split.cut == 0) return;
  const Mark before = mark();
  try {
    if (lower_images(split).ok()) {
      leave_attentions_across(split.cut);
      now_ = split.cut;
      return;
    }
  } catch (const dnnl::error& error) {
    if (!declines(error)) throw;
  }
  roll_back(before);
}

Status Compiler::lower_images(const BatchSplit& split) {
  const Graph one = one_image(graph_, split);
  std::vector<Form> passing;
  for (std::int64_t index = 0; index < split.images; ++index) {
    Compiler image(one, weights_, options_, choices_);
    image.bf16_values_ = bf16_values_;  // `one` does not have the nodes behind the cut
    const LentPlan lent(plan_, image.plan_);
    for (const ValueId id : graph_.inputs) {
      const Desc desc = plain_desc(one.value(id).shape);
      const BufferId part =
          image.plan_.add_part(forms(id).front().buffer, static_cast<std::size_t>(index) * desc.get_size(), desc.get_size());
      image.add_form(id, {part, desc});
    }
    SHOAL_RETURN_IF_ERROR(image.emit_nodes());
    for (std::size_t i = 0; i < one.outputs.size(); ++i) {
      const ValueId id = one.outputs[i].value;
      SHOAL_ASSIGN_OR_RETURN(const Form first, image.first_form(id));
      if (index == 0) passing.push_back(image.new_form(desc_of_batch(first.desc, split.images)));
      SHOAL_ASSIGN_OR_RETURN(const Form form, image.form_as(id, desc_of_batch(passing[i].desc, 1)));
      image.put_into(passing[i].buffer, form.desc.get_size() * static_cast<std::size_t>(index), form,
                     "image of '" + value(id).name + "'");
    }
  }
  for (std::size_t i = 0; i < one.outputs.size(); ++i) add_form(one.outputs[i].value, passing[i]);
  return {};
}

// Then neither a step nor its weights are needed.
bool Compiler::makes_nothing(const Node& node) const {
  if (is_dynamic(node)) return false;  // its shape is still computed
  return std::ranges::any_of(node.outputs, [this](ValueId id) { return is_empty(id); }) &&
         std::ranges::all_of(node.outputs, [&](ValueId id) { return is_empty(id) || !is_read(id); });
}

Status Compiler::emit(const Node& node) {
  if (makes_nothing(node) && node.bodies.empty()) {  // bodies have constants of their own
    for (const ValueId id : node.outputs) add_form(id, {plan_.add_buffer(0), Desc()});
    return weights_.is_sealed() ? Status() : pack_for_other_shapes(node);
  }
  if (is_dynamic(node)) return emit_oracle(node);
  if (const auto found = attentions_.find(now_); found != attentions_.end()) return attention(node, found->second);
  for (const Lowering& lowering : lowerings()) {
    if (lowering.op != node.op || !has_types(node, lowering.types)) continue;
    if (TypeSet(Types<float>()).holds(lowering.types) && !suits_onednn(node)) continue;
    SHOAL_ASSIGN_OR_RETURN(const bool taken, take(node, lowering.lower));
    if (taken) return {};
  }
  SHOAL_ASSIGN_OR_RETURN(const bool taken, take(node, &Compiler::by_kernel));
  return taken ? Status() : emit_oracle(node);
}

Compiler::Taken Compiler::take(const Node& node, Taken (Compiler::*lower)(const Node& node)) {
  const Mark before = mark();
  try {
    const Taken taken = (this->*lower)(node);
    if (taken.ok() && !*taken) roll_back(before);
    return taken;
  } catch (const dnnl::error& error) {
    if (!declines(error)) throw;
    roll_back(before);
  }
  return false;
}

Compiler::Mark Compiler::mark() {
  formed_.clear();
  absorbed_.clear();
  return {plan_.steps.size(), plan_.buffers.size(), plan_.tunables.size(), plan_.privates.size(), weights_.entry_count()};
}

// Only concat_in_place() changes older buffers, and it does not call oneDNN after that.
void Compiler::roll_back(const Mark& before) {
  plan_.steps.resize(before.steps);
  plan_.buffers.resize(before.buffers);
  plan_.tunables.resize(before.tunables);
  plan_.privates.erase(plan_.privates.begin() + static_cast<std::ptrdiff_t>(before.privates), plan_.privates.end());
  if (!weights_.is_sealed()) weights_.forget_from(before.weights);
  std::erase_if(wholes_, [&](const auto& whole) { return static_cast<std::size_t>(whole.second) >= before.buffers; });
  for (const ValueId id : formed_) forms(id).pop_back();
  for (const NodeId id : absorbed_) {
    is_absorbed_[static_cast<std::size_t>(id)] = false;
    emitted_at_[static_cast<std::size_t>(id)] = id;
  }
}

// Who makes the steps of each operator, and for which types. The first that does not decline is taken; behind them come the
// kernels of Shoal, which have a table of their own.
std::span<const Compiler::Lowering> Compiler::lowerings() {
  static constexpr TypeSet kFloat32 = Types<float>(), kHalves = HalfTypes();
  static const Lowering kLowerings[] = {
      {&ops::kIdentity, "view", AnyTypes(), &Compiler::view},
      {&ops::kReshape, "view", AnyTypes(), &Compiler::view},
      {&ops::kFlatten, "view", AnyTypes(), &Compiler::view},
      {&ops::kReshapeLike, "view", AnyTypes(), &Compiler::view},
      {&ops::kExpandDims, "view", AnyTypes(), &Compiler::view},
      {&ops::kSqueeze, "view", AnyTypes(), &Compiler::view},
      {&ops::kAtLeast, "view", AnyTypes(), &Compiler::view},
      {&ops::kConvolution, "oneDNN", kFloat32, &Compiler::convolution, kHalves},
      {&ops::kDeconvolution, "oneDNN", kFloat32, &Compiler::deconvolution, kHalves},
      {&ops::kFullyConnected, "oneDNN", kFloat32, &Compiler::fully_connected, kHalves},
      {&ops::kMatMul, "oneDNN", kFloat32, &Compiler::mat_mul, kHalves},
      {&ops::kDot, "oneDNN", kFloat32, &Compiler::dot, kHalves},
      {&ops::kAttentionScores, "oneDNN", kFloat32, &Compiler::attention_scores, kHalves},
      {&ops::kAttentionValues, "oneDNN", kFloat32, &Compiler::attention_values, kHalves},
      {&ops::kRnn, "oneDNN", Joined<Types<float>, Integers>::Type(), &Compiler::rnn, kHalves},
      {&ops::kBatchNorm, "oneDNN", kFloat32, &Compiler::batch_norm, kHalves},
      {&ops::kPooling, "oneDNN", kFloat32, &Compiler::pooling, kHalves},
      {&ops::kAdaptiveAvgPooling, "oneDNN", kFloat32, &Compiler::spatial_mean, kHalves},
      {&ops::kReduce, "oneDNN", kFloat32, &Compiler::spatial_mean},
      {&ops::kLrn, "oneDNN", kFloat32, &Compiler::lrn, kHalves},
      {&ops::kSoftmax, "kernel", kFloat32, &Compiler::by_kernel, kHalves},
      {&ops::kL2Normalization, "kernel", kFloat32, &Compiler::l2_normalization, kHalves},
      {&ops::kTranspose, "oneDNN", kFloat32, &Compiler::transpose},
      {&ops::kSwapAxes, "oneDNN", kFloat32, &Compiler::swap_axes},
      {&ops::kSlice, "oneDNN", kFloat32, &Compiler::slice},
      {&ops::kSliceLike, "oneDNN", kFloat32, &Compiler::slice_like},
      {&ops::kCrop, "oneDNN", kFloat32, &Compiler::crop},
      {&ops::kSplit, "oneDNN", kFloat32, &Compiler::split},
      {&ops::kPad, "kernel", kFloat32, &Compiler::pad},
      {&ops::kResize, "kernel", kFloat32, &Compiler::resize},
      {&ops::kConcat, "oneDNN", kFloat32, &Compiler::concat},
      {&ops::kBinary, "oneDNN", kFloat32, &Compiler::binary},
      {&ops::kAddN, "oneDNN", kFloat32, &Compiler::add_n},
      {&ops::kLeakyRelu, "oneDNN", kFloat32, &Compiler::leaky},
      {&ops::kActivation, "oneDNN", kFloat32, &Compiler::eltwise},
      {&ops::kHardSigmoid, "oneDNN", kFloat32, &Compiler::eltwise},
      {&ops::kClip, "oneDNN", kFloat32, &Compiler::eltwise},
      {&ops::kScalar, "oneDNN", kFloat32, &Compiler::eltwise},
      {&ops::kUnary, "oneDNN", kFloat32, &Compiler::eltwise},
  };
  return kLowerings;
}

bool Compiler::is_widened(const Node& node) {
  return std::ranges::any_of(
      lowerings(), [&](const Lowering& lowering) { return lowering.op == node.op && lowering.widened.holds(HalfTypes()); });
}

std::vector<TypeSupport> Compiler::type_table() {
  std::vector<TypeSupport> table;
  for (const Lowering& lowering : lowerings()) table.push_back({lowering.op, lowering.by, lowering.types, lowering.widened});
  for (const Kernel& kernel : all_kernels()) table.push_back({kernel.op, "kernel", kernel.types});
  return table;
}

Status Compiler::emit_oracle(const Node& node) {
  std::vector<PlacedTensor> src, dst;
  for (const ValueId id : node.inputs) {
    SHOAL_ASSIGN_OR_RETURN(const Form form, plain_form(id));
    src.push_back({value(id).dtype, value(id).shape, form.buffer, value(id).name});
  }
  for (const ValueId id : node.outputs) {
    PlacedTensor tensor{.dtype = value(id).dtype, .shape = value(id).shape, .name = value(id).name};
    if (is_read(id)) {
      tensor.buffer = add_value_buffer(value(id), plan_);
      add_form(id, {tensor.buffer, is_float(id) ? plain_desc(value(id).shape) : Desc()});
    }
    dst.push_back(tensor);
  }
  if (node.bodies.empty()) {
    add_oracle_step(plan_, node, src, dst, is_dynamic(node) ? dynamic_kernel(node) : NodeKernel());
    return {};
  }
  // The steps within are not timed one by one, so their algorithms are not chosen.
  const Choices choices{.precision = choices_.precision, .layout = choices_.layout};
  return add_body_step(plan_, node, src, dst, weights_,
                       [&](const Graph& body) { return compile_graph(body, weights_, options_, choices); });
}

Result<Plan> compile_graph(const Graph& graph, WeightStore& weights, const Options& options, const Choices& choices) {
  const std::optional<Graph> widened = widen_halves(graph, Compiler::is_widened);
  return Compiler(widened ? *widened : graph, weights, options, choices).compile();
}

}  // namespace shoal::worker::cpu

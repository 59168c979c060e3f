#include "worker/exec/cpu/compiler.hpp"
#include "shm/base/errors.hpp"

#include "worker/exec/body_step.hpp"
#include "worker/exec/cpu/batch_split.hpp"
#include "worker/exec/graph_plan.hpp"
#include "worker/exec/oracle_step.hpp"
#include "worker/graph/operators.hpp"
#include "worker/ops/activation.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/convolution.hpp"
#include "worker/ops/fully_connected.hpp"
#include "worker/ops/movement.hpp"
#include "worker/ops/normalization.hpp"
#include "worker/ops/pooling.hpp"
#include "worker/ops/reduce.hpp"
#include "worker/ops/reshape.hpp"
#include "worker/ops/softmax.hpp"

namespace shoal::worker::cpu {

Compiler::Compiler(const Graph& graph, WeightStore& weights, const DeviceOptions& options, const Choices& choices)
    : graph_(graph),
      weights_(weights),
      options_(options),
      choices_(choices),
      plan_(start_plan(graph)),
      forms_(graph.values.size()) {
  find_readers();
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
      if (index == 0) passing.push_back(image.new_form(desc_of_batch(image.forms(id).front().desc, split.images)));
      SHOAL_ASSIGN_OR_RETURN(const Form form, image.form_as(id, desc_of_batch(passing[i].desc, 1)));
      image.put_into(passing[i].buffer, form.desc.get_size() * static_cast<std::size_t>(index), form,
                     "image of '" + value(id).name + "'");
    }
  }
  for (std::size_t i = 0; i < one.outputs.size(); ++i) add_form(one.outputs[i].value, passing[i]);
  return {};
}

Status Compiler::emit(const Node& node) {
  const Mark before = mark();
  bool taken = false;
  try {
    SHOAL_ASSIGN_OR_RETURN(taken, take(node));
  } catch (const dnnl::error& error) {
    if (!declines(error)) throw;
    roll_back(before);
  }
  return taken ? Status() : emit_oracle(node);
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
  for (const ValueId id : formed_) forms(id).pop_back();
  for (const NodeId id : absorbed_) {
    is_absorbed_[static_cast<std::size_t>(id)] = false;
    emitted_at_[static_cast<std::size_t>(id)] = id;
  }
}

// What makes the steps of each operator. Others run element by element, by oneDNN or by the oracle kernel.
const Compiler::Lowering* Compiler::lowering_of(const Operator* op) {
  static const Lowering kLowerings[] = {
      {&ops::kIdentity, &Compiler::view, Lowering::kAnyType},
      {&ops::kReshape, &Compiler::view, Lowering::kAnyType},
      {&ops::kFlatten, &Compiler::view, Lowering::kAnyType},
      {&ops::kConvolution, &Compiler::convolution},
      {&ops::kFullyConnected, &Compiler::fully_connected},
      {&ops::kBatchNorm, &Compiler::batch_norm},
      {&ops::kPooling, &Compiler::pooling},
      {&ops::kAdaptiveAvgPooling, &Compiler::spatial_mean},
      {&ops::kReduce, &Compiler::spatial_mean},
      {&ops::kLrn, &Compiler::lrn},
      {&ops::kSoftmax, &Compiler::softmax},
      {&ops::kL2Normalization, &Compiler::l2_normalization},
      {&ops::kTranspose, &Compiler::transpose},
      {&ops::kSwapAxes, &Compiler::swap_axes},
      {&ops::kSlice, &Compiler::slice},
      {&ops::kSplit, &Compiler::split},
      {&ops::kPad, &Compiler::pad},
      {&ops::kConcat, &Compiler::concat},
      {&ops::kBinary, &Compiler::binary},
      {&ops::kAddN, &Compiler::add_n},
      {&ops::kLeakyRelu, &Compiler::leaky},
  };
  const auto* const found = std::ranges::find(kLowerings, op, &Lowering::op);
  return found == std::end(kLowerings) ? nullptr : found;
}

Compiler::Taken Compiler::take(const Node& node) {
  const Lowering* const lowering = lowering_of(node.op);
  const bool takes_any_type = lowering != nullptr && lowering->types == Lowering::kAnyType;
  if (!takes_any_type && !all_float(node)) return false;
  return lowering != nullptr ? (this->*lowering->lower)(node) : eltwise(node);
}

Status Compiler::emit_oracle(const Node& node) {
  std::vector<PlacedTensor> src, dst;
  for (const ValueId id : node.inputs) {
    SHOAL_ASSIGN_OR_RETURN(const Form form, plain_form(id));
    src.push_back({value(id).dtype, value(id).shape, form.buffer});
  }
  for (const ValueId id : node.outputs) {
    PlacedTensor tensor{value(id).dtype, value(id).shape};
    if (is_read(id)) {
      tensor.buffer = plan_.add_buffer(size_bytes_of(value(id)));
      add_form(id, {tensor.buffer, is_float(id) ? plain_desc(value(id).shape) : Desc()});
    }
    dst.push_back(tensor);
  }
  if (!node.bodies.empty()) {
    // Algorithms are named by the number of a node, and a body has nodes of its own.
    const auto compile_body = [&](const Graph& body) {
      return Compiler(body, weights_, options_, {.layout = choices_.layout}).compile();
    };
    return add_body_step(plan_, node, src, dst, weights_, compile_body);
  }
  add_oracle_step(plan_, node, src, dst);
  return {};
}

}  // namespace shoal::worker::cpu

#include "worker/exec/body_step.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "shm/base/errors.hpp"
#include "shm/base/ranges.hpp"
#include "worker/exec/context.hpp"
#include "worker/exec/dynamic_step.hpp"
#include "worker/exec/graph_plan.hpp"
#include "worker/exec/memory_plan.hpp"
#include "worker/exec/planned_program.hpp"
#include "worker/graph/operators.hpp"

namespace shoal::worker {
namespace {

/// What the step and its bound form share.
struct BodyWork {
  Node node;  ///< without its bodies
  std::vector<std::shared_ptr<const PlannedProgram>> bodies;
  std::size_t own_inputs = 0;
  std::vector<TensorView> src, dst, scratch;
  std::vector<std::size_t> scratch_offsets;  ///< within the memory of the step; the arena of the bodies is at its front
  std::size_t memory_bytes = 0;
  bool makes_nothing = false;  ///< all results are empty, and none has a shape that depends on data
};

// Operands: src, dst, the slots of dst for shapes that depend on data, the memory of the step.
class BoundBodyStep final : public BoundStep, private BodyRunner {
 public:
  explicit BoundBodyStep(const BodyWork& work)
      : work_(work), src_(work.src), dst_(work.dst), scratch_(work.scratch), slots_(work.dst.size()) {
    std::size_t most_inputs = 0;
    for (const auto& body : work.bodies) {
      bindings_.push_back(body->make_inner_binding());
      most_inputs = std::max(most_inputs, body->inputs().size());
    }
    given_.resize(most_inputs);
  }

  void set_addresses(std::span<std::byte* const> operands) override {
    auto next = operands.begin();
    for (TensorView& view : src_) view.data = *next++;
    for (TensorView& view : dst_) view.data = *next++;
    for (std::byte*& slot : slots_) slot = *next++;
    if (*next == memory_) return;
    for (std::size_t i = 0; i < scratch_.size(); ++i) scratch_[i].data = *next + work_.scratch_offsets[i];
    for (std::size_t i = 0; i < bindings_.size(); ++i) work_.bodies[i]->move_inner(*bindings_[i], *next);
    memory_ = *next;  // last: if there is no memory to move the bodies, the next call moves them again
  }

  Status run() override {
    if (work_.makes_nothing) return {};
    for (std::size_t i = 0; i < dst_.size(); ++i) dst_[i].shape = work_.dst[i].shape;
    SHOAL_RETURN_IF_ERROR(work_.node.op->bodies.run(work_.node, *this, std::span(src_).first(work_.own_inputs), dst_, scratch_));
    for (std::size_t i = 0; i < dst_.size(); ++i) {
      if (!lies_within(dst_[i].shape, work_.dst[i].shape)) {
        return internal_error("{}: result {} has shape {}, and its bound is {}", describe(work_.node), i,
                              dst_[i].shape.to_string(), work_.dst[i].shape.to_string());
      }
      if (slots_[i] != nullptr) std::memcpy(slots_[i], &dst_[i].shape, sizeof(Shape));
    }
    return {};
  }

 private:
  Status run(std::size_t body, std::span<const TensorView> src, std::span<TensorView> dst) override {
    const std::span captures = std::span(src_).subspan(work_.own_inputs);
    const auto behind = std::ranges::copy(src, given_.begin()).out;
    std::ranges::copy(captures, behind);
    const std::span given = std::span(given_).first(src.size() + captures.size());
    return work_.bodies[body]->run_inner(*bindings_[body], progress, given, dst);
  }

  const BodyWork& work_;
  std::vector<TensorView> src_, dst_, scratch_;
  std::vector<std::byte*> slots_;
  std::vector<TensorView> given_;  ///< to the body that runs: room for the inputs of each
  std::vector<std::unique_ptr<Binding>> bindings_;
  std::byte* memory_ = nullptr;
};

class BodyStep final : public Step {
 public:
  BodyStep(BodyWork work, std::vector<BufferId> operands)
      : Step(describe(work.node), std::move(operands)), work_(std::move(work)) {}
  std::string implementation() const override { return "bodies"; }
  std::vector<std::vector<StepInfo>> body_steps() const override {
    std::vector<std::vector<StepInfo>> steps;
    for (const auto& body : work_.bodies) steps.push_back(body->steps());
    return steps;
  }
  std::unique_ptr<BoundStep> bind() const override { return std::make_unique<BoundBodyStep>(work_); }
  bool has_code() const override {
    return std::ranges::any_of(work_.bodies, [](const auto& body) { return body->has_code(); });
  }
  std::size_t resident_bytes() const override {
    return std::accumulate(work_.bodies.begin(), work_.bodies.end(), std::size_t{0},
                           [](std::size_t sum, const auto& body) { return sum + body->resident_bytes(); });
  }

 private:
  BodyWork work_;
};

std::vector<TensorView> views_of(const std::vector<PlacedTensor>& tensors) {
  std::vector<TensorView> views;
  for (const PlacedTensor& tensor : tensors) views.push_back({tensor.dtype, tensor.shape, nullptr});
  return views;
}

}  // namespace

Status add_body_step(Plan& plan, const Node& node, const std::vector<PlacedTensor>& src, const std::vector<PlacedTensor>& dst,
                     const WeightStore& weights, const CompileBody& compile) {
  const BodyRules& rules = node.op->bodies;
  BodyWork work{.node = node, .own_inputs = rules.own_inputs(node), .src = views_of(src), .dst = views_of(dst)};
  work.node.bodies.clear();
  for (std::size_t index = 0; index < node.bodies.size(); ++index) {
    auto body = compile(node.bodies[index]);
    if (!body.ok()) return body.status().with_context(format("{}: body {}", describe(node), index));
    work.bodies.push_back(std::make_shared<const PlannedProgram>(*std::move(body), weights.shared_from_this()));
    work.memory_bytes = std::max(work.memory_bytes, work.bodies.back()->arena_bytes());
  }
  if (rules.scratch != nullptr) work.scratch = rules.scratch(node, std::span(work.src).first(work.own_inputs));
  for (const TensorView& view : work.scratch) {
    work.scratch_offsets.push_back(align_up(work.memory_bytes, kTensorAlignment));
    work.memory_bytes = work.scratch_offsets.back() + view.size_bytes();
  }
  mark_bounds(plan, node, src);
  std::vector<BufferId> operands, slots;
  for (const PlacedTensor& tensor : src) operands.push_back(tensor.buffer);
  for (std::size_t i = 0; i < dst.size(); ++i) {  // what nobody reads is written nevertheless
    const BufferId buffer = dst[i].buffer == kNoBuffer ? plan.add_buffer(work.dst[i].size_bytes()) : dst[i].buffer;
    operands.push_back(buffer);
    slots.push_back(plan.buffer(buffer).shape_slot);
  }
  work.makes_nothing = std::ranges::all_of(work.dst, [](const TensorView& view) { return view.element_count() == 0; }) &&
                       std::ranges::all_of(slots, [](BufferId slot) { return slot == kNoBuffer; });
  operands.insert(operands.end(), slots.begin(), slots.end());
  operands.push_back(plan.add_buffer(std::max<std::size_t>(work.memory_bytes, 1)));
  plan.steps.push_back(std::make_unique<BodyStep>(std::move(work), std::move(operands)));
  plan.has_bodies = true;
  return {};
}

}  // namespace shoal::worker

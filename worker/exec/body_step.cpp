#include "worker/exec/body_step.hpp"

#include <algorithm>

#include "shm/base/errors.hpp"
#include "shm/base/ranges.hpp"
#include "worker/exec/memory_plan.hpp"
#include "worker/exec/planned_program.hpp"
#include "worker/graph/operators.hpp"

namespace shoal::worker {
namespace {

using Programs = std::vector<std::shared_ptr<const PlannedProgram>>;

std::vector<TensorView> views_of(const std::vector<PlacedTensor>& tensors) {
  std::vector<TensorView> views;
  for (const PlacedTensor& tensor : tensors) views.push_back({tensor.dtype, tensor.shape, nullptr});
  return views;
}

/// What the step and its bound form share.
struct Work {
  Node node;
  Programs programs;
  std::size_t own_inputs = 0;
  std::vector<TensorView> src, dst, scratch;
  std::vector<std::size_t> scratch_offsets;  ///< within the memory of the step; the arena of the bodies is at 0
  std::size_t memory_bytes = 0;
};

class BoundBodyStep final : public BoundStep, private BodyRunner {
 public:
  explicit BoundBodyStep(const Work& work) : work_(work), src_(work.src), dst_(work.dst), scratch_(work.scratch) {
    std::size_t most_inputs = 0;
    for (const auto& program : work.programs) {
      bindings_.push_back(program->make_binding());
      most_inputs = std::max(most_inputs, program->inputs().size());
    }
    given_.resize(most_inputs);
  }

  void set_addresses(std::span<std::byte* const> operands) override {
    std::size_t next = 0;
    for (TensorView& view : src_) view.data = operands[next++];
    for (TensorView& view : dst_) view.data = operands[next++];
    arena_ = operands[next];
    for (std::size_t i = 0; i < scratch_.size(); ++i) scratch_[i].data = arena_ + work_.scratch_offsets[i];
  }

  Status run() override {
    return work_.node.op->bodies.run(work_.node, *this, std::span(src_).first(work_.own_inputs), dst_, scratch_);
  }

 private:
  Status run(std::size_t index, std::span<const TensorView> src, std::span<TensorView> dst) override {
    const PlannedProgram& program = *work_.programs[index];
    const std::span<const TensorView> captures = std::span<const TensorView>(src_).subspan(work_.own_inputs);
    std::ranges::copy(src, given_.begin());
    std::ranges::copy(captures, given_.begin() + static_cast<std::ptrdiff_t>(src.size()));
    return program.run_bound(*bindings_[index], arena_, progress, std::span(given_).first(program.inputs().size()), dst);
  }

  const Work& work_;
  std::vector<TensorView> src_, dst_, scratch_, given_;
  std::vector<std::unique_ptr<Binding>> bindings_;
  std::byte* arena_ = nullptr;
};

class BodyStep final : public Step {
 public:
  BodyStep(Work work, std::vector<BufferId> operands) : Step(describe(work.node), std::move(operands)), work_(std::move(work)) {}
  std::string implementation() const override { return "bodies"; }
  std::unique_ptr<BoundStep> bind() const override { return std::make_unique<BoundBodyStep>(work_); }

 private:
  Work work_;
};

}  // namespace

Status add_body_step(Plan& plan, const Node& node, const std::vector<PlacedTensor>& src, const std::vector<PlacedTensor>& dst,
                     const WeightStore& weights, const CompileBody& compile) {
  const BodyRules& rules = node.op->bodies;
  Work work{.node = node, .own_inputs = rules.own_inputs(node), .src = views_of(src), .dst = views_of(dst)};
  work.node.bodies.clear();  // the programs stand for them
  for (std::size_t index = 0; index < node.bodies.size(); ++index) {
    auto body = compile(node.bodies[index]);
    if (!body.ok()) return body.status().with_context(format("{}: body {}", describe(node), index));
    work.programs.push_back(std::make_shared<const PlannedProgram>(*std::move(body), weights.shared_from_this()));
    work.memory_bytes = std::max(work.memory_bytes, work.programs.back()->arena_bytes());
  }
  if (rules.scratch != nullptr) {
    for (const TensorSpec& spec : rules.scratch(node, std::span(work.src).first(work.own_inputs), work.dst)) {
      work.memory_bytes = align_up(work.memory_bytes, kTensorAlignment);
      work.scratch_offsets.push_back(work.memory_bytes);
      work.scratch.push_back({spec.dtype, spec.shape, nullptr});
      work.memory_bytes += work.scratch.back().size_bytes();
    }
  }
  if (const int input = node.op->facts.index_input; input >= 0 && std::cmp_less(input, src.size()))
    plan.buffer(src[static_cast<std::size_t>(input)].buffer).holds_bounds = true;
  std::vector<BufferId> operands;
  for (const PlacedTensor& tensor : src) operands.push_back(tensor.buffer);
  for (const PlacedTensor& tensor : dst) operands.push_back(tensor.buffer);
  operands.push_back(plan.add_buffer(std::max<std::size_t>(work.memory_bytes, 1)));
  plan.steps.push_back(std::make_unique<BodyStep>(std::move(work), std::move(operands)));
  return {};
}

}  // namespace shoal::worker

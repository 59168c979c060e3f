// PlannedProgram: a Plan with its memory laid out.
#pragma once

#include <memory>

#include "worker/exec/context.hpp"
#include "worker/exec/plan.hpp"
#include "worker/exec/program.hpp"
#include "worker/exec/weight_store.hpp"

namespace shoal::worker {

std::size_t size_bytes_of(const TensorSpec& spec);

/// Immutable
class PlannedProgram : public Program {
 public:
  PlannedProgram(Plan plan, std::shared_ptr<const WeightStore> weights);
  Status run(Context& context, std::span<const TensorView> src, std::span<TensorView> dst) const override;
  /// Like run(), for tensors that are smaller in some dimensions: inputs are padded with zeros, outputs are cut. Checks nothing.
  Status run_within(Context& context, std::span<const TensorView> src, std::span<TensorView> dst) const;
  std::vector<StepInfo> steps() const override;

  /// For a run as a part of a step of another program. Throws std::bad_alloc.
  std::unique_ptr<Binding> make_binding() const;
  /// Like run_within(), but with a binding of its own, and arena_bytes() at `arena`, which is aligned to kTensorAlignment.
  Status run_bound(Binding& binding, std::byte* arena, Progress* progress, std::span<const TensorView> src,
                   std::span<TensorView> dst) const;

  /// The exact size of private constants, and an estimate per step for code, descriptors and one Context's binding.
  std::size_t resident_bytes() const override;
  const Plan& plan() const { return plan_; }

 private:
  void lay_out();
  Binding* binding_in(Context::State& state) const;
  void fill_binding(Binding& binding) const;
  void bind_steps(Binding& binding) const;
  std::byte* address_of(const Buffer& buffer, const Binding& binding) const;
  void bind_tensors(Binding& binding, std::span<const TensorView> src, std::span<const TensorView> dst) const;
  void rebind_step(Binding& binding, std::size_t step) const;
  void bind(Binding& binding, std::byte* arena, std::span<const TensorView> src, std::span<const TensorView> dst) const;
  Status run_steps(Binding& binding, Progress* progress, std::span<std::uint64_t> times, std::uint64_t (*clock)()) const;
  void give_inputs(const Binding& binding, std::span<const TensorView> src) const;
  void take_outputs(const Binding& binding, std::span<TensorView> dst) const;

  std::uint64_t id_;
  Plan plan_;
  std::shared_ptr<const WeightStore> weights_;
  std::vector<std::size_t> arena_offsets_;   ///< one per buffer; valid for parents in the arena only
  std::vector<BufferId> external_buffers_;   ///< buffers in kInput or kOutput and their parts; parents first
  std::vector<std::size_t> external_steps_;  ///< steps that touch them
  std::shared_ptr<const int> alive_;         ///< Bindings watch it
};

}  // namespace shoal::worker

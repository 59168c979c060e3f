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
  ///   on_host  runs instead where a device of the plan fails; null: the failure is an error
  PlannedProgram(Plan plan, std::shared_ptr<const WeightStore> weights, std::shared_ptr<const PlannedProgram> on_host = nullptr);
  Status run(Context& context, std::span<const TensorView> src, std::span<TensorView> dst) const override;
  /// Like run(), for tensors that are smaller in some dimensions: inputs are padded with zeros, those that `places` counts with
  /// -1; outputs are cut. Checks nothing.
  Status run_within(Context& context, std::span<const TensorView> src, std::span<TensorView> dst,
                    std::span<const std::size_t> places = {}) const;
  Status activate(Context& context) const override;
  std::vector<StepInfo> steps() const override;

  // A program that is part of a step of another one (body_step.hpp). It has no devices and no outputs whose size depends on data.

  /// Its steps. Throws std::bad_alloc.
  std::unique_ptr<Binding> make_inner_binding() const;
  /// Gives the steps their addresses in `arena`, which has arena_bytes() and is aligned to kTensorAlignment. Throws
  /// std::bad_alloc: then `binding` cannot be used any more.
  void move_inner(Binding& binding, std::byte* arena) const;
  /// Runs on the tensors where they are, at any addresses that are aligned for their elements. Checks nothing. Throws
  /// std::bad_alloc; `binding` can still be used.
  Status run_inner(Binding& binding, Progress* progress, std::span<const TensorView> src, std::span<const TensorView> dst) const;

  /// The exact size of private constants, and an estimate per step for code, descriptors and one Context's binding.
  std::size_t resident_bytes() const override;
  bool has_code() const override;
  const Plan& plan() const { return plan_; }

 private:
  /// How a run ended, and whether because of a device.
  struct Outcome {
    Status status;
    bool has_device_failed = false;
  };

  void lay_out();
  Status open_queues(Context::State& state, Binding& binding) const;
  Status make_steps(Binding& binding) const;
  Binding* binding_in(Context& context) const;
  void bind_steps(Binding& binding) const;
  std::byte* address_of(const Buffer& buffer, const Binding& binding) const;
  void rebind_external(Binding& binding) const;
  void bind_tensors(Binding& binding, std::span<const TensorView> src, std::span<const TensorView> dst) const;
  void rebind_step(Binding& binding, std::size_t step) const;
  Outcome run_bound(Context& context, std::span<const TensorView> src, std::span<TensorView> dst,
                    std::span<const std::size_t> places) const;
  Outcome run_steps(Binding& binding, Progress* progress, std::span<std::uint64_t> times, std::uint64_t (*clock)()) const;
  static void note_fallback(Context& context, const Status& why);
  Status place_dynamic_outputs(Context& context, const Binding& binding, std::span<TensorView> dst) const;

  std::uint64_t id_;
  Plan plan_;
  std::shared_ptr<const WeightStore> weights_;
  std::shared_ptr<const PlannedProgram> on_host_;
  std::vector<std::size_t> arena_offsets_;        ///< one per buffer; valid for parents in an arena only
  std::vector<std::size_t> device_arenas_bytes_;  ///< one per device
  std::vector<BufferId> external_buffers_;        ///< buffers in kInput or kOutput and their parts; parents first
  std::vector<std::size_t> external_steps_;       ///< steps that touch them
  std::shared_ptr<const int> alive_;              ///< Bindings watch it
};

}  // namespace shoal::worker

#include "worker/exec/cpu/recurrent_step.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "shm/base/errors.hpp"
#include "worker/exec/cpu/kernels/recurrent.hpp"
#include "worker/exec/program.hpp"

namespace shoal::worker::cpu {
namespace {

constexpr std::int64_t kStepsWithoutAsking = 64;  // whether the run shall go on

/// The addresses of a Recurrence's buffers in a Context.
struct Memory {
  const float *of_input, *first_state, *first_cell;
  const std::byte* lengths;
  float *given, *last_state, *last_cell, *now, *cells, *of_state, *made, *projected;
};
constexpr std::size_t kBuffers = 12;

std::array<BufferId, kBuffers> buffers_of(const Recurrence& work) {
  return {work.of_input,  work.first_state, work.first_cell, work.lengths,  work.given, work.last_state,
          work.last_cell, work.now,         work.cells,      work.of_state, work.made,  work.projected};
}

Memory memory_at(std::span<std::byte* const> at) {
  const auto floats = [&](std::size_t i) { return reinterpret_cast<float*>(at[i]); };
  return {.of_input = floats(0),
          .first_state = floats(1),
          .first_cell = floats(2),
          .lengths = at[3],
          .given = floats(4),
          .last_state = floats(5),
          .last_cell = floats(6),
          .now = floats(7),
          .cells = floats(8),
          .of_state = floats(9),
          .made = floats(10),
          .projected = floats(11)};
}

void copy(const float* from, std::int64_t count, float* to) {
  std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
}

class BoundRecurrence final : public BoundStep {
 public:
  BoundRecurrence(const char* name, const Recurrence& work, const Step& state_product, const Step* projection)
      : name_(name),
        work_(work),
        state_product_(state_product.bind()),
        projection_(projection == nullptr ? nullptr : projection->bind()),
        product_operands_(state_product.operands().size()),
        lengths_(static_cast<std::size_t>(work.sequences)),
        is_active_(std::make_unique<bool[]>(lengths_.size())) {}

  void set_addresses(std::span<std::byte* const> operands) override {
    memory_ = memory_at(operands.first(kBuffers));
    state_product_->set_addresses(operands.subspan(kBuffers, product_operands_));
    if (projection_) projection_->set_addresses(operands.subspan(kBuffers + product_operands_));
  }

  Status run() override {
    const std::int64_t states = work_.sequences * work_.result, cells = work_.sequences * work_.hidden;
    for (std::size_t n = 0; n < lengths_.size(); ++n) {
      lengths_[n] =
          work_.length_of == nullptr ? work_.steps : work_.length_of(memory_.lengths, static_cast<std::int64_t>(n), work_.steps);
    }
    copy(memory_.first_state + work_.state, states, memory_.now);
    if (memory_.cells != nullptr) copy(memory_.first_cell + work_.cell, cells, memory_.cells);
    for (std::int64_t i = 0; i < work_.steps; ++i) {
      const bool asks = i % kStepsWithoutAsking == kStepsWithoutAsking - 1;
      if (asks && progress != nullptr && !progress->enter_step(name_))
        return cancelled("told to end in {}, after {} of its {} steps", name_, i, work_.steps);
      SHOAL_RETURN_IF_ERROR(run_step(work_.is_backward ? work_.steps - 1 - i : i));
    }
    if (memory_.last_state != nullptr) copy(memory_.now, states, memory_.last_state + work_.state);
    if (memory_.last_cell != nullptr) copy(memory_.cells, cells, memory_.last_cell + work_.cell);
    return {};
  }

 private:
  Status run_step(std::int64_t step) {
    for (std::size_t n = 0; n < lengths_.size(); ++n) is_active_[n] = step < lengths_[n];
    SHOAL_RETURN_IF_ERROR(state_product_->run());
    const std::int64_t units = rnn_gates(work_.mode) * work_.hidden;
    run_cells({.mode = work_.mode,
               .limits = work_.limits,
               .sequences = work_.sequences,
               .hidden = work_.hidden,
               .of_input = memory_.of_input + step * work_.sequences * units,
               .of_state = memory_.of_state,
               .cell = memory_.cells,
               .before = projection_ ? nullptr : memory_.now,
               .made = projection_ ? memory_.made : memory_.now,
               .is_active = is_active_.get()});
    if (projection_) SHOAL_RETURN_IF_ERROR(projection_->run());
    for (std::int64_t n = 0; n < work_.sequences; ++n) {
      float* const now = memory_.now + n * work_.result;
      float* const given = memory_.given + (step * work_.sequences + n) * work_.row + work_.column;
      if (!is_active_[static_cast<std::size_t>(n)]) {
        std::fill_n(given, work_.result, 0.0F);
        continue;
      }
      if (projection_) copy(memory_.projected + n * work_.result, work_.result, now);
      copy(now, work_.result, given);
    }
    return {};
  }

  const char* const name_;
  const Recurrence& work_;
  const std::unique_ptr<BoundStep> state_product_, projection_;
  const std::size_t product_operands_;
  std::vector<std::int64_t> lengths_;
  const std::unique_ptr<bool[]> is_active_;
  Memory memory_{};
};

std::vector<BufferId> operands_of(const Recurrence& work, const Step& state_product, const Step* projection) {
  const auto own = buffers_of(work);
  std::vector<BufferId> operands(own.begin(), own.end());
  for (const Step* const step : {&state_product, projection}) {
    if (step != nullptr) operands.insert(operands.end(), step->operands().begin(), step->operands().end());
  }
  return operands;
}

class RecurrenceStep final : public Step {
 public:
  RecurrenceStep(std::string name, const Recurrence& work, std::unique_ptr<Step> state_product, std::unique_ptr<Step> projection)
      : Step(std::move(name), operands_of(work, *state_product, projection.get())),
        work_(work),
        state_product_(std::move(state_product)),
        projection_(std::move(projection)) {}
  std::string implementation() const override { return "recurrence, " + state_product_->implementation(); }
  double flops() const override { return work_.flops; }
  bool has_code() const override { return state_product_->has_code() || (projection_ && projection_->has_code()); }
  std::unique_ptr<BoundStep> bind() const override {
    return std::make_unique<BoundRecurrence>(name().c_str(), work_, *state_product_, projection_.get());
  }

 private:
  const Recurrence work_;
  const std::unique_ptr<Step> state_product_, projection_;
};

}  // namespace

std::unique_ptr<Step> make_recurrence_step(std::string name, const Recurrence& work, std::unique_ptr<Step> state_product,
                                           std::unique_ptr<Step> projection) {
  return std::make_unique<RecurrenceStep>(std::move(name), work, std::move(state_product), std::move(projection));
}

}  // namespace shoal::worker::cpu

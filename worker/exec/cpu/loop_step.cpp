#include "worker/exec/cpu/loop_step.hpp"

namespace shoal::worker::cpu {
namespace {

constexpr std::size_t kLeastPerThread = 1 << 14;  // below this, waking a thread costs more than it saves

class BoundLoopStep : public BoundStep {
 public:
  explicit BoundLoopStep(const Loop& loop, std::size_t operand_count) : loop_(loop), operands_(operand_count) {}
  void set_addresses(std::span<std::byte* const> operands) override { operands_.assign(operands.begin(), operands.end()); }
  Status run() override {
    loop_(operands_);
    return {};
  }

 private:
  const Loop& loop_;
  std::vector<std::byte*> operands_;
};

class LoopStep : public Step {
 public:
  LoopStep(std::string name, std::string implementation, std::vector<BufferId> operands, Loop loop)
      : Step(std::move(name), std::move(operands)), implementation_(std::move(implementation)), loop_(std::move(loop)) {}
  std::string implementation() const override { return implementation_; }
  std::unique_ptr<BoundStep> bind() const override { return std::make_unique<BoundLoopStep>(loop_, operands().size()); }

 private:
  std::string implementation_;
  Loop loop_;
};

/// dst[i] = function(src[i]).
template <typename Function>
Loop map_loop(std::size_t count, Function function) {
  return [count, function](std::span<std::byte* const> operands) {
    const auto* const src = reinterpret_cast<const float*>(operands[0]);
    auto* const dst = reinterpret_cast<float*>(operands[1]);
#pragma omp parallel for simd schedule(static) if (count > kLeastPerThread)
    for (std::size_t i = 0; i < count; ++i) dst[i] = function(src[i]);
  };
}

}  // namespace

std::unique_ptr<Step> make_loop_step(std::string name, std::string implementation, std::vector<BufferId> operands, Loop loop) {
  return std::make_unique<LoopStep>(std::move(name), std::move(implementation), std::move(operands), std::move(loop));
}

Loop clamp_loop(std::size_t count, float low, float high) {
  return map_loop(count, [low, high](float x) {
    const float raised = x < low ? low : x;  // false for NaN
    return raised > high ? high : raised;
  });
}

Loop divide_loop(std::size_t count, float divisor) {
  return map_loop(count, [divisor](float x) { return x / divisor; });
}

}  // namespace shoal::worker::cpu

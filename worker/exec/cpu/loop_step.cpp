#include "worker/exec/cpu/loop_step.hpp"

#include <bit>
#include <cstdint>

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

/// The upper half of a float. Rounds to the nearest, to even if two are as near.
struct Bfloat16 {
  Bfloat16(float x) {  // NOLINT(google-explicit-constructor): as between float and double
    const auto all = std::bit_cast<std::uint32_t>(x);
    bits = static_cast<std::uint16_t>(x != x ? all >> 16 | 64 : (all + 0x7fff + (all >> 16 & 1)) >> 16);
  }
  operator float() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }  // NOLINT(google-explicit-constructor)
  std::uint16_t bits;
};

/// dst[i] = function(src[i]), computed in float.
template <typename T, typename Function>
Loop map_loop_of(std::size_t count, Function function) {
  return [count, function](std::span<std::byte* const> operands) {
    const auto* const src = reinterpret_cast<const T*>(operands[0]);
    auto* const dst = reinterpret_cast<T*>(operands[1]);
#pragma omp parallel for simd schedule(static) if (count > kLeastPerThread)
    for (std::size_t i = 0; i < count; ++i) dst[i] = function(src[i]);
  };
}
template <typename Function>
Loop map_loop(std::size_t count, bool is_bf16, Function function) {
  return is_bf16 ? map_loop_of<Bfloat16>(count, function) : map_loop_of<float>(count, function);
}

}  // namespace

std::unique_ptr<Step> make_loop_step(std::string name, std::string implementation, std::vector<BufferId> operands, Loop loop) {
  return std::make_unique<LoopStep>(std::move(name), std::move(implementation), std::move(operands), std::move(loop));
}

Loop clamp_loop(std::size_t count, float low, float high, bool is_bf16) {
  return map_loop(count, is_bf16, [low, high](float x) {
    const float raised = x < low ? low : x;  // false for NaN
    return raised > high ? high : raised;
  });
}

Loop divide_loop(std::size_t count, float divisor, bool is_bf16) {
  return map_loop(count, is_bf16, [divisor](float x) { return x / divisor; });
}

}  // namespace shoal::worker::cpu

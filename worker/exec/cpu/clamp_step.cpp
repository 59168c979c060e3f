#include "worker/exec/cpu/clamp_step.hpp"

namespace shoal::worker::cpu {
namespace {

constexpr std::size_t kLeastPerThread = 1 << 14;  // below, a thread costs more to wake than it saves

class BoundClampStep : public BoundStep {
 public:
  BoundClampStep(std::size_t count, float low, float high) : count_(count), low_(low), high_(high) {}

  void set_addresses(std::span<std::byte* const> operands) override {
    src_ = reinterpret_cast<const float*>(operands[0]);
    dst_ = reinterpret_cast<float*>(operands[1]);
  }

  Status run() override {
    const float* const src = src_;
    float* const dst = dst_;
    const float low = low_, high = high_;
#pragma omp parallel for simd schedule(static) if (count_ > kLeastPerThread)
    for (std::size_t i = 0; i < count_; ++i) {
      const float x = src[i], raised = x < low ? low : x;  // false for NaN
      dst[i] = raised > high ? high : raised;
    }
    return {};
  }

 private:
  std::size_t count_;
  float low_, high_;
  const float* src_ = nullptr;
  float* dst_ = nullptr;
};

class ClampStep : public Step {
 public:
  ClampStep(std::string name, BufferId src, BufferId dst, std::size_t count, float low, float high)
      : Step(std::move(name), {src, dst}), count_(count), low_(low), high_(high) {}
  std::string implementation() const override { return "clamp"; }
  std::unique_ptr<BoundStep> bind() const override { return std::make_unique<BoundClampStep>(count_, low_, high_); }

 private:
  std::size_t count_;
  float low_, high_;
};

}  // namespace

std::unique_ptr<Step> make_clamp_step(std::string name, BufferId src, BufferId dst, std::size_t count, float low, float high) {
  return std::make_unique<ClampStep>(std::move(name), src, dst, count, low, high);
}

}  // namespace shoal::worker::cpu

#include "worker/exec/cpu/kernels/loop_step.hpp"

namespace shoal::worker::cpu {
namespace {

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

}  // namespace

std::unique_ptr<Step> make_loop_step(std::string name, std::string implementation, std::vector<BufferId> operands, Loop loop) {
  return std::make_unique<LoopStep>(std::move(name), std::move(implementation), std::move(operands), std::move(loop));
}

}  // namespace shoal::worker::cpu

#include "worker/exec/cpu/kernels/loop_step.hpp"

#include "shm/base/errors.hpp"

namespace shoal::worker::cpu {
namespace {

class BoundLoopStep : public BoundStep {
 public:
  BoundLoopStep(const Loop& loop, const LoopCheck& check, std::size_t operand_count)
      : loop_(loop), check_(check), operands_(operand_count) {}
  void set_addresses(std::span<std::byte* const> operands) override { operands_.assign(operands.begin(), operands.end()); }
  Status run() override {
    if (check_) SHOAL_RETURN_IF_ERROR(check_(operands_));
    loop_(operands_);
    return {};
  }

 private:
  const Loop& loop_;
  const LoopCheck& check_;
  std::vector<std::byte*> operands_;
};

class LoopStep : public Step {
 public:
  LoopStep(std::string name, std::string implementation, std::vector<BufferId> operands, Loop loop, double flops, LoopCheck check)
      : Step(std::move(name), std::move(operands)),
        implementation_(std::move(implementation)),
        loop_(std::move(loop)),
        flops_(flops),
        check_(std::move(check)) {}
  double flops() const override { return flops_; }
  std::size_t resident_bytes() const override { return loop_.kept_bytes; }
  bool has_code() const override { return false; }
  std::string implementation() const override { return implementation_; }
  std::unique_ptr<BoundStep> bind() const override { return std::make_unique<BoundLoopStep>(loop_, check_, operands().size()); }

 private:
  std::string implementation_;
  Loop loop_;
  double flops_;
  LoopCheck check_;
};

}  // namespace

std::unique_ptr<Step> make_loop_step(std::string name, std::string implementation, std::vector<BufferId> operands, Loop loop,
                                     double flops, LoopCheck check) {
  return std::make_unique<LoopStep>(std::move(name), std::move(implementation), std::move(operands), std::move(loop), flops,
                                    std::move(check));
}

}  // namespace shoal::worker::cpu

#include "worker/exec/transfer_step.hpp"

#include <utility>

#include "worker/exec/backend.hpp"

namespace shoal::worker {
namespace {

enum class Direction { kIn, kOut };

class ActiveTransfer : public BoundStep {
 public:
  ActiveTransfer(Queue& queue, Direction direction, std::size_t bytes) : queue_(queue), direction_(direction), bytes_(bytes) {}
  void set_addresses(std::span<std::byte* const> operands) override {
    src_ = operands[0];
    dst_ = operands[1];
  }
  Status run() override {
    return direction_ == Direction::kIn ? queue_.copy_in(dst_, {src_, bytes_}) : queue_.copy_out({dst_, bytes_}, src_);
  }

 private:
  Queue& queue_;
  const Direction direction_;
  const std::size_t bytes_;
  const std::byte* src_ = nullptr;
  std::byte* dst_ = nullptr;
};

class TransferStep : public DeviceStep {
 public:
  TransferStep(std::string name, Direction direction, BufferId src, BufferId dst, std::size_t bytes)
      : DeviceStep(std::move(name), {src, dst}), direction_(direction), bytes_(bytes) {}
  std::string implementation() const override { return "transfer"; }
  Result<std::unique_ptr<BoundStep>> activate(Queue& queue, const WeightStore&) const override {
    return std::unique_ptr<BoundStep>(std::make_unique<ActiveTransfer>(queue, direction_, bytes_));
  }

 private:
  const Direction direction_;
  const std::size_t bytes_;
};

class ActiveWait : public BoundStep {
 public:
  explicit ActiveWait(Queue& queue) : queue_(queue) {}
  void set_addresses(std::span<std::byte* const>) override {}
  int start() override { return queue_.start(); }
  Status run() override { return queue_.finish(); }

 private:
  Queue& queue_;
};

class WaitStep : public DeviceStep {
 public:
  using DeviceStep::DeviceStep;
  std::string implementation() const override { return "wait"; }
  Result<std::unique_ptr<BoundStep>> activate(Queue& queue, const WeightStore&) const override {
    return std::unique_ptr<BoundStep>(std::make_unique<ActiveWait>(queue));
  }
};

}  // namespace

std::unique_ptr<Step> make_copy_in_step(const std::string& what, BufferId src, BufferId dst, std::size_t bytes) {
  return std::make_unique<TransferStep>("copy of '" + what + "' to the device", Direction::kIn, src, dst, bytes);
}

std::unique_ptr<Step> make_copy_out_step(const std::string& what, BufferId src, BufferId dst, std::size_t bytes) {
  return std::make_unique<TransferStep>("copy of '" + what + "' from the device", Direction::kOut, src, dst, bytes);
}

std::unique_ptr<Step> make_wait_step(const std::string& what, std::vector<BufferId> in_flight) {
  return std::make_unique<WaitStep>("wait for " + what, std::move(in_flight));
}

}  // namespace shoal::worker

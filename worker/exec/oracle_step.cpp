#include "worker/exec/oracle_step.hpp"

#include <cstring>

#include "shm/base/errors.hpp"
#include "worker/graph/operators.hpp"

namespace shoal::worker {
namespace {

class BoundOracleStep : public BoundStep {
 public:
  BoundOracleStep(const Node& node, std::vector<TensorView> src, std::vector<TensorView> dst)
      : node_(node), src_(std::move(src)), dst_(std::move(dst)) {}

  void set_addresses(std::span<std::byte* const> operands) override {
    std::size_t next = 0;
    for (auto& view : src_) view.data = operands[next++];
    for (auto& view : dst_) view.data = operands[next++];
  }
  Status run() override { return run_oracle(node_, src_, dst_); }

 private:
  const Node& node_;
  std::vector<TensorView> src_, dst_;
};

class OracleStep : public Step {
 public:
  OracleStep(const Node& node, std::vector<TensorView> src, std::vector<TensorView> dst, std::vector<BufferId> operands)
      : Step(describe(node), std::move(operands)), node_(node), src_(std::move(src)), dst_(std::move(dst)) {}

  std::string implementation() const override { return "oracle"; }
  bool has_code() const override { return false; }
  double flops() const override { return node_.op->facts.work(node_, src_, dst_).flops; }
  std::unique_ptr<BoundStep> bind() const override { return std::make_unique<BoundOracleStep>(node_, src_, dst_); }

 private:
  Node node_;
  std::vector<TensorView> src_, dst_;
};

class BoundCopyStep : public BoundStep {
 public:
  explicit BoundCopyStep(std::size_t bytes) : bytes_(bytes) {}
  void set_addresses(std::span<std::byte* const> operands) override {
    src_ = operands[0];
    dst_ = operands[1];
  }
  Status run() override {
    std::memcpy(dst_, src_, bytes_);
    return {};
  }

 private:
  std::size_t bytes_;
  const std::byte* src_ = nullptr;
  std::byte* dst_ = nullptr;
};

class CopyStep : public Step {
 public:
  CopyStep(std::string name, BufferId src, BufferId dst, std::size_t bytes) : Step(std::move(name), {src, dst}), bytes_(bytes) {}
  std::string implementation() const override { return "copy"; }
  bool has_code() const override { return false; }
  std::unique_ptr<BoundStep> bind() const override { return std::make_unique<BoundCopyStep>(bytes_); }

 private:
  std::size_t bytes_;
};

}  // namespace

std::unique_ptr<Step> make_oracle_step(const Node& node, const std::vector<PlacedTensor>& src,
                                       const std::vector<PlacedTensor>& dst) {
  std::vector<TensorView> src_views, dst_views;
  std::vector<BufferId> operands;
  const auto place = [&](const PlacedTensor& tensor, std::vector<TensorView>& views) {
    views.push_back({tensor.dtype, tensor.shape, nullptr});
    operands.push_back(tensor.buffer);
  };
  for (const auto& tensor : src) place(tensor, src_views);
  for (const auto& tensor : dst) place(tensor, dst_views);
  return std::make_unique<OracleStep>(node, std::move(src_views), std::move(dst_views), std::move(operands));
}

std::unique_ptr<Step> make_copy_step(std::string name, BufferId src, BufferId dst, std::size_t bytes) {
  return std::make_unique<CopyStep>(std::move(name), src, dst, bytes);
}

}  // namespace shoal::worker

#include "worker/exec/dynamic_step.hpp"

#include <algorithm>
#include <cstring>

#include "shm/base/errors.hpp"
#include "worker/graph/operators.hpp"

namespace shoal::worker {

bool lies_within(const Shape& shape, const Shape& bound) {
  return shape.rank() == bound.rank() &&
         std::equal(shape.begin(), shape.end(), bound.begin(),
                    [](std::int64_t size, std::int64_t most) { return size >= 0 && size <= most; });
}

namespace {

/// A tensor of the node: what is known when the graph is compiled.
struct Operand {
  std::string name;
  DType dtype;
  Shape bound;
};

class BoundDynamicStep : public BoundStep {
 public:
  BoundDynamicStep(const Node& node, const std::vector<Operand>& src, const std::vector<Operand>& dst, const MakeNodeRun& make)
      : node_(node), src_operands_(src), dst_operands_(dst), make_(make), slots_(src.size() + dst.size()) {
    for (const Operand& operand : src) src_.push_back({operand.dtype, operand.bound, nullptr});
    for (const Operand& operand : dst) dst_.push_back({operand.dtype, operand.bound, nullptr});
  }

  void set_addresses(std::span<std::byte* const> operands) override {
    const auto count = slots_.size();
    for (std::size_t i = 0; i < src_.size(); ++i) src_[i].data = operands[i];
    for (std::size_t i = 0; i < dst_.size(); ++i) dst_[i].data = operands[src_.size() + i];
    std::copy_n(operands.begin() + static_cast<std::ptrdiff_t>(count), count, slots_.begin());
  }

  Status run() override {
    for (std::size_t i = 0; i < src_.size(); ++i) {
      if (slots_[i] != nullptr) std::memcpy(&src_[i].shape, slots_[i], sizeof(Shape));
    }
    SHOAL_RETURN_IF_ERROR(find_sizes());
    SHOAL_RETURN_IF_ERROR(run_kernel());
    for (std::size_t i = 0; i < dst_.size(); ++i) {
      if (!lies_within(dst_[i].shape, dst_operands_[i].bound)) {
        return internal_error("{}: result {} has shape {}, and its bound is {}", describe(node_), i, dst_[i].shape.to_string(),
                              dst_operands_[i].bound.to_string());
      }
      if (std::byte* const slot = slots_[src_.size() + i]) std::memcpy(slot, &dst_[i].shape, sizeof(Shape));
    }
    return {};
  }

 private:
  /// A kernel that finds sizes finds them in rows without elements, too.
  Status run_kernel() {
    if (kernel_finds_sizes_) return node_.op->oracle(node_, src_, dst_);
    if (make_) {
      make_run();
      if (made_) return made_(src_, dst_);
    }
    return run_oracle(node_, src_, dst_);
  }

  void make_run() {
    sizes_.clear();
    for (const auto* views : {&src_, &dst_}) {
      for (const TensorView& view : *views) sizes_.push_back(view.shape);
    }
    if (sizes_ == made_for_) return;
    made_for_.clear();  // in case make_ throws
    made_ = {};         // what it keeps makes room for the next one
    made_ = make_(node_, src_, dst_);
    made_for_ = sizes_;
  }

  /// The sizes of the results, or the largest ones where the kernel finds the sizes.
  Status find_sizes() {
    DimTable table;
    std::vector<TypedValue> src, dst;
    for (std::size_t i = 0; i < src_.size(); ++i) src.push_back({src_operands_[i].name, src_[i].dtype, src_[i].shape});
    for (const Operand& operand : dst_operands_) dst.push_back({.name = operand.name, .table = &table});
    SHOAL_RETURN_IF_ERROR(node_.op->infer(node_, src, dst));
    kernel_finds_sizes_ = std::ranges::any_of(dst, [](const TypedValue& result) { return !result.shape.is_numeric(); });
    for (std::size_t i = 0; i < dst_.size(); ++i) {
      dst_[i].shape = dst[i].shape.bound();
      if (dst_[i].shape.rank() != dst_operands_[i].bound.rank()) {
        return unimplemented("{}: for these data result {} has {} axes, and the model was loaded for {}: name the axes",
                             describe(node_), i, dst_[i].shape.rank(), dst_operands_[i].bound.rank());
      }
      if (lies_within(dst_[i].shape, dst_operands_[i].bound)) continue;
      return internal_error("{}: result {} would have shape {}, and its bound is {}", describe(node_), i,
                            dst_[i].shape.to_string(), dst_operands_[i].bound.to_string());
    }
    return {};
  }

  const Node& node_;
  const std::vector<Operand>&src_operands_, &dst_operands_;
  const MakeNodeRun& make_;
  NodeRun made_;
  std::vector<Shape> sizes_, made_for_;  ///< of src, then of dst: those of this run, and those of made_
  std::vector<TensorView> src_, dst_;
  bool kernel_finds_sizes_ = false;
  std::vector<std::byte*> slots_;  ///< of src, then of dst; null: the size is known
};

class DynamicStep : public Step {
 public:
  DynamicStep(const Node& node, std::vector<Operand> src, std::vector<Operand> dst, std::vector<BufferId> operands,
              NodeKernel kernel)
      : Step(describe(node), std::move(operands)),
        node_(node),
        src_(std::move(src)),
        dst_(std::move(dst)),
        kernel_(std::move(kernel)) {}

  std::string implementation() const override { return kernel_.make ? "kernel" : "oracle"; }
  bool has_code() const override { return false; }
  double flops() const override {
    const auto views = [](const std::vector<Operand>& operands) {
      std::vector<TensorView> all;
      for (const Operand& operand : operands) all.push_back({operand.dtype, operand.bound, nullptr});
      return all;
    };
    return node_.op->facts.work(node_, views(src_), views(dst_)).flops;
  }
  std::unique_ptr<BoundStep> bind() const override { return std::make_unique<BoundDynamicStep>(node_, src_, dst_, kernel_.make); }
  std::size_t resident_bytes() const override { return kernel_.kept_bytes; }

 private:
  Node node_;
  std::vector<Operand> src_, dst_;
  NodeKernel kernel_;
};

BufferId slot_of(const Plan& plan, const PlacedTensor& tensor) {
  return tensor.buffer == kNoBuffer ? kNoBuffer : plan.buffer(tensor.buffer).shape_slot;
}

}  // namespace

bool has_dynamic_tensor(const Plan& plan, const std::vector<PlacedTensor>& src, const std::vector<PlacedTensor>& dst) {
  const auto is_dynamic = [&](const PlacedTensor& tensor) { return slot_of(plan, tensor) != kNoBuffer; };
  return std::ranges::any_of(src, is_dynamic) || std::ranges::any_of(dst, is_dynamic);
}

std::unique_ptr<Step> make_dynamic_step(const Plan& plan, const Node& node, const std::vector<PlacedTensor>& src,
                                        const std::vector<PlacedTensor>& dst, NodeKernel kernel) {
  std::vector<BufferId> operands, slots;
  const auto place = [&](const std::vector<PlacedTensor>& tensors) {
    std::vector<Operand> placed;
    for (const PlacedTensor& tensor : tensors) {
      placed.push_back({std::string(tensor.name), tensor.dtype, tensor.shape});
      operands.push_back(tensor.buffer);
      slots.push_back(slot_of(plan, tensor));
    }
    return placed;
  };
  std::vector<Operand> inputs = place(src), outputs = place(dst);
  operands.insert(operands.end(), slots.begin(), slots.end());
  return std::make_unique<DynamicStep>(node, std::move(inputs), std::move(outputs), std::move(operands), std::move(kernel));
}

}  // namespace shoal::worker

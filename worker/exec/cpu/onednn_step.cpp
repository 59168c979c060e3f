#include "worker/exec/cpu/onednn_step.hpp"

#include <algorithm>
#include <new>
#include <numeric>

#include "shm/base/errors.hpp"

namespace shoal::worker::cpu {
namespace {

// Keeps oneDNN's C array of arguments: the C++ execute() would build one, on the heap, in every run.
class BoundOneDnnStep : public BoundStep {
 public:
  BoundOneDnnStep(const std::string& name, const dnnl::primitive& primitive, const std::vector<Argument>& arguments)
      : name_(name), primitive_(primitive), arguments_(arguments), memories_(arguments.size()), execute_(arguments.size()) {}

  void set_addresses(std::span<std::byte* const> operands) override try {
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      dnnl::memory& memory = memories_[i];
      if (memory && memory.get_data_handle() == operands[i]) continue;
      // set_data_handle() writes zeros into padding, and packed weights are read-only: a new object does not.
      if (memory && !is_padded(arguments_[i].desc)) {
        memory.set_data_handle(operands[i]);
      } else {
        memory = dnnl::memory(arguments_[i].desc, engine(), operands[i]);
      }
      execute_[i] = {arguments_[i].kind, memory.get()};
    }
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_out_of_memory) throw std::bad_alloc();
    throw;
  }

  Status run() override {
    const auto status =
        dnnl_primitive_execute(primitive_.get(), stream().get(), static_cast<int>(execute_.size()), execute_.data());
    if (status == dnnl_success) return {};
    if (status == dnnl_out_of_memory) throw std::bad_alloc();
    return internal_error("{}: oneDNN failed to execute it, status {}", name_, static_cast<int>(status));
  }

 private:
  const std::string& name_;
  const dnnl::primitive& primitive_;
  const std::vector<Argument>& arguments_;
  std::vector<dnnl::memory> memories_;
  std::vector<dnnl_exec_arg_t> execute_;
};

double elements_of(const dnnl::memory::dims& dims) {
  return std::accumulate(dims.begin(), dims.end(), 1.0,
                         [](double product, auto dim) { return product * static_cast<double>(dim); });
}

// For a convolution or inner product: every element of the result is a sum over one filter. Grouped weights have one more axis
// than the tensors; the formula is the same.
double flops_of(const Desc& weights, const Desc& dst) {
  return 2 * elements_of(dst.dims()) * elements_of(weights.dims()) / static_cast<double>(dst.dims()[1]);
}

std::vector<BufferId> buffers_of(const std::vector<Argument>& arguments) {
  std::vector<BufferId> buffers;
  for (const auto& argument : arguments) buffers.push_back(argument.buffer);
  return buffers;
}

class OneDnnStep : public Step {
 public:
  OneDnnStep(std::string name, dnnl::primitive primitive, std::vector<Argument> arguments)
      : Step(std::move(name), buffers_of(arguments)), primitive_(std::move(primitive)), arguments_(std::move(arguments)) {}
  std::string implementation() const override {
    const char* name = nullptr;
    const_dnnl_primitive_desc_t pd = nullptr;
    if (dnnl_primitive_get_primitive_desc(primitive_.get(), &pd) != dnnl_success ||
        dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) != dnnl_success) {
      return "oneDNN";
    }
    return name;
  }
  double flops() const override {
    const auto kind = primitive_.get_kind();
    if (kind == dnnl::primitive::kind::matmul)
      return 2 * elements_of(find(DNNL_ARG_DST)->dims()) * static_cast<double>(find(DNNL_ARG_SRC)->dims().back());
    const bool multiplies = kind == dnnl::primitive::kind::convolution || kind == dnnl::primitive::kind::inner_product;
    return multiplies ? flops_of(*find(DNNL_ARG_WEIGHTS), *find(DNNL_ARG_DST)) : 0;
  }
  std::unique_ptr<BoundStep> bind() const override { return std::make_unique<BoundOneDnnStep>(name(), primitive_, arguments_); }

 private:
  const Desc* find(int kind) const {
    const auto found = std::find_if(arguments_.begin(), arguments_.end(), [&](const Argument& a) { return a.kind == kind; });
    return found == arguments_.end() ? nullptr : &found->desc;
  }

  dnnl::primitive primitive_;
  std::vector<Argument> arguments_;
};

}  // namespace

std::unique_ptr<Step> make_onednn_step(std::string name, dnnl::primitive primitive, std::vector<Argument> arguments) {
  return std::make_unique<OneDnnStep>(std::move(name), std::move(primitive), std::move(arguments));
}

}  // namespace shoal::worker::cpu

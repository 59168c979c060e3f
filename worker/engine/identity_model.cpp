#include "worker/engine/identity_model.hpp"

#include <cstring>

#include "shm/base/errors.hpp"
#include "shm/tensor/spec.hpp"
#include "worker/exec/padding.hpp"

namespace shoal::worker {
namespace {

class IdentityProgram final : public Program {
 public:
  explicit IdentityProgram(const Shape& shape) {
    inputs_ = {{"data", DType::kFloat32, shape}};
    outputs_ = {{"data_output", DType::kFloat32, shape}};
    step_count_ = 1;
  }

  Status run(Context& context, std::span<const TensorView> src, std::span<TensorView> dst) const override {
    if (src.size() != 1 || dst.size() != 1) return invalid_argument("builtin:identity takes one input and one output");
    SHOAL_RETURN_IF_ERROR(check_matches(inputs_[0], src[0].dtype, src[0].shape));
    if (context.progress && !context.progress->enter_step("Identity 'data_output'")) return cancelled("told to end");
    std::memcpy(dst[0].data, src[0].data, src[0].size_bytes());
    if (context.progress) context.progress->step_name.store(nullptr, std::memory_order_relaxed);
    return {};
  }
};

}  // namespace

IdentityModel::IdentityModel(int max_batch) : joined_sizes_(shoal::worker::joined_sizes(max_batch, {})) {}

Result<std::shared_ptr<const Program>> IdentityModel::program(std::span<const TensorSpec> inputs) {
  if (inputs.size() != 1 || inputs[0].name != "data") return invalid_argument("builtin:identity has one input, 'data'");
  SHOAL_RETURN_IF_ERROR(check_matches(input_specs()[0], inputs[0].dtype, inputs[0].shape));
  if (inputs[0].shape.element_count() < 0)
    return invalid_argument("builtin:identity: shape {} is open", inputs[0].shape.to_string());
  return std::shared_ptr<const Program>(std::make_shared<IdentityProgram>(inputs[0].shape));
}

std::vector<TensorSpec> IdentityModel::input_specs() const { return {{"data"}}; }

const std::vector<std::string>& IdentityModel::output_names() const {
  static const std::vector<std::string> names{"data_output"};
  return names;
}

const std::vector<std::string>& IdentityModel::ignored_inputs() const {
  static const std::vector<std::string> none;
  return none;
}

}  // namespace shoal::worker

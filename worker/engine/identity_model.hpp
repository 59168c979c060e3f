// IdentityModel, "builtin:identity": its output equals its input. Tests and benchmarks of the pool use it, so that they measure
// the pool only.
#pragma once

#include "worker/exec/model.hpp"

namespace shoal::worker {

/// Its path, wherever a model's path is expected.
inline constexpr char kIdentityPath[] = "builtin:identity";

/// Input `data` (float32, any shape), output `data_output`. No weights. Requests are joined along the first dimension.
///   Threads  thread-safe
class IdentityModel : public Model {
 public:
  explicit IdentityModel(int max_batch = 1);
  Result<std::shared_ptr<const Program>> program(std::span<const TensorSpec> inputs) override;
  void enter_thread() const override {}
  const std::vector<std::int64_t>& joined_sizes() const override { return joined_sizes_; }
  int packed_fd() const override { return -1; }
  std::size_t packed_bytes() const override { return 0; }
  std::vector<TensorSpec> input_specs() const override;
  const std::vector<std::string>& output_names() const override;
  const std::vector<std::string>& ignored_inputs() const override;

 private:
  const std::vector<std::int64_t> joined_sizes_;
};

}  // namespace shoal::worker

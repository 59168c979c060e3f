#include "worker/exec/program.hpp"

#include "shm/base/errors.hpp"

namespace shoal::worker {

Status Program::check(const char* what, std::span<const TensorSpec> specs, std::span<const TensorView> views) {
  if (views.size() != specs.size())
    return invalid_argument("{} {}s were given, the program has {}", views.size(), what, specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (views[i].dtype == specs[i].dtype && views[i].shape == specs[i].shape) continue;
    return invalid_argument("{} '{}' is {} {}, the program was compiled for {} {}", what, specs[i].name,
                            dtype_name(views[i].dtype), views[i].shape.to_string(), dtype_name(specs[i].dtype),
                            specs[i].shape.to_string());
  }
  return {};
}

}  // namespace shoal::worker

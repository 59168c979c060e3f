#include "supervisor/repository/load_estimate.hpp"

#include <algorithm>

#include "shm/base/errors.hpp"

namespace shoal::supervisor {
namespace {

constexpr std::uint64_t kMost = ~std::uint64_t{0};

std::string mb_text(std::uint64_t bytes) { return format("{} MB", bytes / 1'000'000 + (bytes % 1'000'000 != 0)); }

std::uint64_t add(std::uint64_t a, std::uint64_t b) { return a > kMost - b ? kMost : a + b; }

}  // namespace

std::uint64_t LoadEstimate::sum() const { return add(add(parameters, packed), arenas); }

LoadEstimate estimate_load(const VersionEntry& entry, std::uint64_t packed_bytes, std::uint64_t arena_bytes) {
  const auto lanes =
      static_cast<std::uint64_t>(entry.model.config.workers) * static_cast<std::uint64_t>(entry.model.config.contexts);
  return {.parameters = entry.parameter_bytes,
          .packed = std::max(packed_bytes, entry.parameter_bytes),
          .arenas = lanes != 0 && arena_bytes > kMost / lanes ? kMost : arena_bytes * lanes};
}

Status check_estimate(const std::string& model, const LoadEstimate& estimate, std::uint64_t available_bytes) {
  if (estimate.sum() <= available_bytes) return {};
  return failed_precondition(
      "model '{}': loading it takes about {} of memory (parameters {}, packed weights {}, activations {}), but only "
      "{} are available: free memory, or unload a model first",
      model, mb_text(estimate.sum()), mb_text(estimate.parameters), mb_text(estimate.packed), mb_text(estimate.arenas),
      mb_text(available_bytes));
}

}  // namespace shoal::supervisor

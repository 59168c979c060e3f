// Quarantine: inputs that crashed workers, known by their hash and refused.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "shm/base/mutex.hpp"
#include "shoal/result.hpp"
#include "shoal/tensor.hpp"

namespace shoal::worker {

/// XXH3 over dtypes, dims and bytes of all inputs; never 0, which means "not known" in the status line.
std::uint64_t hash_inputs(std::span<const TensorView> inputs);

/// The control thread replaces the list, lanes ask. As long as it is empty nobody needs to hash anything.
///   Threads  thread-safe
class Quarantine {
 public:
  ///   text    16 hex digits a line
  ///   Errors  kInvalidArgument: anything else; the list stays as it was
  Status replace(std::string_view text) SHOAL_EXCLUDES(mutex_);
  bool is_empty() const { return is_empty_.load(std::memory_order_relaxed); }
  bool contains(std::uint64_t hash) const SHOAL_EXCLUDES(mutex_);

 private:
  std::atomic<bool> is_empty_{true};
  mutable Mutex mutex_;
  std::vector<std::uint64_t> hashes_ SHOAL_GUARDED_BY(mutex_);  // sorted
};

}  // namespace shoal::worker

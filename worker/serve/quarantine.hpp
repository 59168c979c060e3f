// Quarantine: refuses inputs that have crashed workers. They are known by their hash.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "shm/base/mutex.hpp"
#include "shoal/result.hpp"
#include "shoal/tensor.hpp"

namespace shoal::worker {

/// XXH3 over dtypes, dimensions and bytes of all inputs. Never 0: that means "not known" in the status line.
std::uint64_t hash_inputs(std::span<const TensorView> inputs);

/// The control thread replaces the list, lanes read it. While it is empty, no input need be hashed.
///   Threads  thread-safe
class Quarantine {
 public:
  ///   text    lines of 16 hex digits
  ///   number  of the list: 1 to 255, then 1 again
  ///   Errors  kInvalidArgument: another text; the list is not changed
  Status replace(std::string_view text, std::uint8_t number) SHOAL_EXCLUDES(mutex_);
  bool is_empty() const { return is_empty_.load(std::memory_order_relaxed); }
  bool contains(std::uint64_t hash) const SHOAL_EXCLUDES(mutex_);
  /// Waits for the list of that number or a later one: lists travel by another socket than the requests that name them. A list
  /// that does not come in time is not waited for again.
  void wait_for(std::uint8_t number, std::chrono::milliseconds limit) const SHOAL_EXCLUDES(mutex_);

 private:
  bool is_here(std::uint8_t number) const;

  std::atomic<bool> is_empty_{true};
  mutable std::atomic<std::uint8_t> number_{0};  // release in replace() pairs with acquire in is_here()
  mutable Condition replaced_;
  mutable Mutex mutex_;
  std::vector<std::uint64_t> hashes_ SHOAL_GUARDED_BY(mutex_);  // sorted
};

}  // namespace shoal::worker

// Device: turns a graph of known shapes into a Plan. One implementation per value of the key `device`.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "worker/exec/choices.hpp"
#include "worker/exec/plan.hpp"
#include "worker/exec/weight_store.hpp"
#include "worker/graph/graph.hpp"

namespace shoal::worker {

/// Threads: thread-safe
class Device {
 public:
  virtual ~Device() = default;
  /// Everything of the device that packed weights and results depend on: library, version, instruction set, width.
  virtual std::string identity() const = 0;
  /// Makes the Plan for this graph, for which infer() has run. Constants are read from `weights`, or added to it before it is
  /// sealed. The fills share ownership of the constants; they do not refer to `graph`.
  ///   Errors  kUnimplemented, kInvalidArgument: operator and node named; kFailedPrecondition: an entry of `weights` has another
  ///           size than the graph's constant. Throws std::bad_alloc. Then nothing is added to `weights`
  virtual Result<Plan> compile(const Graph& graph, WeightStore& weights, const Choices& choices) const = 0;
  /// The choices that are worth measuring. The first is the one taken without measuring; those of one
  /// precision and layout are ordered by preference, best first. What Precision::kF32 offers, kF32Fast may use, too.
  virtual std::vector<Choices> variants() const { return {}; }
  virtual int threads() const { return 1; }  ///< the width
  /// Sets the calling thread's width and makes what its runs need. Called by each thread before it compiles or runs.
  virtual void enter_thread() const = 0;
};

/// The cache of a core, as assumed: a larger batch may run image by image. Not measured, so that machines compile alike.
inline constexpr std::size_t kCoreCacheBytes = std::size_t{1} << 20;

struct DeviceOptions {
  int threads = 1;
  bool fuse = true;
  Precision precision = Precision::kF32;  ///< of the variants, and of results without a choice; kAuto then counts as kF32
  std::size_t core_cache_bytes = kCoreCacheBytes;
};

/// `options` as in ModelOptions.
///   Errors  kInvalidArgument: names the known devices
Result<std::unique_ptr<Device>> make_device(const std::string& name, const DeviceOptions& options);
/// Runs every node by its oracle kernel, in plain layout, in every dtype.
std::unique_ptr<Device> make_reference_device();

}  // namespace shoal::worker
